"""Datasets: whole, in memory, as uint8 images_NHWC; or anything that is a `torch.utils.data.Dataset`.

Images with a class per pixel are scenes (`scene.py`): one file per public layout, `scene_catalog.py` knows them all,
`views.py` says how a network sees them, `scene_batches.py` decodes them.

Shape suffixes: N images, H height, W width, C channels.
"""

from riesz_lab.data.images.catalog import DATASETS, check, data_folder, load
from riesz_lab.data.images.types import Data, Images

__all__ = ["DATASETS", "Data", "Images", "check", "data_folder", "load"]
