"""What several models share: He initialisation, stacks of 3x3 convs, spectral norm in parts, checks of options."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList


def he_init(model: nn.Module) -> None:
    """He initialisation of every conv weight, by fan-out; biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def conv_stack(channels: int, filters: Iterable[int], *, norm: bool) -> nn.Sequential:
    """3x3 convs with this many filters, each with batch norm if wanted, and ReLU; 0 stands for a 2x2 max pooling."""
    layers: list[nn.Module] = []
    for outputs in filters:
        if outputs == 0:
            layers.append(nn.MaxPool2d(2))
            continue
        layers.append(nn.Conv2d(channels, outputs, 3, padding=1))
        if norm:
            layers.append(nn.BatchNorm2d(outputs))
        # In place only after batch norm, whose output nothing else reads.
        layers.append(nn.ReLU(inplace=norm))
        channels = outputs
    return nn.Sequential(*layers)


@contextmanager
def held_spectral_norms(models: Iterable[nn.Module]) -> Iterator[None]:
    """Keep spectral norm's estimates: a batch in parts takes one step of power iteration, not one for each part."""
    # In evaluation, spectral norm alone of torch's parametrisations does something else than in training.
    links = [link for model in models for m in model.modules() if isinstance(m, ParametrizationList) for link in m]
    training = [link for link in links if link.training]
    for norm in training:
        norm.eval()
    try:
        yield
    finally:
        for norm in training:
            norm.train()


def check_positive(**options: int) -> None:
    """Raise unless every option is an int of 1 or more."""
    for name, value in options.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}: expected an int of 1 or more, got {value!r}")
