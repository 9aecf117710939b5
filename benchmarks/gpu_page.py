"""Writes what docs/gpu.md shows of the GPU backend: tables computed from stored results and from the model.

`python -m benchmarks.gpu_page` replaces the text between `<!-- NAME -->` and `<!-- end of NAME -->`. Figures that users
measured with `riesz doctor --gpu` are shown by docs/benchmarks.md, under the name of the device.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from benchmarks import gpu, gpu_compile, inductor
from benchmarks.gpu import markdown
from benchmarks.harness import RESULTS
from benchmarks.host import load as load_host

PAGE = Path(__file__).parent.parent / "docs" / "gpu.md"


def compiled() -> str:
    rows = gpu_compile.load()
    spilling = [row for row in rows if row.spills]
    scalars = [row for row in rows if row.scalars]
    versions = ", ".join(sorted({row.triton for row in rows}))
    lines = [
        f"{len(rows)} compilations by Triton {versions}: {len(spilling)} spill to memory, "
        f"{sum(not row.owned for row in rows)} let two threads of a program hold the same entry. "
        f"{len(scalars)} of gfx942 keep up to {max((row.scalars for row in scalars), default=0)} scalar registers in "
        "lanes of vector registers, which costs no memory.",
        *(f"- spills {row.spills} bytes: {row.target} {row.kernel} {row.dtype} {row.name}" for row in spilling),
        "",
        markdown(gpu_compile.HEAD, gpu_compile.summary(rows)),
    ]
    return "\n".join(lines)


def kernels() -> str:
    head = ("network", "metric", "gradients", "shapes", "operators of eager", "kernels generated", "library calls")
    rows = [(k.network, k.metric, *map(str, (k.gradients, k.shapes, k.operators, k.generated, k.external)))
            for k in inductor.load()]  # fmt: skip
    return markdown(head, rows)


def host() -> str:
    head = ("hook, ResNet-56, 55 gradients", "least us", "median us", "steps")
    return markdown(head, [(row.name, f"{row.least:.0f}", f"{row.median:.0f}", str(row.steps)) for row in load_host()])


SECTIONS = {
    "traffic": gpu.variants_table,
    "times": gpu.times_table,
    "host": host,
    "compiled": compiled,
    "inductor": kernels,
}


def filled(page: str, name: str, text: str) -> str:
    """The page with the text of one section replaced."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end of {name} -->)", re.S)
    result, count = pattern.subn(lambda match: f"{match[1]}\n{text}\n{match[2]}", page)
    if count != 1:
        raise ValueError(f"expected one section {name!r} in the page, got {count}")
    return result


def devices(folder: Path = RESULTS) -> str:
    """What users measured, one section per `gpu-<device>.csv`; "Not yet measured." while there is none."""
    sections = []
    for path in sorted(folder.glob("gpu-*.csv")):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        errors = [float(row["value"]) for row in rows if row["what"] == "error/tolerance"]
        # A wrong result may be not a number, which compares with nothing.
        wrong = sum(not error <= 1 for error in errors)
        figures = [row for row in rows if row["what"] != "error/tolerance"]
        table = markdown(
            ("what", "of", "where", "value"),
            [
                (row["what"], row["who"], row["where"], f"{float(row['value']):.3f} {row['unit']}".strip())
                for row in figures
            ],
        )
        head = f"### {rows[0]['device']}\n\n{rows[0]['versions']}. "
        sections.append(f"{head}{len(errors)} comparisons with the reference, {wrong} wrong.\n\n{table}")
    return "\n\n".join(sections) or "Not yet measured."


def main() -> None:
    page = PAGE.read_text()
    for name, section in SECTIONS.items():
        page = filled(page, name, section())
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
