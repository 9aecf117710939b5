"""Semantic segmentation: cross entropy per pixel, mean intersection over union, pixel accuracy.

Void pixels are neither trained on nor scored. Every evaluation also gives the generalisation gap, of the loss (test
minus train) and of the accuracy (train minus test); the training side is the mean over the epoch during training.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from riesz_lab.config import Config
from riesz_lab.data.scenes.batches import SceneBatch
from riesz_lab.data.scenes.labels import VOID
from riesz_lab.data.scenes.scene import Scenes
from riesz_lab.errors import ConfigError
from riesz_lab.models import pretrained
from riesz_lab.models.unet import UNet
from riesz_lab.tasks import pictures
from riesz_lab.tasks.base import Context
from riesz_lab.tasks.meters import Meters
from riesz_lab.tasks.scenes import SceneTask

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's, as pretrained encoders expect."""


class Segmentation(SceneTask):
    score = "test_miou"

    @classmethod
    def check(cls, config: Config, data_dir: Path, data: Scenes | None) -> None:
        super().check(config, data_dir, data)
        if config.pretrained:
            pretrained.find(config.pretrained, data_dir, "pretrained")

    def __init__(self, config: Config, data_dir: Path, data: Scenes | None, context: Context):
        # On first use: importing it takes seconds.
        from torchmetrics.classification import MulticlassJaccardIndex

        super().__init__(config, data_dir, data, context)
        classes, device = self.scenes.labels.classes, context.device
        model = self.build_model(channels=3, classes=classes)
        if config.pretrained:
            if not isinstance(model, UNet):
                raise ConfigError(f"pretrained: expected model 'unet', got {config.model!r}")
            file = pretrained.find(config.pretrained, data_dir, "pretrained")
            pretrained.load_into(model.encoder, file, extra=("fc.",))
        self.add_models({"model": model})
        self.test_meters = Meters(device)
        self.balance: Tensor | None = None
        """With several processes: the weight of this one's loss of the current batch."""
        self.iou = MulticlassJaccardIndex(classes, ignore_index=VOID, validate_args=False, sync_on_compute=False)
        self.iou.to(device)
        std = torch.tensor(STD, device=device).view(1, 3, 1, 1)
        self.factor = 1 / (255 * std)
        self.offset = -torch.tensor(MEAN, device=device).view(1, 3, 1, 1) / std

    def batches(self, epoch: int, first: int) -> Iterator[list[SceneBatch]]:
        for parts in super().batches(epoch, first):
            self.balance = None if self.context.world == 1 else self._balance(parts)
            yield parts

    def losses(self, part: SceneBatch) -> Iterator[tuple[str, Tensor]]:
        _, loss = self._predict(part, self.meters, "train")
        yield "model", loss if self.balance is None else loss * self.balance

    def size(self, part: SceneBatch) -> int:
        return part.pixels

    def _balance(self, parts: list[SceneBatch]) -> Tensor:
        # Gradients are averaged over processes, but every pixel is to weigh the same, as in one process. The weight
        # stays on the device: reading it would wait.
        own = sum(part.pixels for part in parts)
        pixels = self.context.add_up(torch.tensor(own, dtype=self.meters.dtype, device=self.context.device))
        return (self.context.world * own / pixels.clamp(min=1)).float()

    @torch.no_grad()
    def evaluate(self) -> Iterator[dict[str, float] | None]:
        self.test_meters.reset("test_loss", "test_accuracy")
        self.iou.reset()
        self.shown.clear()
        for numbers, batch in self.test_batches():
            logits, _ = self._predict(batch, self.test_meters, "test")
            predicted = logits.argmax(1)
            self.iou.update(predicted, batch.labels_NHW.to(self.context.device).long())
            for number, i in self.shown_of(numbers):
                self.shown[number] = batch.images_NHWC[i], batch.labels_NHW[i], predicted[i].cpu()
            yield None
        self.iou.confmat = self.context.add_up(self.iou.confmat)
        scores = {"test_miou": float(self.iou.compute()), **self.test_meters.means(self.context.add_up)}
        if train := self.meters.means(self.context.add_up):
            scores["loss_gap"] = scores["test_loss"] - train["train_loss"]
            scores["accuracy_gap"] = train["train_accuracy"] - scores["test_accuracy"]
        yield scores

    def pictures(self) -> dict[str, bytes]:
        """Image, truth, prediction; void is black in the truth."""
        palette = self.scenes.labels.palette
        rows = [
            (image.numpy(), palette[truth.numpy()], palette[predicted.numpy()])
            for image, truth, predicted in self.shown.values()
        ]
        return {"predictions": pictures.grid(rows)}

    def _predict(self, batch: SceneBatch, meters: Meters, split: str) -> tuple[Tensor, Tensor]:
        """Class scores and their mean loss over pixels that are not void; both are added to the meters."""
        images = self.normalised(batch.images_NHWC, self.factor, self.offset)
        labels = batch.labels_NHW.to(self.context.device, non_blocking=True).long()
        logits = self.models["model"](images)
        total = functional.cross_entropy(logits, labels, ignore_index=VOID, reduction="sum")
        meters.add(f"{split}_loss", total, batch.pixels)
        meters.add(f"{split}_accuracy", (logits.argmax(1) == labels).sum(), batch.pixels)
        # A batch may be all void; its loss is then zero, not NaN.
        return logits, total / max(1, batch.pixels)
