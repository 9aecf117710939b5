"""Keep freed memory in the process instead of returning it to the system at every step.

The activations of a step are large, so malloc maps and unmaps each of them; the next step then pays for tens of
thousands of page faults, a tenth to a fifth of a step on a CPU. With two thresholds raised, freed memory is reused. A
command owns its process and may do that; a library may not, so `riesz_lab.train` leaves it to its caller.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Ask the GNU C library to keep what is freed; False where there is none."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, 2**30) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
