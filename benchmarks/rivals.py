"""Claim: tens of times faster than the paper's formulas in eager torch, than FFTs, and than the packages people use."""

from __future__ import annotations

import torch

import riesz
from benchmarks import peers
from benchmarks.harness import Measurement, save, series
from benchmarks.networks import NETWORKS, gradients


def main() -> None:
    figures: list[Measurement] = []
    sobolev = riesz.Sobolev(0.1)
    smoothing = riesz.LaplacianSmoothing(1.0)
    for network, shapes in NETWORKS.items():
        grads = gradients(shapes)
        original = [f.clone() for f in grads]
        copies, lines = [torch.empty_like(f) for f in grads], [f.view(-1) for f in grads]
        symbols = {f.shape[0]: sobolev.symbol(f.shape[0]).float() for f in grads}
        spectra = {n: 1 / torch.cat([s, s[1 : (n + 1) // 2].flip(0)]) for n, s in symbols.items()}
        rivals = {
            "copy_ per tensor": lambda a=copies, b=grads: [x.copy_(y) for x, y in zip(a, b, strict=True)],
            "riesz SobolevTilde": lambda g=grads: riesz.precondition_(g, riesz.SobolevTilde(), backend="cpu"),
            "riesz ReweightedL2": lambda g=grads: riesz.precondition_(g, riesz.ReweightedL2(), backend="cpu"),
            "riesz Sobolev output": lambda g=grads: riesz.precondition_(g, sobolev, backend="cpu"),
            "riesz LaplacianSmoothing rasterized": lambda g=lines: riesz.precondition_(g, smoothing, backend="cpu"),
            "riesz Centralization": lambda g=grads: riesz.precondition_(g, riesz.Centralization(), backend="cpu"),
            "riesz eager SobolevTilde": lambda g=grads: riesz.precondition_(g, riesz.SobolevTilde(), backend="eager"),
            "paper SobolevTilde, eager": peers.paper_tilde(grads),
            "paper ReweightedL2, eager": peers.paper_reweighted(grads),
            "real FFT along output": peers.fft_along_output(grads, symbols),
            "FFT as LS-SGD, along output": peers.fft_ls_sgd_along_output(grads, spectra),
            "FFT as LS-SGD": peers.fft_ls_sgd(grads),
            "torchzero LaplacianSmoothing": peers.torchzero_smoothing(grads),
            "pytorch_optimizer centralization": peers.pytorch_optimizer_centralization(grads),
            "torch SGD step, foreach": peers.sgd_step(grads, foreach=True),
            "torch SGD step, fused": peers.sgd_step(grads, fused=True),
        }
        missing = [name for name, run in rivals.items() if run is None]
        if missing:
            print(f"{network}: not installed, so not measured: {', '.join(missing)} (pip install 'riesz[bench]')")
        numel = sum(f.numel() for f in grads)
        figures += series(
            "rivals",
            network,
            {name: run for name, run in rivals.items() if run is not None},
            rounds=40 if numel < 2e6 else 5 if numel < 2e7 else 3,
            refresh=lambda a=grads, b=original: torch._foreach_copy_(a, b),
        )
    save("rivals", figures)


if __name__ == "__main__":
    main()
