"""Train on two processes by ddp and by fsdp2, kill one of them in a step, go on with one; compare with one throughout.

    python tests/support/losing_a_rank.py FOLDER

A process that has everything imported forks the others, with the environment that torchrun would give them. Prints a
JSON line: how far the weights are from those of one process, what the survivor said, and after how many seconds.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import torch

torch.set_num_threads(1)

# What the forks would otherwise each import.
import lightning_fabric.strategies  # noqa: E402, F401
import safetensors.torch  # noqa: E402
import torch.distributed.fsdp  # noqa: E402
import torch.distributed.tensor  # noqa: E402

from lab_helpers import small_config, small_data  # noqa: E402
from riesz_lab.errors import LabError  # noqa: E402
from riesz_lab.training import checkpoint  # noqa: E402
from riesz_lab.training.hardware import Hardware  # noqa: E402
from riesz_lab.training.trainer import train  # noqa: E402

CONFIG = small_config(model="cnn", epochs=3, augment="none", momentum=0.9, eval_batch_size=13)
TIMEOUT = 30.0


def trained(folder, strategy="auto"):
    hardware = Hardware(accelerator="cpu", strategy=strategy, timeout=TIMEOUT)
    return train(CONFIG, runs=folder, data=small_data(), hardware=hardware, save_every=0.0)


def forked(folder, strategy="auto", ranks=1):
    """Processes that train together; what one says when it fails is left in a file."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child:
            children.append(child)
            continue
        status = 1
        try:
            if ranks > 1:
                names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
                names |= {"GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "x"}
                os.environ.update({name: str(value) for name, value in names.items()})
            trained(folder, strategy)
            status = 0
        except LabError as error:
            (folder / f"said-{rank}").write_text(str(error))
        finally:
            os._exit(status)
    return children


def waited(children):
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def weights_below(folder):
    (file,) = folder.glob("*/*/weights.safetensors")
    return safetensors.torch.load_file(file)


def difference(folder, wanted):
    found = weights_below(folder)
    return max((found[key] - wanted[key]).abs().max().item() for key in wanted)


def checkpoints(folder):
    return [path for trial in folder.glob("*/*/checkpoints") for path in checkpoint.newest_first(trial)]


def main(root):
    signal.alarm(200)  # whatever happens, it ends
    for name in ("one", "ddp", "fsdp2", "killed"):
        (root / name).mkdir()
    assert waited(forked(root / "one")) == [0]
    wanted = weights_below(root / "one")
    told = {}
    for strategy in ("ddp", "fsdp2"):
        assert waited(forked(root / strategy, strategy, 2)) == [0, 0]
        told[strategy] = difference(root / strategy, wanted)
    survivor, victim = forked(root / "killed", "fsdp2", 2)
    while not [path for path in checkpoints(root / "killed") if path.name >= "step-000000005"]:
        time.sleep(0.001)
    os.kill(victim, signal.SIGKILL)
    started = time.monotonic()
    told["statuses"] = waited([survivor, victim])
    told["seconds"] = round(time.monotonic() - started, 2)
    told["said"] = (root / "killed" / "said-0").read_text()
    told["saved at"] = checkpoints(root / "killed")[0].name
    assert waited(forked(root / "killed")) == [0]
    told["continued on one"] = difference(root / "killed", wanted)
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
