"""`riesz doctor`: what is installed, which backends and devices work."""

from __future__ import annotations

import tyro

from riesz_lab.commands import doctor_run as doctor


def run(arguments: list[str]) -> int:
    return int(
        tyro.cli(
            doctor.examine,
            prog="riesz doctor",
            description="Tell what is installed, and test backends, devices and a short training.",
            args=arguments,
        )
    )
