"""Datasets: whole, in memory, as uint8 images_NHWC; or anything that is a `torch.utils.data.Dataset`.

Shape suffixes: N images, H height, W width, C channels.
"""

from riesz_lab.data.catalog import DATASETS, check, data_folder, load
from riesz_lab.data.types import Data, Images

__all__ = ["DATASETS", "Data", "Images", "check", "data_folder", "load"]
