"""Datasets of images (one class each, in memory as uint8 images_NHWC, or any `torch.utils.data.Dataset`) and of scenes
(one class per pixel). In both rooms `catalog` lists the built-in ones and `batches` feeds them to a task.

Shape suffixes: N images, H height, W width, C channels.
"""

from riesz_lab.data.images.catalog import DATASETS, check, data_folder, load
from riesz_lab.data.images.types import Data, Images

__all__ = ["DATASETS", "Data", "Images", "check", "data_folder", "load"]
