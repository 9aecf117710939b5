"""Load and verify datasets of scenes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from riesz_lab.data.scenes import camvid, cityscapes, pairs, voc2012
from riesz_lab.data.scenes.builtin import SCENES
from riesz_lab.data.scenes.labels import Labels
from riesz_lab.data.scenes.scene import Scene, Scenes
from riesz_lab.errors import ConfigError, LabError, MissingDataError, unknown
from riesz_lab.utils.importing import load_object


@dataclass(frozen=True)
class Reader:
    """How a built-in dataset is read."""

    labels: Callable[[str], Labels]  # its classes, for a label set: "train" or "all"
    scenes: Callable[[Path, str], tuple[Scene, ...]]  # from a folder and a split to its scenes


READERS = {
    "camvid": Reader(lambda _: camvid.LABELS, camvid.scenes),
    "voc2012": Reader(lambda _: voc2012.LABELS, voc2012.scenes),
    "cityscapes": Reader(cityscapes.labels, cityscapes.scenes),
}


def load(name: str, folder: Path, label_set: str) -> Scenes:
    """The scenes of a built-in dataset, of a folder of images and masks, or of the user's function by import path.

    Nothing is decoded, so this is cheap enough to run before any work starts.
    """
    if ":" in name:
        scenes = load_object("dataset", name)()
        if not isinstance(scenes, Scenes):
            raise LabError(f"dataset {name!r}: expected riesz_lab.Scenes, got {type(scenes).__name__}")
        return scenes
    if name in SCENES:
        try:
            train, test = (READERS[name].scenes(folder / name, split) for split in ("train", "test"))
        except MissingDataError as error:
            layout = SCENES[name].by_hand.format(folder=folder / name)
            raise MissingDataError(
                f"{error}. To put it there by hand: {layout}. If it is elsewhere, use --data-dir DIR or RIESZ_DATA"
            ) from None
        return Scenes(train, test, READERS[name].labels(label_set))
    if (folder / name / "train").is_dir():
        return pairs.load(folder / name)
    own = f"a folder {folder / name} with {{train,test}}/{{images,masks}}, or your own as 'package.module:function' "
    raise ConfigError(unknown("dataset", name, SCENES, other=f"{own}returning riesz_lab.Scenes"))


def verify(name: str, folder: Path) -> Iterator[tuple[str, bool, str]]:
    """Decode every file: per split, whether all are right; wrong ones are named."""
    for split, expected in zip(("train", "test"), SCENES[name].images, strict=True):
        try:
            scenes = READERS[name].scenes(folder / name, split)
        except LabError as error:
            yield split, False, str(error)
            continue
        wrong = 0
        for scene in scenes:
            try:
                scene.read(READERS[name].labels("all"))
            except LabError as error:
                wrong += 1
                yield split, False, str(error)
        right = not wrong and len(scenes) == expected
        yield split, right, f"{len(scenes)} scenes, {wrong} of them wrong; published: {expected}"
