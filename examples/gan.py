"""Two networks, two optimizers, two attachments: a small GAN that starts to learn to draw bars."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import riesz


def bars(count: int) -> Tensor:
    """Real images: 8 x 8, one bright row or column each."""
    images = torch.full((count, 1, 8, 8), -1.0)
    for image in images:
        row = int(torch.randint(8, ()))
        if torch.rand(()) < 0.5:
            image[0, row] = 1.0
        else:
            image[0, :, row] = 1.0
    return images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    generator = nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4), nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 1, 2, stride=2), nn.Tanh()
    )
    discriminator = nn.Sequential(
        spectral_norm(nn.Conv2d(1, 32, 4, stride=2, padding=1)),
        nn.LeakyReLU(0.2),
        spectral_norm(nn.Conv2d(32, 32, 4)),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(32, 1),
    )
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.0, 0.9))
    for optimizer, model in ((optimizer_g, generator), (optimizer_d, discriminator)):
        print(riesz.attach(optimizer, model, metric=riesz.SobolevTilde(lam=1.0)).report(), "\n")

    for step in range(steps):
        real, fake = bars(32), generator(torch.randn(32, 16, 1, 1))
        loss_d = (1 - discriminator(real)).relu().mean() + (1 + discriminator(fake.detach())).relu().mean()
        optimizer_d.zero_grad()
        loss_d.backward()
        optimizer_d.step()
        loss_g = -discriminator(fake).mean()
        optimizer_g.zero_grad()
        loss_g.backward()
        optimizer_g.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step:4d}  discriminator {loss_d.item():6.3f}  generator {loss_g.item():6.3f}")
    for row in generator(torch.randn(1, 16, 1, 1))[0, 0]:
        print("".join("#" if pixel > 0 else "." for pixel in row))


if __name__ == "__main__":
    main()
