"""Lightning: one callback. Needs `pip install lightning`."""

from __future__ import annotations

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import riesz
from riesz.integrations.lightning import ChannelDirected


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main() -> None:
    torch.manual_seed(0)
    images = torch.randn(256, 1, 8, 8)
    labels = (images.mean((1, 2, 3)) > 0).long()
    callback = ChannelDirected(riesz.SobolevTilde(lam=1.0))
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    model = Classifier()
    trainer.fit(model, DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True))
    print(callback.attachments[0].report())
    print(f"training accuracy {(model.net(images).argmax(1) == labels).float().mean():.2f}")


if __name__ == "__main__":
    main()
