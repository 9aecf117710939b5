"""The same for a Lightning module:

riesz compare examples/compare_lightning.py:train --score accuracy --tune lr --until-sure --margin 1points --workers 2
"""

import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
images = torch.randn(512, 1, 8, 8, generator=torch.Generator().manual_seed(0))
data = TensorDataset(images, (images.mean((1, 2, 3)) > 0).long())


class Classifier(lightning.LightningModule):
    def __init__(self, attach, lr):
        super().__init__()
        self.attach, self.lr = attach, lr
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
        self.attach(optimizer, self)
        return optimizer


def train(attach, seed, lr=0.05):
    model = Classifier(attach, lr)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of too few workers, for data that is in memory
        trainer.fit(model, DataLoader(TensorDataset(*data[:384]), batch_size=16, shuffle=True))
    scores = [(model.net(x).argmax(1) == y).double().mean() for x, y in (data[384:448], data[448:])]
    return {"accuracy": scores[0], "held_out": scores[1]}


if __name__ == "__main__":
    import riesz_lab

    print("\n".join(riesz_lab.compare(train, seeds=3, score="accuracy", say=print).answers))
