"""CamVid as SegNet's authors prepared it: 367, 101 and 233 street scenes, 11 classes, 11 is void. Either

    {train,val,test}/<name>.png  and  {train,val,test}annot/<name>.png

below one folder, or the same inside train.zip, val.zip and test.zip. Images may be JPEG or PNG.
"""

from pathlib import Path, PurePosixPath

from riesz_lab.data import files
from riesz_lab.data.files import File
from riesz_lab.data.scenes import pairs
from riesz_lab.data.scenes.labels import plain
from riesz_lab.data.scenes.scene import Scene
from riesz_lab.errors import MissingDataError

LABELS = plain(
    ("sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "bicyclist"),
    (
        (128, 128, 128), (128, 0, 0), (192, 192, 128), (128, 64, 128), (60, 40, 222), (128, 128, 0),
        (192, 128, 128), (64, 64, 128), (64, 0, 128), (64, 64, 0), (0, 128, 192),
    ),
    void=11,
)  # fmt: skip


def scenes(folder: Path, split: str) -> tuple[Scene, ...]:
    archive = folder / f"{split}.zip"
    if (folder / split).is_dir():
        return pairs.paired(folder / split, folder / f"{split}annot")
    if archive.is_file():
        return _zipped(archive, split)
    raise MissingDataError(f"CamVid is not in {folder}: expected {split}/ and {split}annot/, or {split}.zip")


def _zipped(archive: Path, split: str) -> tuple[Scene, ...]:
    folders: dict[str, dict[str, File]] = {split: {}, f"{split}annot": {}}
    for name in files.members(archive):
        path = PurePosixPath(name)
        # The last folder counts: archives are packed with and without an outer one.
        if path.suffix.lower() in files.IMAGE_SUFFIXES and path.parent.name in folders:
            folders[path.parent.name][path.stem] = File(archive, name)
    images, masks = folders.values()
    return pairs.match(images, masks, f"{archive}, {split}/", f"{archive}, {split}annot/")
