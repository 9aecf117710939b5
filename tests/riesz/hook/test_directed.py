"""Directed classes: optimizers that attach themselves."""

from __future__ import annotations

import inspect
import pickle

import pytest
import torch

import riesz
from training import backward, network

METRIC = riesz.SobolevTilde(0.3)


def step(model, optimizer):
    for number in range(2):
        optimizer.zero_grad()
        backward(model, number)
        optimizer.step()


def test_directed_classes_look_like_their_base():
    made = riesz.directed(torch.optim.AdamW)
    assert made is riesz.directed(torch.optim.AdamW)
    assert issubclass(made, torch.optim.AdamW)
    assert made.__name__ == "DirectedAdamW"
    names = list(inspect.signature(made).parameters)
    assert names[:3] == ["params", "lr", "betas"]
    assert names[-6:] == ["metric", "direction", "layers", "model", "backend", "control"]
    assert "AdamW, channel-directed" in made.__doc__
    assert "weight_decay" in made.__doc__
    model = network()
    plain = torch.optim.AdamW(model.parameters())
    step(model, plain)
    optimizer = made(model.parameters(), metric=METRIC, model=model, direction="input", control="norm")
    optimizer.load_state_dict(plain.state_dict())
    assert optimizer.attachment.metric == METRIC
    step(model, optimizer)


def test_directed_refuses_what_it_cannot_make():
    with pytest.raises(TypeError, match=r"subclass of torch\.optim\.Optimizer, got <function"):
        riesz.directed(lambda: None)
    with pytest.raises(TypeError, match="DirectedSGD is directed already"):
        riesz.directed(riesz.directed(torch.optim.SGD))
    with pytest.raises(TypeError, match="metric"):
        riesz.directed(torch.optim.SGD)(network().parameters(), lr=0.1)


class DirectedByUser(riesz.directed(torch.optim.SGD)):
    """A user's subclass of a directed class, at module level as pickle asks."""


def test_a_subclass_of_a_directed_class_pickles_as_itself():
    model = network()
    optimizer = DirectedByUser(model.parameters(), lr=0.1, metric="sobolev", model=model)
    assert type(pickle.loads(pickle.dumps(optimizer))) is DirectedByUser
