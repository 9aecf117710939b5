"""`riesz demo`."""

from __future__ import annotations

import tyro

from riesz_lab.commands import demo_run as demo
from riesz_lab.utils.malloc import keep_freed_memory


def run(arguments: list[str]) -> int:
    keep_freed_memory()
    tyro.cli(demo.demo, prog="riesz demo", description=demo.__doc__, args=arguments)
    return 0
