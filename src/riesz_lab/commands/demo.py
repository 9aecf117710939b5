"""`riesz demo`."""

from __future__ import annotations

import tyro

from riesz_lab import demo


def run(arguments: list[str]) -> int:
    tyro.cli(demo.demo, prog="riesz demo", description=demo.__doc__, args=arguments)
    return 0
