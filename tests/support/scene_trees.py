"""Small trees in the exact public layouts of PascalVOC, Cityscapes and CamVid."""

import io
import zipfile

import numpy as np
from PIL import Image

from riesz_lab.data.scenes import voc2012
from riesz_lab.data.scenes.labels import voc_colours


def blocks(height, width, values, seed):
    """A mask of 8x8 blocks, each of one value, so that resizing leaves something to see."""
    chance = np.random.default_rng(seed)
    small = chance.choice(np.array(values, np.uint8), (-(-height // 8), -(-width // 8)))
    return np.kron(small, np.ones((8, 8), np.uint8))[:height, :width]


def image_of(mask, seed):
    """An image that follows from its mask, with noise: something to learn."""
    chance = np.random.default_rng(seed)
    colours = np.random.default_rng(0).integers(0, 256, (256, 3))
    return np.clip(colours[mask] + chance.normal(0, 10, (*mask.shape, 3)), 0, 255).astype(np.uint8)


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


def write_voc(folder, train=4, val=3, size=(40, 56)):
    """VOCdevkit/VOC2012 with palette masks, 0..20 and 255."""
    root = folder / "VOCdevkit" / "VOC2012"
    names = {"train": [f"2007_{i:06d}" for i in range(train)], "val": [f"2008_{i:06d}" for i in range(val)]}
    palette = [channel for colour in voc_colours(256) for channel in colour]
    for split, found in names.items():
        listing = root / "ImageSets" / "Segmentation" / f"{split}.txt"
        listing.parent.mkdir(parents=True, exist_ok=True)
        listing.write_text("".join(f"{name}\n" for name in found))
        for i, name in enumerate(found):
            # Sizes differ from image to image, as in the original.
            mask = blocks(size[0] + i, size[1] - i, [*range(len(voc2012.NAMES)), 255], seed=i)
            save(root / "JPEGImages" / f"{name}.jpg", image_of(mask, i))
            picture = Image.fromarray(mask)
            picture.putpalette(palette)
            target = root / "SegmentationClass" / f"{name}.png"
            target.parent.mkdir(exist_ok=True)
            picture.save(target)
    return root


def write_cityscapes(folder, train=4, val=3, size=(64, 128)):
    for split, count, city in (("train", train, "aachen"), ("val", val, "frankfurt")):
        for i in range(count):
            name = f"{city}_{i:06d}_{i + 10:06d}"
            mask = blocks(*size, range(34), seed=i)
            objects = mask.astype(np.uint16)
            # Cars and the like are numbered: labelId * 1000 + number.
            objects[mask >= 24] = mask[mask >= 24].astype(np.uint16) * 1000 + i
            save(folder / "leftImg8bit" / split / city / f"{name}_leftImg8bit.png", image_of(mask, i))
            save(folder / "gtFine" / split / city / f"{name}_gtFine_labelIds.png", mask)
            save(folder / "gtFine" / split / city / f"{name}_gtFine_instanceIds.png", objects)
    return folder


def write_camvid(folder, train=6, val=2, test=4, size=(36, 48), zipped=False):
    for split, count in (("train", train), ("val", val), ("test", test)):
        for i in range(count):
            mask = blocks(*size, range(12), seed=i)
            save(folder / split / f"{split}{i:03d}.jpg", image_of(mask, i))
            save(folder / f"{split}annot" / f"{split}{i:03d}.png", mask)
    if zipped:
        zip_up(folder)
    return folder


def zip_up(folder):
    """train.zip, val.zip and test.zip instead of their folders."""
    import shutil

    for split in ("train", "val", "test"):
        with zipfile.ZipFile(folder / f"{split}.zip", "w") as archive:
            for kind in (split, f"{split}annot"):
                for file in sorted((folder / kind).iterdir()):
                    archive.write(file, f"{kind}/{file.name}")
                shutil.rmtree(folder / kind)


def write_pairs(folder, count=4, classes=("ground", "sky", "thing")):
    for split in ("train", "test"):
        for i in range(count):
            mask = blocks(32, 32, [*range(len(classes)), 255], seed=i)
            save(folder / split / "images" / f"{i}.png", image_of(mask, i))
            save(folder / split / "masks" / f"{i}.png", mask)
    (folder / "classes.txt").write_text("\n".join(classes) + "\n")
    return folder


def png(array):
    out = io.BytesIO()
    Image.fromarray(array).save(out, "PNG")
    return out.getvalue()
