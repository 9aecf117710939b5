"""The networks have the sizes their authors publish."""

import pytest
import torch

from riesz_lab import models
from riesz_lab.errors import ConfigError

PUBLISHED = {
    # He et al., table 6: 0.27M, 0.46M, 0.66M, 0.85M, 1.7M.
    "resnet20": 269_722,
    "resnet32": 464_154,
    "resnet44": 658_586,
    "resnet56": 853_018,
    "resnet110": 1_727_962,
    # VGG with batch norm and one linear layer, as commonly fitted to CIFAR.
    "vgg11": 9_231_114,
    "vgg13": 9_416_010,
    "vgg16": 14_728_266,
    # (25 + 1) 50 + (25 * 50 + 1) 100 + (1600 + 1) 10
    "cnn": 142_410,
    # (27 + 1) 32 + (288 + 1) 64 + (576 + 1) 128 + (128 + 1) 10, and 2 (32 + 64 + 128)
    "cnn3": 94_538,
    "cnn3-norm": 94_986,
    # resnet20 without 2 * 688 of batch norm, with 688 biases and 9 scales
    "resnet20-plain": 269_043,
}


@pytest.mark.parametrize("name", models.MODELS["classification"])
def test_parameter_count_is_the_published_one(name):
    channels, side = (1, 28) if name == "cnn" else (3, 32)
    model = models.build(name, channels=channels, classes=10, seed=0)
    assert models.parameters(model) == PUBLISHED[name]
    assert model.eval()(torch.zeros(2, channels, side, side)).shape == (2, 10)


def test_resnets_count_their_layers():
    model = models.build("resnet56", channels=3, classes=10, seed=0)
    weights = [m for m in model.modules() if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear))]
    assert len(weights) == 56


def test_initial_weights_follow_from_the_seed_alone():
    def weights(seed):
        return models.build("resnet20", channels=3, classes=10, seed=seed).conv.weight

    first = weights(1)
    torch.rand(5)
    state = torch.get_rng_state()
    assert torch.equal(weights(1), first)
    assert not torch.equal(weights(2), first)
    assert torch.equal(torch.get_rng_state(), state), "building must not draw from the global generator"


def test_unknown_model_is_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'resnet56'"):
        models.check("resnet-56")


def test_shortcut_option_a_subsamples_and_pads_with_zeros():
    from riesz_lab.models.resnet import shortcut

    x = torch.randn(2, 16, 8, 8)
    padded = shortcut(x, 2, 8)
    assert torch.equal(padded[:, 8:24], x[:, :, ::2, ::2])
    assert padded[:, :8].abs().sum() == padded[:, 24:].abs().sum() == 0
