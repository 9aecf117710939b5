"""Run suites on groups of ranks, all cases of a suite in one group.

    python tests/riesz/sharded/ranks.py [--full] SUITE:WORLD[,WORLD...] ...    forks the ranks itself
    torchrun --nproc-per-node WORLD tests/riesz/sharded/ranks.py SUITE         the same suite, one rank per process

One process imports everything and forks the ranks, so that a group of ranks costs no more than its work. Prints one
JSON line per group: the suite, its figures, or what failed on which rank. No rank outlives its time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "support")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

torch.set_num_threads(1)

SECONDS, SECONDS_IN_FULL = 240, 1500
"""The longest a group of ranks may take."""


def suite(name: str):
    return __import__(f"suite_{name}").run


def as_rank(name: str, rank: int, world: int, full: bool, folder: Path, **options) -> None:
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=60), **options)
    try:
        outcome = {"figures": suite(name)(rank, world, folder, full)}
    except BaseException:
        outcome = {"error": f"rank {rank} of {world}\n{traceback.format_exc()}"}
    (folder / f"outcome-{rank}.json").write_text(json.dumps(outcome))
    if "error" not in outcome:
        dist.destroy_process_group()


def forked(name: str, world: int, full: bool, shared: Path) -> dict:
    """The suite on a group of forked ranks."""
    folder = Path(tempfile.mkdtemp(dir=shared))
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            try:
                as_rank(name, rank, world, full, folder, init_method=f"file://{folder / 'store'}")
            finally:
                sys.stdout.flush()
                os._exit(0)
        children.append(child)
    seconds = SECONDS_IN_FULL if full else SECONDS
    ends, late = time.monotonic() + seconds, set(children)
    while late and time.monotonic() < ends:
        late = {child for child in late if os.waitpid(child, os.WNOHANG) == (0, 0)}
        time.sleep(0.01)
    for child in late:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    outcomes = [json.loads(file.read_text()) for file in sorted(folder.glob("outcome-*.json"))]
    errors = [one["error"] for one in outcomes if "error" in one]
    if late or len(outcomes) < world:
        errors.append(f"{world - len(outcomes)} of {world} ranks have no outcome after {seconds} s")
    return {"suite": name, "world": world, "errors": errors, "figures": None if errors else outcomes[0]["figures"]}


def under_torchrun(name: str, full: bool) -> int:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = Path(tempfile.gettempdir()) / f"riesz-ranks-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    as_rank(name, rank, world, full, folder)
    outcome = json.loads((folder / f"outcome-{rank}.json").read_text())
    if rank == 0 or "error" in outcome:
        print(outcome.get("error") or json.dumps(outcome["figures"], indent=1))
    return int("error" in outcome)


def main() -> int:
    full = "--full" in sys.argv
    chosen = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    if "RANK" in os.environ:
        return under_torchrun(chosen[0], full)
    pairs = [argument.partition(":") for argument in chosen]
    for name, _, _ in pairs:
        suite(name)  # imported before the forks
    failed = 0
    for name, _, worlds in pairs:
        with tempfile.TemporaryDirectory() as shared:
            for world in map(int, worlds.split(",")):
                started = time.monotonic()
                outcome = forked(name, world, full, Path(shared))
                outcome["seconds"] = round(time.monotonic() - started, 1)
                print(json.dumps(outcome), flush=True)
                failed |= bool(outcome["errors"])
    return failed


if __name__ == "__main__":
    sys.exit(main())
