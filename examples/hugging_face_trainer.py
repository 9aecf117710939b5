"""Hugging Face Trainer: one callback. Needs `pip install transformers accelerate`."""

from __future__ import annotations

import tempfile

import torch
import transformers
from torch import Tensor, nn

import riesz
from riesz.integrations.transformers import ChannelDirected


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))

    def forward(self, pixels: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.net(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main() -> None:
    torch.manual_seed(0)
    images = torch.randn(256, 1, 8, 8)
    labels = (images.mean((1, 2, 3)) > 0).long()
    rows = [{"pixels": image, "labels": label} for image, label in zip(images, labels, strict=True)]
    model = Classifier()
    callback = ChannelDirected(riesz.SobolevTilde(lam=1.0))
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, num_train_epochs=10, per_device_train_batch_size=16, learning_rate=0.1, optim="sgd", use_cpu=True,
            report_to=[], save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[callback]).train()
    assert callback.attachment is not None
    print(callback.attachment.report())
    print(f"training accuracy {(model.net(images).argmax(1) == labels).float().mean():.2f}")


if __name__ == "__main__":
    main()
