"""Write images by class, `SOURCE/{train,test}/<class>/<image>.jpg`, as the binary release of CIFAR-10.

    python benchmarks/pack_cifar10.py SOURCE TARGET

TARGET/cifar-10-batches-bin then loads in a fraction of a second. Images are shuffled, once and for all, because the
batches of the release are.
"""

import sys
from pathlib import Path

import torch

from riesz_lab.data.images import cifar10, folder


def main(source: Path, target: Path) -> None:
    out = target / "cifar-10-batches-bin"
    out.mkdir(parents=True, exist_ok=True)
    for split, names in cifar10.BATCHES.items():
        images = folder.load(source / split, cifar10.SIDE)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        pixels = images.images_NHWC[order].permute(0, 3, 1, 2).reshape(len(images), -1)
        records = torch.cat([images.labels_N[order].to(torch.uint8)[:, None], pixels], 1)
        for name, part in zip(names, records.split(cifar10.RECORDS), strict=True):
            (out / f"{name}.bin").write_bytes(part.contiguous().numpy().tobytes())
            print(f"{out / name}.bin: {len(part)} images")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
