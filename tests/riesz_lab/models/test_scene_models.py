"""U-Net, SPADE and its discriminator: sizes as published, weights from files, and what the metrics direct in them."""

import re

import pytest
import safetensors.torch
import torch
from torch import nn

import riesz
from hostile_checkpoints import cases
from riesz_lab import models
from riesz_lab.errors import BadFileError
from riesz_lab.models import pretrained
from riesz_lab.models.encoder import Encoder
from riesz_lab.models.patchgan import MultiscaleDiscriminator
from riesz_lab.models.perceptual import PerceptualLoss
from riesz_lab.models.spade import SPADE
from riesz_lab.utils import sandbox


def unet(**options):
    texts = tuple(f"{name}={value}" for name, value in options.items())
    return models.build("unet", channels=3, classes=5, seed=0, task="segmentation", options=texts)


def spade(**options):
    texts = tuple(f"{name}={value}" for name, value in options.items())
    return models.build("spade", channels=7, classes=3, seed=0, task="generation", options=texts)


def test_encoder_of_depth_50_has_the_published_number_of_parameters():
    # torchvision's resnet50 has 25,557,032, of them 2,049,000 in its last layer.
    with torch.device("meta"):
        assert models.parameters(Encoder(3, 50, 64)) == 25_557_032 - 2_049_000


def test_encoder_has_torchvisions_names():
    names = Encoder(3, 50, 8).state_dict()
    blocks = {1: 3, 2: 4, 3: 6, 4: 3}
    expected = {"conv1.weight"}
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected |= {f"bn1.{part}" for part in norm}
    for layer, count in blocks.items():
        for block in range(count):
            for conv in (1, 2, 3):
                expected |= {f"layer{layer}.{block}.conv{conv}.weight"}
                expected |= {f"layer{layer}.{block}.bn{conv}.{part}" for part in norm}
        expected |= {f"layer{layer}.0.downsample.0.weight"} | {f"layer{layer}.0.downsample.1.{p}" for p in norm}
    assert set(names) == expected
    # The stride is on the 3x3 conv, as in torchvision.
    encoder = Encoder(3, 50, 8)
    assert encoder.layer2[0].conv1.stride == (1, 1)
    assert encoder.layer2[0].conv2.stride == (2, 2)
    assert encoder.layer1[0].conv2.stride == (1, 1)


def test_encoder_halves_five_times():
    features = Encoder(3, 14, 4)(torch.zeros(1, 3, 64, 96))
    assert [tuple(f.shape[1:]) for f in features] == [
        (4, 32, 48),
        (16, 16, 24),
        (32, 8, 12),
        (64, 4, 6),
        (128, 2, 3),
    ]


@pytest.mark.parametrize("size", [(32, 32), (45, 70), (33, 1)])
def test_unet_answers_for_every_pixel_of_any_size(size):
    assert unet(depth=14, width=2).eval()(torch.zeros(2, 3, *size)).shape == (2, 5, *size)


@pytest.mark.parametrize("kind", ["safetensors", "pth"])
def test_pretrained_encoder_is_taken_from_a_file_with_its_last_layer_left(tmp_path, kind):
    source, target = Encoder(3, 14, 4), Encoder(3, 14, 4)
    weights = {**source.state_dict(), "fc.weight": torch.zeros(10, 128), "fc.bias": torch.zeros(10)}
    path = tmp_path / f"resnet.{kind}"
    safetensors.torch.save_file(weights, path) if kind == "safetensors" else torch.save(weights, path)
    assert not torch.equal(source.conv1.weight, target.conv1.weight)
    pretrained.load_into(target, path, extra=("fc.",))
    assert all(
        torch.equal(a, b) for a, b in zip(source.state_dict().values(), target.state_dict().values(), strict=True)
    )


def test_pretrained_weights_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "x.pth"
    torch.save(Encoder(3, 26, 4).state_dict(), path)
    with pytest.raises(BadFileError, match=r"layer1\.1\.bn1.*unknown to the network"):
        pretrained.load_into(Encoder(3, 14, 4), path)
    with pytest.raises(BadFileError, match="lacks"):
        pretrained.load_into(Encoder(3, 50, 4), path)
    torch.save(Encoder(3, 14, 8).state_dict(), path)
    with pytest.raises(BadFileError, match="expected shape"):
        pretrained.load_into(Encoder(3, 14, 4), path)
    torch.save({"model": nn.Linear(1, 1)}, path)
    with pytest.raises(BadFileError, match="holds more than numbers"):
        pretrained.load_into(Encoder(3, 14, 4), path)
    path.write_bytes(b"nothing")
    with pytest.raises(BadFileError, match=r"neither safetensors nor a file of torch\.save: it is text"):
        pretrained.load_into(Encoder(3, 14, 4), path)


@pytest.mark.parametrize("name", [name for name, _ in cases()])
def test_hostile_weights_end_in_a_clear_error(name, tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "CPU_SECONDS", 2)
    (tmp_path / name).write_bytes(dict(cases())[name])
    with pytest.raises(BadFileError, match=re.escape(name)):
        pretrained.load_into(Encoder(3, 14, 4), tmp_path / name)


def test_spade_for_cityscapes_has_the_published_size():
    # 93.0 M parameters of the generator for 35 labels and edges (Li et al., GAN Compression, table 1, GauGAN).
    count = models.count("spade", channels=36, classes=3, task="generation")
    assert round(count / 1e6, 1) == 93.0
    with torch.device("meta"):
        assert round(models.parameters(MultiscaleDiscriminator(39)) / 1e6, 1) == 5.6


@pytest.mark.parametrize("size", [(64, 128), (32, 32)])
def test_spade_makes_images_of_the_label_maps_size(size):
    images = spade(width=2, hidden=4)(torch.rand(2, 7, *size))
    assert images.shape == (2, 3, *size)
    assert images.abs().max() <= 1


def test_normalisation_follows_the_label_map_pixel_by_pixel():
    layer, x = SPADE(4, 7, 8), torch.randn(2, 4, 16, 32)
    labels = torch.zeros(2, 7, 16, 32)
    labels[:, 0] = 1
    other = labels.clone()
    other[..., 16:] = 0
    other[:, 3, :, 16:] = 1
    difference = (layer(x, labels) - layer(x, other)).abs().sum((0, 1, 2))
    # Two convs of 3x3 reach two pixels to the left of where the labels change.
    assert (difference[:14] == 0).all()
    assert (difference[14:] > 0).all()
    # Without anything from the labels it is plain batch norm.
    for conv in (layer.gamma, layer.beta):
        nn.init.zeros_(conv.weight)
        nn.init.zeros_(conv.bias)
    assert torch.allclose(layer(x, labels), nn.functional.batch_norm(x, None, None, training=True))


def test_discriminator_judges_at_every_scale_and_keeps_its_features():
    found = MultiscaleDiscriminator(10, scales=3, width=4, layers=3)(torch.zeros(2, 10, 64, 128))
    assert [len(scale) for scale in found] == [4, 4, 4]
    assert all(scale[-1].shape[:2] == (2, 1) for scale in found)
    assert found[1][0].shape[-1] < found[0][0].shape[-1]


def test_perceptual_loss_reads_torchvisions_vgg19(tmp_path):
    generator = torch.Generator().manual_seed(0)
    shapes, inputs, number = {}, 3, 0
    for filters in (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512, 512, 512, 512, 0):
        if filters:
            shapes[f"features.{number}"] = (filters, inputs)
            inputs = filters
        number += 2 if filters else 1
    weights = {f"{name}.bias": torch.zeros(o) for name, (o, _) in shapes.items()}
    weights |= {f"{n}.weight": torch.randn(o, i, 3, 3, generator=generator) * 0.02 for n, (o, i) in shapes.items()}
    weights |= {"classifier.0.weight": torch.zeros(1)}
    safetensors.torch.save_file(weights, tmp_path / "vgg19.safetensors")
    loss = PerceptualLoss(tmp_path / "vgg19.safetensors")
    a, b = torch.rand(2, 1, 3, 32, 32, generator=generator).requires_grad_().unbind()
    assert loss(a, a) == 0
    assert loss(a, b) > 0
    assert not any(p.requires_grad for p in loss.parameters())


@pytest.mark.parametrize("metric", [riesz.SobolevTilde(), riesz.ReweightedL2()])
def test_report_is_right_on_transposed_and_1x1_convs(metric):
    model = unet(depth=14, width=4)
    report = riesz.attach(torch.optim.SGD(model.parameters(), lr=0.1), model, metric=metric).report()
    found = {record.name: record for record in report}
    convs = {
        f"{name}.weight": module
        for name, module in model.named_modules()
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d))
    }
    assert {name for name, record in found.items() if record.applied} == set(convs)
    for name, module in convs.items():
        dim = int(isinstance(module, nn.ConvTranspose2d))
        assert found[name].axis == dim
        assert module.weight.shape[dim] == module.out_channels


def test_report_is_right_on_spectral_norm_and_one_channel():
    generator, discriminator = spade(width=2, hidden=4), MultiscaleDiscriminator(10, scales=1, width=4, layers=3)
    for model in (generator, discriminator):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = {r.name: r for r in riesz.attach(optimizer, model, metric=riesz.SobolevTilde()).report()}
        normed = [name for name in found if name.endswith("parametrizations.weight.original")]
        assert normed
        assert all(found[name].applied and found[name].axis == 0 for name in normed)
        # What is trained is the original alone: no computed weight and no estimate of its norm is directed.
        assert not any("_u" in name or "_v" in name for name in found)
    verdict = found["scales.0.stages.3.0.weight"]
    assert not verdict.applied
    assert "length 1" in verdict.reason


def test_what_is_directed_is_the_gradient_of_the_original():
    """Under ReweightedL2: the directed gradient of a spectrally normed weight is the metric's of its own gradient."""
    model = spade(width=2, hidden=4)
    conv = model.blocks[0].conv_0
    original = conv.parametrizations.weight.original
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    metric = riesz.ReweightedL2()
    riesz.attach(optimizer, model, metric=metric)
    model(torch.rand(2, 7, 32, 32)).square().mean().backward()
    plain, before = original.grad.clone(), original.detach().clone()
    optimizer.step()
    expected = metric.gradient(plain)
    assert torch.allclose(original.grad, expected, rtol=1e-4, atol=1e-9)
    assert torch.allclose(original, before - 0.1 * expected, rtol=1e-4, atol=1e-9)
