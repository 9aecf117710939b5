"""Datasets in their public formats, and batches that follow from (seed, epoch) alone."""

import pytest
import torch
from torch.utils.data import Dataset

from lab_helpers import images, small_data, write_cifar_bin, write_cifar_folder, write_cifar_py, write_idx
from riesz_lab import cli
from riesz_lab.data.images import batches, catalog, cifar10
from riesz_lab.data.images.catalog import check, load
from riesz_lab.data.images.types import Data
from riesz_lab.errors import BadFileError, ConfigError, LabError, MissingDataError


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("zipped", [True, False])
def test_reads_idx_gzip_or_plain(tmp_path, name, zipped):
    write_idx(tmp_path / name, zipped=zipped)
    check(name, tmp_path)
    data = load(name, tmp_path)
    wanted = images(100, seed=0)
    assert torch.equal(data.train.images_NHWC, wanted.images_NHWC)
    assert torch.equal(data.train.labels_N, wanted.labels_N)
    assert len(data.test) == 40


@pytest.mark.parametrize("write", [write_cifar_bin, write_cifar_py])
def test_reads_both_releases_of_cifar10(tmp_path, monkeypatch, write):
    monkeypatch.setattr(cifar10, "RECORDS", 20)
    write(tmp_path / "cifar10", 20)
    check("cifar10", tmp_path)
    data = load("cifar10", tmp_path)
    wanted = images(20, 32, 3, seed=0)
    assert len(data.train) == 100
    assert torch.equal(data.train.images_NHWC[:20], wanted.images_NHWC)
    assert torch.equal(data.train.labels_N[:20], wanted.labels_N)
    assert torch.equal(data.test.images_NHWC, images(20, 32, 3, seed=5).images_NHWC)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_reads_the_python_release_in_every_protocol(tmp_path, monkeypatch, protocol):
    monkeypatch.setattr(cifar10, "RECORDS", 5)
    write_cifar_py(tmp_path, 5, protocol)
    assert torch.equal(cifar10.load(tmp_path, "test").images_NHWC, images(5, 32, 3, seed=5).images_NHWC)


def test_reads_an_image_folder_by_class(tmp_path):
    write_cifar_folder(tmp_path / "cifar10")
    data = load("cifar10", tmp_path)
    wanted = images(20, 32, 3, seed=0)
    order = torch.argsort(wanted.labels_N, stable=True)
    assert torch.equal(data.train.labels_N, wanted.labels_N[order])
    assert torch.equal(data.train.images_NHWC, wanted.images_NHWC[order])


def test_mnist5k_is_balanced_and_needs_no_files(tmp_path):
    data = load("mnist5k", tmp_path)
    assert data.train.labels_N.bincount().tolist() == [400] * 10
    assert data.test.labels_N.bincount().tolist() == [100] * 10
    assert data.train.images_NHWC.shape == (4000, 28, 28, 1)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_missing_data_is_named_with_the_way_to_get_it(tmp_path, name):
    with pytest.raises(MissingDataError) as error:
        check(name, tmp_path)
    assert str(tmp_path / name) in str(error.value)
    assert f"riesz data fetch {name}" in str(error.value)


def test_unknown_dataset_is_refused_with_a_suggestion(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'fashion-mnist'"):
        check("fashion_mnist", tmp_path)


def test_order_follows_from_seed_and_epoch_alone():
    first = batches.epoch_order(3, 7, 50)
    torch.rand(3)
    assert torch.equal(batches.epoch_order(3, 7, 50), first)
    assert not torch.equal(batches.epoch_order(3, 8, 50), first)
    assert not torch.equal(batches.epoch_order(4, 7, 50), first)
    assert torch.equal(first.sort().values, torch.arange(50))


def test_crop_flip_is_what_it_says_image_by_image():
    pixels = images(60, 32, 3).images_NHWC
    draws = batches.epoch_draws(0, 0, 60)
    made = batches.crop_flip(pixels, draws)
    for n in range(60):
        down, right, flip = draws[n].tolist()
        padded = torch.zeros(40, 40, 3, dtype=torch.uint8)
        padded[4:36, 4:36] = pixels[n]
        wanted = padded[down : down + 32, right : right + 32]
        assert torch.equal(made[n], wanted.flip(1) if flip else wanted)


def test_draws_cover_every_shift_and_both_flips():
    draws = batches.epoch_draws(0, 0, 2000)
    assert sorted(set(draws[:, 0].tolist())) == sorted(set(draws[:, 1].tolist())) == list(range(9))
    assert 900 < draws[:, 2].sum() < 1100


@pytest.mark.parametrize("channels_last", [True, False])
def test_batches_are_normalised_and_in_the_wanted_memory_format(channels_last):
    data = small_data(channels=3, side=32)
    source = batches.source(data.train, data, augment="none", device=torch.device("cpu"), channels_last=channels_last)
    ((x, y),) = source.batches([torch.tensor([4, 2, 9])], None)
    raw = data.train.images_NHWC[[4, 2, 9]].permute(0, 3, 1, 2)
    assert torch.allclose(x, (raw / 255 - 0.5) / 0.25, atol=1e-6)
    assert x.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    assert y.tolist() == [4, 2, 9]


def test_limits_and_hold_out_take_the_same_images_every_time():
    data = small_data()
    assert torch.equal(data.limited(30, 10).train.labels_N, data.limited(30, 10).train.labels_N)
    held = data.held_out(20)
    assert (len(held.train), len(held.test)) == (100, 20)
    together = torch.cat([held.train.images_NHWC, held.test.images_NHWC]).flatten(1).sum(1).sort().values
    assert torch.equal(together, data.train.images_NHWC.flatten(1).sum(1).sort().values)
    with pytest.raises(ConfigError, match="hold_out: expected fewer than the 120"):
        data.held_out(120)


class Own(Dataset):
    classes = ("even", "odd")

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((3, 8, 8), float(index)), index % 2


def test_any_dataset_works_in_place_of_a_builtin_one():
    data = catalog.from_pair(Own(), Own())
    assert (data.classes, data.channels) == (2, 3)
    source = batches.source(data.train, data, augment="none", device=torch.device("cpu"), channels_last=True)
    state = torch.get_rng_state()
    ((x, y),) = source.batches([torch.tensor([5, 8])], None)
    assert x[:, 0, 0, 0].tolist() == [5, 8]
    assert y.tolist() == [1, 0]
    assert torch.equal(torch.get_rng_state(), state), "loading must not draw from the global generator"


def test_a_dataset_by_import_path_must_return_data(tmp_path):
    with pytest.raises(ConfigError, match="cannot be imported"):
        check("no_such_module_here:build", tmp_path)
    with pytest.raises(LabError, match="got OrderedDict"):
        load("collections:OrderedDict", tmp_path)


def test_augmenting_a_users_dataset_is_refused():
    data = Data(train=Own(), test=Own(), classes=2, channels=3)
    with pytest.raises(LabError, match="augment: expected 'none' for a Dataset"):
        batches.source(data.train, data, augment="crop-flip", device=torch.device("cpu"), channels_last=True)


def test_packed_images_are_those_of_the_folder_in_another_order(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cifar10, "BATCHES", {"train": ("data_batch_1",), "test": ("test_batch",)})
    monkeypatch.setattr(cifar10, "RECORDS", 20)
    write_cifar_folder(tmp_path / "source")
    assert cli.main(["data", "pack", "cifar10", str(tmp_path / "source"), "--data-dir", str(tmp_path / "data")]) == 0
    assert "data_batch_1.bin" in capsys.readouterr().out
    assert cifar10.layout(tmp_path / "data" / "cifar10") == "bin"
    source, packed = (cifar10.load(folder, "train") for folder in (tmp_path / "source", tmp_path / "data" / "cifar10"))
    pairs = [
        sorted((int(label), image.numpy().tobytes()) for image, label in zip(*split, strict=True))
        for split in ((s.images_NHWC, s.labels_N) for s in (source, packed))
    ]
    assert pairs[0] == pairs[1]
    assert not torch.equal(source.images_NHWC, packed.images_NHWC)


def test_a_folder_with_too_few_images_is_not_packed(tmp_path):
    write_cifar_folder(tmp_path / "source")
    with pytest.raises(BadFileError, match=r"expected 50000 images in .*, got 20"):
        cifar10.pack(tmp_path / "source", tmp_path / "cifar10")
