"""The paper's segmentation and generation experiments, and forms of them that train on two cores in minutes.

What the paper leaves open, and what we chose (docs/tasks.md says why):
1. VOC: crops of 480x480, joint scale, crop, flip and colour; 60 epochs, the text's number; the encoder from scratch.
2. SPADE: 256x512, the networks and weights of its authors, without the perceptual loss, whose weights are a file of
   yours; FID by the proxy for the same reason.
"""

from dataclasses import replace

from riesz_lab.config import Config
from riesz_lab.recipes.paper import SGD, by_name


def voc_unet50() -> Config:
    """SGD on U-Net with a ResNet-50 encoder."""
    return replace(
        SGD, recipe="voc-unet50", task="segmentation",
        dataset="voc2012", augment="scale-crop-flip-colour", height=480, width=480, fit="crop",
        model="unet", model_options=("depth=50", "width=64"),
        epochs=60, batch_size=2, lr=7e-3, eval_batch_size=1,
    )  # fmt: skip


def cityscapes_spade() -> Config:
    return replace(
        SGD, recipe="cityscapes-spade", task="generation",
        dataset="cityscapes", label_set="all", augment="flip", height=256, width=512,
        model="spade", model_options=("width=64", "hidden=128"),
        discriminator_options=("scales=2", "width=64", "layers=4"),
        epochs=100, batch_size=2, lr=1e-4, discriminator_lr=4e-4, eval_every=5, eval_first=True, eval_batch_size=2,
    )  # fmt: skip


def cityscapes_spade_adam() -> Config:
    """Adam as SPADE's authors: no first moment, and the rate held, as they hold it for their first hundred epochs."""
    adam = replace(cityscapes_spade(), optimizer="adam", optimizer_options=("betas=(0.0, 0.9)",), weight_decay=0.0)
    return replace(adam, recipe="cityscapes-spade-adam", schedule="constant")


def camvid_unet_mini() -> Config:
    """A narrow U-Net on CamVid at 96x128."""
    return replace(
        voc_unet50(), recipe="camvid-unet-mini",
        dataset="camvid", augment="flip", height=96, width=128, fit="resize",
        model_options=("depth=26", "width=16"),
        epochs=10, batch_size=4, lr=0.02, drop_every=7, eval_batch_size=50,
    )  # fmt: skip


def camvid_spade_mini() -> Config:
    """A narrow SPADE on CamVid at 64x128."""
    return replace(
        cityscapes_spade_adam(), recipe="camvid-spade-mini",
        dataset="camvid", label_set="train", height=64, width=128,
        model_options=("width=8", "hidden=16"), discriminator_options=("scales=2", "width=16", "layers=3"),
        epochs=4, batch_size=4, lr=1e-3, discriminator_lr=4e-3, eval_every=1, eval_batch_size=50,
    )  # fmt: skip


PAPER = by_name(voc_unet50, cityscapes_spade, cityscapes_spade_adam)
MINI = by_name(camvid_unet_mini, camvid_spade_mini)
