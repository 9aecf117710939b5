"""What riesz is compared with: the paper's formulas in eager torch, FFTs, two packages, torch's own optimizer step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Run = Callable[[], object]


def paper_tilde(grads: list[Tensor], lam: float = 1.0) -> Run:
    """The paper's H1-tilde gradient as it is printed, by cumulative sums, plus the ordinary gradient."""

    def run() -> None:
        for f in grads:
            n = f.shape[0]
            t = (torch.arange(n, dtype=f.dtype) / n).view(-1, *[1] * (f.dim() - 1))
            mean = f.mean(0)
            fd = f - mean
            slope = -(t * fd).mean(0) / lam
            start = mean + ((t * t - t) * fd).mean(0) / (2 * lam)
            inner = torch.cumsum(fd, 0)
            outer = torch.cumsum(inner, 0) - inner
            f.add_(start + slope * t - outer / (lam * n * n))

    return run


def paper_reweighted(grads: list[Tensor], lam: float = 1.0) -> Run:
    """The one line of the paper's figure."""

    def run() -> None:
        for f in grads:
            f.copy_(f + lam * f.mean(0, keepdim=True))

    return run


def fft_along_output(grads: list[Tensor], symbols: dict[int, Tensor]) -> Run:
    """The same operator through its eigenvalues, computed beforehand, in the best form: a real transform."""

    def run() -> None:
        for f in grads:
            n = f.shape[0]
            symbol = symbols[n].view(-1, *[1] * (f.dim() - 1))
            f.copy_(torch.fft.irfft(torch.fft.rfft(f, dim=0) * symbol, n=n, dim=0))

    return run


def fft_ls_sgd_along_output(grads: list[Tensor], spectra: dict[int, Tensor]) -> Run:
    """LS-SGD's own way, a complex transform and a division, taken along the output axis."""

    def run() -> None:
        for f in grads:
            spectrum = spectra[f.shape[0]].view(-1, *[1] * (f.dim() - 1))
            f.copy_(torch.fft.ifft(torch.fft.fft(f, dim=0) / spectrum, dim=0).real)

    return run


def fft_ls_sgd(grads: list[Tensor], sigma: float = 1.0) -> Run:
    """LS-SGD: each gradient flattened, divided by the spectrum of 1 - sigma D, which is computed beforehand."""
    spectra = []
    for f in grads:
        stencil = torch.zeros(f.numel())
        stencil[0], stencil[1], stencil[-1] = -2, 1, 1
        spectra.append(1 - sigma * torch.fft.fft(stencil))

    def run() -> None:
        for f, spectrum in zip(grads, spectra, strict=True):
            f.copy_(torch.fft.ifft(torch.fft.fft(f.view(-1)) / spectrum).real.view_as(f))

    return run


def torchzero_smoothing(grads: list[Tensor], sigma: float = 1.0) -> Run | None:
    """torchzero's function on parameters that hold these gradients."""
    try:
        from torchzero.modules.smoothing.laplacian import vector_laplacian_smoothing
    except ImportError:
        return None

    def run() -> None:
        for f in grads:
            f.copy_(vector_laplacian_smoothing(f, sigma).view_as(f))

    return run


def pytorch_optimizer_centralization(grads: list[Tensor]) -> Run | None:
    try:
        from pytorch_optimizer.optimizer.gradient_centralization import centralize_gradient
    except ImportError:
        return None
    return lambda: centralize_gradient(grads)


def sgd_step(grads: list[Tensor], **how: bool) -> Run:
    parameters = [torch.nn.Parameter(torch.zeros_like(f)) for f in grads]
    for parameter, f in zip(parameters, grads, strict=True):
        parameter.grad = f
    return torch.optim.SGD(parameters, lr=1e-9, momentum=0.9, **how).step
