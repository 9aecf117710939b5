"""Scenes: layouts, labels, what chance does to them, and the errors a user sees."""

import random
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from riesz_lab import cli
from riesz_lab.data import files
from riesz_lab.data.files import File
from riesz_lab.data.scenes import camvid, cityscapes, voc2012
from riesz_lab.data.scenes import catalog as scene_catalog
from riesz_lab.data.scenes.batches import SceneDataset, collate
from riesz_lab.data.scenes.labels import VOID
from riesz_lab.data.scenes.scene import Pixels
from riesz_lab.data.scenes.views import View, edges
from riesz_lab.errors import BadFileError, LabError, MissingDataError
from scene_trees import blocks, png, write_camvid, write_cityscapes, write_pairs, write_voc

# -- layouts -------------------------------------------------------------------------------------------------------


def test_voc_in_its_public_layout(tmp_path):
    root = write_voc(tmp_path / "voc2012")
    found = scene_catalog.load("voc2012", tmp_path, "train")
    assert (len(found.train), len(found.test), found.labels.classes) == (4, 3, 21)
    pixels = found.train[1].read(found.labels)
    with Image.open(root / "SegmentationClass" / "2007_000001.png") as mask:
        assert mask.mode == "P"
        raw = np.asarray(mask)
    # Classes are written as they are, and 255 is void: nothing is shifted.
    assert (np.asarray(pixels.classes) == raw).all()
    assert (raw == 255).any()
    assert not found.instances
    # Without the folders of the archive around it, too.
    assert len(voc2012.scenes(root, "train")) == 4


def test_voc_colours_are_the_published_ones():
    # aeroplane, person, tvmonitor
    assert voc2012.LABELS.colours[1] == (128, 0, 0)
    assert voc2012.LABELS.colours[15] == (192, 128, 128)
    assert voc2012.LABELS.colours[20] == (0, 64, 128)


@pytest.mark.parametrize("zipped", [False, True])
def test_camvid_in_folders_and_zips(tmp_path, zipped):
    write_camvid(tmp_path / "camvid", zipped=zipped)
    found = scene_catalog.load("camvid", tmp_path, "train")
    assert (len(found.train), len(found.test), found.labels.classes) == (6, 4, 11)
    classes = np.asarray(found.train[0].read(found.labels).classes)
    assert (classes == np.where((raw := blocks(36, 48, range(12), seed=0)) == 11, VOID, raw)).all()


def test_cityscapes_in_its_public_layout_with_both_sets_of_labels(tmp_path):
    write_cityscapes(tmp_path / "cityscapes")
    raw = blocks(64, 128, range(34), seed=0)
    every = scene_catalog.load("cityscapes", tmp_path, "all")
    assert (len(every.train), len(every.test), every.labels.classes, every.instances) == (4, 3, 34, True)
    pixels = every.train[0].read(every.labels)
    assert (np.asarray(pixels.classes) == raw).all()
    assert np.asarray(pixels.objects).max() >= 24_000
    trained = scene_catalog.load("cityscapes", tmp_path, "train")
    assert trained.labels.classes == 19
    classes = np.asarray(trained.train[0].read(trained.labels).classes)
    # The benchmark's trainIds: road, sidewalk, building, sky, person, car, bicycle.
    for label, train_id in ((7, 0), (8, 1), (11, 2), (23, 10), (24, 11), (26, 13), (33, 18)):
        assert (classes[raw == label] == train_id).all()
    for label in (0, 1, 2, 3, 4, 5, 6, 9, 10, 14, 15, 16, 18, 29, 30):
        assert (classes[raw == label] == VOID).all()


def test_folders_of_your_own(tmp_path):
    write_pairs(tmp_path / "mine")
    found = scene_catalog.load("mine", tmp_path, "train")
    assert (len(found.train), found.labels.names) == (4, ("ground", "sky", "thing"))
    assert found.train[0].read(found.labels).image.size == (32, 32)


def test_hold_out_and_limits_work_as_elsewhere(tmp_path):
    write_camvid(tmp_path / "camvid")
    found = scene_catalog.load("camvid", tmp_path, "train")
    held = found.held_out(2)
    assert (len(held.train), len(held.test)) == (4, 2)
    assert set(held.train) | set(held.test) == set(found.train)
    assert len(found.limited(3, 2).train) == 3


# -- errors, as a user sees them -----------------------------------------------------------------------------------


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """`riesz train camvid-unet-mini`, small; returns (status, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*more, recipe="camvid-unet-mini"):
        status = cli.main(
            [
                *("train", recipe, "--data-dir", str(tmp_path), "--max-steps", "1", "--height", "32", "--width", "32"),
                *("--batch-size", "2", "--model-options", "depth=14", "width=2", *map(str, more)),
            ]
        )
        return status, capsys.readouterr().err

    return run


def test_missing_dataset_tells_where_to_put_it(train, tmp_path):
    for name, told in (
        ("camvid", "CamVid is not in"),
        ("voc2012", "VOCtrainval_11-May-2012.tar"),
        ("cityscapes", "leftImg8bit_trainvaltest.zip"),
    ):
        status, err = train("--dataset", name)
        assert status == 1
        assert told in err
        assert str(tmp_path / name) in err
        assert "--data-dir" in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("missing", ["trainannot", "testannot", "test"])
def test_missing_folder_is_named(train, tmp_path, missing):
    import shutil

    write_camvid(tmp_path / "camvid")
    shutil.rmtree(tmp_path / "camvid" / missing)
    status, err = train()
    assert status == 1
    assert missing in err


def test_missing_mask_is_named(train, tmp_path):
    write_camvid(tmp_path / "camvid")
    (tmp_path / "camvid" / "trainannot" / "train003.png").unlink()
    status, err = train()
    assert status == 1
    assert "train003.jpg has no counterpart in" in err


def damaged(tmp_path, relative, data):
    (tmp_path / "camvid" / relative).write_bytes(data)


@pytest.mark.parametrize(
    ("file", "data", "told"),
    [
        (
            "trainannot/train002.png",
            png(np.full((36, 48), 77, np.uint8)),
            "expected values 0 to 10, and 11 for void, got 77",
        ),
        ("trainannot/train002.png", png(np.zeros((36, 47), np.uint8)), "(48, 36), got (47, 36)"),
        (
            "trainannot/train002.png",
            png(np.zeros((36, 48, 3), np.uint8)),
            "in palette or 8-bit grey, got a RGB",
        ),
        ("train/train002.jpg", b"\xff\xd8\xff\xe0 no image", "cannot be read as an image (JPEG, PNG)"),
        ("train/train002.jpg", b"GIF89a" + bytes(100), "cannot be read as an image (JPEG, PNG)"),
        (
            "train/train002.jpg",
            png(np.zeros((2001, 2001, 3), np.uint8)),
            "at most 4,000,000 pixels, got 2001x2001",
        ),
        ("trainannot/train002.png", png(np.zeros((36, 48), np.uint8))[:50], "cannot be read as an image (PNG)"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_bad_file_is_named_and_refused(train, tmp_path, monkeypatch, file, data, told, workers):
    write_camvid(tmp_path / "camvid")
    damaged(tmp_path, file, data)
    if workers:
        # As for sets that do not fit into memory: decoded by worker processes while training.
        monkeypatch.setattr("riesz_lab.data.scenes.batches.KEEP", 0)
    status, err = train("--workers", workers, "--batch-size", "6")
    assert status == 1
    assert told in err
    assert "train002" in err
    assert "Traceback" not in err


def test_voc_list_cannot_name_files_elsewhere(tmp_path):
    root = write_voc(tmp_path)
    (root / "ImageSets" / "Segmentation" / "train.txt").write_text("../../secret\n")
    with pytest.raises(BadFileError, match="secret"):
        voc2012.scenes(tmp_path, "train")


def test_huge_member_of_a_zip_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FILE_CAP", 1000)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train/a.jpg", bytes(100_000))
    with pytest.raises(BadFileError, match="larger than 1000 bytes"):
        File(tmp_path / "x.zip", "train/a.jpg").read()


def test_damaged_zip_is_named(tmp_path):
    (tmp_path / "train.zip").write_bytes(b"PK no archive")
    with pytest.raises(BadFileError, match=r"train\.zip"):
        camvid.scenes(tmp_path, "train")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--height", "0"), "height: expected a multiple of 1, got 0"),
        (("--augment", "crop-flip"), "augment: expected none, flip, scale-crop-flip-colour for segmentation"),
        (("--model", "resnet56"), "model: expected one of unet, or your own"),
        (("--model-options", "depth=51"), "depth: expected one of 14, 26, 50, 101, 152, got 51"),
        (("--model-options", "deepth=50"), "deepth"),
        (("--pretrained", "resnet50.pth"), "weights/resnet50.pth"),
        (("--dataset", "camvit"), "did you mean 'camvid'"),
    ],
)
def test_bad_setting_is_named(train, tmp_path, options, told):
    write_camvid(tmp_path / "camvid")
    status, err = train(*options)
    assert status == 1
    assert told in err


def test_data_commands_know_scenes(tmp_path, capsys):
    write_camvid(tmp_path / "camvid")
    assert cli.main(["data", "list", "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in scene_catalog.SCENES)
    # Everything decodes, and the numbers are not the published ones.
    assert cli.main(["data", "verify", "camvid", "--data-dir", str(tmp_path)]) == 1
    assert "6 scenes, 0 of them wrong; published: 367" in capsys.readouterr().out
    damaged(tmp_path, "testannot/test001.png", b"nothing")
    assert cli.main(["data", "verify", "camvid", "--data-dir", str(tmp_path)]) == 1
    assert "test001.png cannot be read" in capsys.readouterr().out
    assert cli.main(["data", "fetch", "cityscapes", "--data-dir", str(tmp_path)]) == 1
    assert "cityscapes-dataset.com" in capsys.readouterr().err


# -- views and batches ---------------------------------------------------------------------------------------------


@pytest.fixture
def scenes(tmp_path):
    write_camvid(tmp_path / "camvid")
    return scene_catalog.load("camvid", tmp_path, "train")


def keys_of(scenes):
    return [[(i, 1000 + i) for i in range(3)], [(i, 2000 + i) for i in range(3, 6)]]


@pytest.mark.parametrize("resize", [False, True])
def test_workers_and_memory_give_the_same_batches(scenes, monkeypatch, resize):
    view = View(32, 40, resize, augment="scale-crop-flip-colour")
    kept = list(SceneDataset(scenes.train, scenes.labels, view).batches(keys_of(scenes), 0))
    monkeypatch.setattr("riesz_lab.data.scenes.batches.KEEP", 0)
    before = torch.get_rng_state(), random.getstate()
    worked = list(SceneDataset(scenes.train, scenes.labels, view).batches(keys_of(scenes), 2))
    for a, b in zip(kept, worked, strict=True):
        assert torch.equal(a.images_NHWC, b.images_NHWC)
        assert torch.equal(a.labels_NHW, b.labels_NHW)
    # And no draw is taken from the generators whose state a checkpoint holds.
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_augmentation_moves_image_and_mask_together():
    mask = blocks(64, 64, range(8), seed=1)
    grey = np.repeat((mask * 30)[..., None], 3, 2).astype(np.uint8)
    pixels = Pixels(Image.fromarray(grey), Image.fromarray(mask), None)
    for seed in range(20):
        seen = View(64, 64, False, augment="flip").then(pixels, seed)
        assert (np.asarray(seen.image)[..., 0] == np.asarray(seen.classes) * 30).all()
    moved = View(48, 80, False, augment="scale-crop-flip-colour")
    different = {moved.then(pixels, seed).classes.tobytes() for seed in range(20)}
    assert len(different) == 20
    for seed in range(20):
        seen = moved.then(pixels, seed)
        assert seen.image.size == seen.classes.size == (80, 48)
        assert set(np.unique(seen.classes)) <= {*range(8), VOID}


def test_same_seed_same_view(scenes):
    view = View(32, 40, True, augment="scale-crop-flip-colour")
    dataset = SceneDataset(scenes.train, scenes.labels, view)
    assert torch.equal(dataset[0, 5].images_NHWC, dataset[0, 5].images_NHWC)
    assert not torch.equal(dataset[0, 5].images_NHWC, dataset[0, 6].images_NHWC)


def test_whole_scenes_of_different_sizes_are_filled_up_with_void(tmp_path):
    write_voc(tmp_path)
    found = voc2012.scenes(tmp_path, "test")
    dataset = SceneDataset(found, voc2012.LABELS, View(32, 32, False, whole=True))
    alone = [dataset[i, 0] for i in range(3)]
    batch = collate(alone)
    assert batch.labels_NHW.shape == (3, 42, 56)
    assert batch.pixels == sum(one.pixels for one in alone) == int((batch.labels_NHW != VOID).sum())
    assert (batch.labels_NHW[0, 40:] == VOID).all()


def test_edges_lie_on_both_sides_of_a_border():
    objects = np.array([[1, 1, 2], [1, 1, 2], [3, 3, 3]])
    assert edges(objects).tolist() == [[False, True, True], [True, True, True], [True, True, True]]
    assert not edges(np.ones((4, 5), int)).any()


def test_label_map_is_complete():
    assert len(cityscapes.LABEL_MAP) == 34
    assert sum(trained for _, _, trained in cityscapes.LABEL_MAP) == 19


def test_own_dataset_must_return_scenes(tmp_path):
    with pytest.raises(LabError, match=r"expected riesz_lab\.Scenes, got Data"):
        scene_catalog.load("lab_helpers:small_data", tmp_path, "train")
    write_pairs(tmp_path / "mine")
    (tmp_path / "mine" / "classes.txt").unlink()
    with pytest.raises(MissingDataError, match=r"classes\.txt"):
        scene_catalog.load("mine", tmp_path, "train")
