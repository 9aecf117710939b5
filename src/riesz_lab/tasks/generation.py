"""Images from label maps with SPADE: hinge loss, feature matching, optionally a perceptual loss; scored by FID.

The generator sees one channel per label, one for void, and one for the edges between objects where scenes have
instances; the discriminator sees the same channels beside the image. As SPADE's authors do it, the generator takes its
step first; then new images are generated, without gradient, for the discriminator's step. No average of the generator's
weights is kept: the generator itself is scored, in evaluation mode.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from riesz_lab import models
from riesz_lab.config import Config
from riesz_lab.data.scenes.batches import SceneBatch
from riesz_lab.data.scenes.labels import VOID
from riesz_lab.data.scenes.scene import Scenes
from riesz_lab.errors import ConfigError, LabError
from riesz_lab.models import pretrained
from riesz_lab.models.patchgan import MultiscaleDiscriminator
from riesz_lab.models.perceptual import PerceptualLoss
from riesz_lab.models.spade import STRIDE
from riesz_lab.tasks import fid, gan_collapse, pictures
from riesz_lab.tasks.adversarial import PatchFeatures, discriminator_hinge, feature_distance, generator_hinge
from riesz_lab.tasks.base import Context
from riesz_lab.tasks.scenes import SceneTask
from riesz_lab.utils.randomness import derived


class Generation(SceneTask):
    higher_is_better = False
    percent = False
    multiple: ClassVar[int] = STRIDE

    @classmethod
    def check(cls, config: Config, data_dir: Path, data: Scenes | None) -> None:
        super().check(config, data_dir, data)
        with torch.device("meta"):
            _discriminator(config.discriminator_options)(4)
        if config.fit != "resize":
            raise ConfigError(f"fit: expected 'resize' for generation, got {config.fit!r}")
        if config.perceptual:
            if not config.perceptual_weights:
                raise ConfigError(f"perceptual={config.perceptual:g} needs perceptual_weights, a file of VGG-19")
            pretrained.find(config.perceptual_weights, data_dir, "perceptual_weights")
        fid.check(config.fid, config.fid_weights, data_dir)

    def __init__(self, config: Config, data_dir: Path, data: Scenes | None, context: Context):
        if context.world > 1:
            raise LabError(f"devices: expected 1, since generation runs on one device, got {context.world}")
        super().__init__(config, data_dir, data, context)
        if len(self.test) < 2:
            raise LabError(f"FID: expected two test scenes or more, got {len(self.test)}")
        self.score = f"fid_{config.fid}"
        channels = self.scenes.labels.classes + 1 + self.scenes.instances
        generator = self.build_model(channels=channels, classes=3)
        discriminator = models.seeded(
            lambda: _discriminator(config.discriminator_options)(channels + 3),
            derived("discriminator", config.effective_init_seed),
        )
        rates = {"generator": config.lr, "discriminator": config.discriminator_lr}
        self.add_models({"generator": generator, "discriminator": discriminator}, rates)
        self.perceptual: PerceptualLoss | None = None
        if config.perceptual:
            file = pretrained.find(config.perceptual_weights, data_dir, "perceptual_weights")
            self.perceptual = PerceptualLoss(file).to(context.device)
        self.fid = fid.build(config.fid, config.fid_weights, data_dir, context.device)

    def losses(self, part: SceneBatch) -> Iterator[tuple[str, Tensor]]:
        labels, real = self._inputs(part)
        generator, discriminator = self.models["generator"], self.models["discriminator"]
        # The discriminator is not trained here: its gradients would cost time and add to those of its own step.
        discriminator.requires_grad_(False)
        yield "generator", self._generator_loss(labels, real)
        discriminator.requires_grad_(True)
        with torch.no_grad():
            fake = generator(labels)
        fake_features, real_features = self._features(labels, fake, real)
        loss = discriminator_hinge(fake_features, real_features)
        self.meters.add("discriminator_loss", loss * len(part), len(part))
        yield "discriminator", loss

    def _generator_loss(self, labels: Tensor, real: Tensor) -> Tensor:
        fake = self.models["generator"](labels)
        fake_features, real_features = self._features(labels, fake, real)
        terms = {
            "hinge_loss": generator_hinge(fake_features),
            "feature_loss": self.config.feature_matching * feature_distance(fake_features, real_features),
        }
        if self.perceptual is not None:
            terms["perceptual_loss"] = self.config.perceptual * self.perceptual(fake, real)
        for name, term in terms.items():
            self.meters.add(name, term * len(real), len(real))
        return torch.stack(list(terms.values())).sum()

    def size(self, part: SceneBatch) -> int:
        return len(part)

    @torch.no_grad()
    def evaluate(self) -> Iterator[dict[str, float] | None]:
        """As many images are generated as there are test scenes, from their label maps, and compared with theirs."""
        take_real = not self.fid.torchmetrics.real_features_num_samples
        self.fid.forget_generated()
        self.shown.clear()
        for numbers, batch in self.test_batches():
            labels, real = self._inputs(batch)
            fake = self.models["generator"](labels)
            if take_real:
                self.fid.add(real, real=True)
            self.fid.add(fake, real=False)
            for number, i in self.shown_of(numbers):
                self.shown[number] = batch.labels_NHW[i], fake[i].cpu(), batch.images_NHWC[i]
            yield None
        yield {self.score: self.fid.distance(), "diversity": self.fid.diversity()}

    def pictures(self) -> dict[str, bytes]:
        """Label map, generated image, real image."""
        palette = self.scenes.labels.palette
        rows = [
            (palette[labels.numpy()], fid.as_bytes(fake).permute(1, 2, 0).numpy(), real.numpy())
            for labels, fake, real in self.shown.values()
        ]
        return {"samples": pictures.grid(rows)}

    def collapsed(self, history: list[dict[str, Any]]) -> str | None:
        return gan_collapse.collapsed(history, self.score)

    def _inputs(self, batch: SceneBatch) -> tuple[Tensor, Tensor]:
        """Label maps as channels of zeros and ones, and images in -1..1."""
        classes = self.scenes.labels.classes
        labels = batch.labels_NHW.to(self.context.device, non_blocking=True).long()
        labels = torch.where(labels == VOID, classes, labels)
        maps = functional.one_hot(labels, classes + 1).permute(0, 3, 1, 2).float()
        if self.scenes.instances:
            assert batch.edges_NHW is not None
            maps = torch.cat([maps, batch.edges_NHW.to(self.context.device).unsqueeze(1).float()], 1)
        layout = torch.channels_last if self.config.channels_last else torch.contiguous_format
        factor, offset = torch.tensor(1 / 127.5), torch.tensor(-1.0)
        return maps.contiguous(memory_format=layout), self.normalised(batch.images_NHWC, factor, offset)

    def _features(self, labels: Tensor, fake: Tensor, real: Tensor) -> tuple[PatchFeatures, PatchFeatures]:
        """Both in one pass, as the authors do: each pass updates spectral norm's estimate."""
        pairs = torch.cat([torch.cat([labels, fake], 1), torch.cat([labels, real], 1)])
        scales = self.models["discriminator"](pairs)
        count = len(fake)
        return (
            [[feature[:count] for feature in scale] for scale in scales],
            [[feature[count:] for feature in scale] for scale in scales],
        )


def _discriminator(options: tuple[str, ...]) -> models.Builder:
    return models.with_options("the discriminator", MultiscaleDiscriminator, "discriminator_options", options)
