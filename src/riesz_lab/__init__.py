"""The lab: experiments with channel-directed gradients, from raw data to stored, repeatable trials.

recipe -> config -> trial -> store. A *recipe* is a function that returns a config; a *config* is every setting of one
*trial*; a trial's directory is the only truth about it; the *store* reads such directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riesz_lab.comparison import compare
    from riesz_lab.config import Config
    from riesz_lab.data import Data, Images
    from riesz_lab.data.scenes.labels import Labels
    from riesz_lab.data.scenes.scene import Scene, Scenes
    from riesz_lab.recipes import recipe
    from riesz_lab.store import Store
    from riesz_lab.training.hardware import Hardware
    from riesz_lab.training.trainer import Outcome, train

__all__ = [
    "Config",
    "Data",
    "Hardware",
    "Images",
    "Labels",
    "Outcome",
    "Scene",
    "Scenes",
    "Store",
    "compare",
    "recipe",
    "train",
]

_HOMES = {
    "compare": "comparison",
    "Config": "config",
    "Data": "data",
    "Images": "data",
    "Hardware": "training.hardware",
    "Labels": "data.scenes.labels",
    "Outcome": "training.trainer",
    "Scene": "data.scenes.scene",
    "Scenes": "data.scenes.scene",
    "Store": "store",
    "recipe": "recipes",
    "train": "training.trainer",
}


def __getattr__(name: str) -> Any:
    # On first use: importing torch takes seconds, and `riesz --help` should not.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"riesz_lab.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'riesz_lab' has no attribute {name!r}")
