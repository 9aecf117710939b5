"""`riesz doctor`: check versions, devices, backends and a short training; each line says ok, or what is wrong."""

from pathlib import Path

from riesz_lab.commands.parsing import parse
from riesz_lab.data.images.builtin import data_folder


def run(arguments: list[str]) -> int:
    description = "List what is installed, and test backends, devices and a short training."
    return int(parse(examine, arguments, prog="riesz doctor", description=description))


def examine(data_dir: Path | None = None, gpu: bool = False) -> int:
    """Run every check and print its outcome.

    Args:
        data_dir: folder of the datasets; RIESZ_DATA, or the user's cache, if not given.
        gpu: check and time the kernels on this machine's GPU instead, and write the figures as CSV into this folder.
    """
    # After the help: importing torch takes seconds.
    if gpu:
        from riesz_lab.commands.doctor_gpu import examine_gpu

        return examine_gpu()
    from riesz_lab.commands import doctor_checks

    wrong = 0
    for title, checks in (
        ("Packages", doctor_checks.packages()),
        ("Devices", doctor_checks.devices()),
        ("Backends", doctor_checks.backends()),
        ("Datasets", doctor_checks.datasets(data_folder(data_dir))),
        ("Training", doctor_checks.training()),
    ):
        print(title)
        for state, line in checks:
            wrong += state == "WRONG"
            print(f"  {state:<5}  {line}", flush=True)
    print("Everything needed works." if not wrong else f"{wrong} of the checks went wrong.")
    return 1 if wrong else 0
