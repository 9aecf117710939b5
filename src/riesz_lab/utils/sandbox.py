"""Read a file in a child process first, under limits on time and memory.

`torch.load` builds keys before anyone can look at them, and hashing a key is C code: a key that holds itself many times
over takes for ever, one that is nested a million deep overflows the stack. Neither can be caught in the process that
reads, so a child reads first, and only a file that it survives is read here.

The child is a fork: a new interpreter would import torch again, for seconds. It computes nothing in parallel, and ends
without running what the parent has registered for its exit. Where a system has no fork, there are no limits.
"""

import faulthandler
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from riesz_lab.errors import BadFileError

CPU_SECONDS = 10
"""For a file of any size, and as much again for every 200 MB of it."""
MEMORY = 2**30
"""Bytes beyond four times the file, which is the numbers, twice, and their names."""
STACK = 8 * 2**20
"""Bytes of the stack, on which nested values are hashed."""
LIMITS = (-signal.SIGXCPU, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGKILL) if hasattr(signal, "SIGXCPU") else ()
"""How a process ends that meets one of these limits."""
PATIENCE = 20
"""Seconds of waiting for each second of work: other programs may keep the processor busy."""


def check(read: Callable[[Path, int], object], path: Path, size: int) -> None:
    """Raise a `BadFileError` unless `read(path, size)` comes to its end in a child process."""
    if not hasattr(os, "fork"):
        return
    seconds, memory = CPU_SECONDS * (1 + size // 200_000_000), MEMORY + 4 * size
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(read, path, size, seconds, memory, sender), daemon=True)
    with warnings.catch_warnings():
        # Python warns of forks beside threads: those of torch wait for work, which the child does not give them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    sender.close()
    with receiver:
        try:
            answered = receiver.poll(PATIENCE * seconds)
            reason = receiver.recv_bytes().decode() if answered else f"{path} takes too long to read"
        except EOFError:  # it ended without an answer
            child.join()
            reason = f"{path} {_describe_end(child.exitcode or 0, seconds)}"
        finally:
            child.kill()
            child.join()
    if reason:
        raise BadFileError(reason)


def _describe_end(status: int, seconds: int) -> str:
    # Which limit is met first depends on the machine: a key that is nested deeply is built for seconds before it is
    # hashed, which overflows the stack.
    if status in LIMITS:
        return f"takes more processor time ({seconds} s), memory or depth of nesting than a file of its size needs"
    name = signal.Signals(-status).name if status < 0 else f"status {status}"
    return f"ends the process that reads it ({name}): damaged, or made to do so"


def _child(
    read: Callable[[Path, int], object], path: Path, size: int, seconds: int, memory: int, sender: Connection
) -> None:
    """Send the reason why a file is refused, or nothing; memory that runs out here is a reason, too."""
    faulthandler.disable()  # a crash here is an answer, not a fault to print
    _limit(seconds, memory)
    reason = ""
    try:
        read(path, size)
    except BadFileError as error:
        reason = str(error)
    except MemoryError:
        reason = f"{path} asks for more memory than there is; no file of its size needs so much"
    sender.send_bytes(reason.encode(errors="backslashreplace"))
    os._exit(0)


def _limit(seconds: int, memory: int) -> None:
    """Limit this process from here on; what it has inherited is not counted."""
    import resource  # of POSIX alone

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stack, most = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (STACK if stack == resource.RLIM_INFINITY else min(stack, STACK), most))
    if sys.platform.startswith("linux"):  # elsewhere the size of a process is not known, or not limited
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
