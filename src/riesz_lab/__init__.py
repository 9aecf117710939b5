"""The lab: experiments with channel-directed gradients, from raw data to stored, repeatable trials.

recipe -> config -> trial -> store. A *recipe* is a function that returns a config; a *config* is every setting of one
*trial*; a trial's directory holds everything known about it; the *store* reads such directories.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riesz_lab.config import Config
    from riesz_lab.data.images.types import Data, Images
    from riesz_lab.data.scenes.labels import Labels
    from riesz_lab.data.scenes.scene import Scene, Scenes
    from riesz_lab.experiments.compare import compare
    from riesz_lab.inspection.gradients import GradientModes, gradient_modes
    from riesz_lab.recipes import recipe
    from riesz_lab.store import Store
    from riesz_lab.training.hardware import Hardware
    from riesz_lab.training.trainer import Outcome, train

_HOMES = {
    "experiments.compare": "compare",
    "config": "Config",
    "data.images.types": "Data Images",
    "data.scenes.labels": "Labels",
    "inspection.gradients": "GradientModes gradient_modes",
    "data.scenes.scene": "Scene Scenes",
    "recipes": "recipe",
    "store": "Store",
    "training.hardware": "Hardware",
    "training.trainer": "Outcome train",
}
__all__ = ["Config", "Data", "GradientModes", "Hardware", "Images", "Labels", "Outcome", "Scene", "Scenes", "Store"]
__all__ += ["compare", "gradient_modes", "recipe", "train"]


def __getattr__(name: str) -> Any:
    # On first use: importing torch takes seconds, and `riesz --help` should not.
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"riesz_lab.{home}"), name)
    raise AttributeError(f"module 'riesz_lab' has no attribute {name!r}")
