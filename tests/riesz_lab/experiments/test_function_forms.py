"""Which form a user's function has, a loop or a `build`, is known before any of it runs."""

import pytest
import torch
from torch import nn

import riesz_lab
from riesz_lab.errors import ConfigError
from riesz_lab.experiments.function import inspect_function


def loop_without_arguments():
    torch.zeros(1, requires_grad=True).sum().backward()
    return 1.0


def returns_nothing():
    print("training")


def returns_a_number():
    print("training")
    return 0.5


def returns_a_sum():
    print("training")
    right = 3
    return right / 4


def returns_a_call() -> float:
    print("training")
    return min(0.1, 0.2)


def returns_scores():
    print("training")
    return {"accuracy": 0.5}


def returns_a_pair():
    print("training")
    return 0.5, 0.6


def yields():
    print("training")
    yield 0.5


def returns_a_name():
    print("training")
    right, total = 3, 4
    score = 0.0
    score += right / total
    return score


def fit(lr):
    print("training")
    for _ in range(3):
        accuracy = torch.rand(()).item()
    return accuracy


def returns_what_another_returns():
    return fit(0.1)


def returns_what_it_was_told():
    best = fit(lr=0.5)
    return best


def calls_another():
    fit(0.1)


returns_a_lambdas_number = lambda: fit(0.1)  # noqa: E731

WITHOUT_LOOP = [
    returns_a_number, returns_a_sum, returns_a_call, returns_scores, returns_a_pair, yields, returns_a_name,
    returns_what_another_returns, returns_what_it_was_told, calls_another, returns_a_lambdas_number,
]  # fmt: skip


@pytest.mark.parametrize("function", [loop_without_arguments, returns_nothing, *WITHOUT_LOOP])
def test_a_loop_without_attach_and_seed_is_not_run(function, tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"takes no arguments.*If it is a training loop, write .*attach, seed"):
        riesz_lab.compare(function, runs=tmp_path)
    assert capsys.readouterr().out == ""


def build():
    images = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data = torch.utils.data.TensorDataset(images, (images.mean((1, 2, 3)) > 0).long())
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 2)), (data, data), nn.functional.cross_entropy


def build_with_functions_inside() -> "tuple[nn.Module, object, object]":
    def loss(outputs, targets):
        return 1 - outputs.sum()

    class Scale(nn.Module):
        def forward(self, images):
            return 2

    return (*build()[:2], loss)


def build_by_name():
    parts = build()
    parts = (*parts[:2], nn.functional.cross_entropy)
    return parts


def build_by_a_loop():
    model, data, loss = build()
    made = 0
    for made in [(model, data, loss)]:
        print(made)
    return made


def build_of_sums():
    first = (nn.Conv2d(1, 1, 1), ([], []))
    return first + (nn.functional.cross_entropy,)  # noqa: RUF005 - as people write it


def build_with_a_pretrained_part():
    fit(0.1)
    return build()


def build_by_calling():
    return build_by_name()


def build_again():
    return build_again()


@pytest.mark.parametrize(
    "function",
    [
        build_with_functions_inside, build_by_name, build_by_a_loop, build_of_sums, build_with_a_pretrained_part,
        build_by_calling, build_again, lambda: build(),
    ],
)  # fmt: skip
def test_a_build_is_not_taken_for_a_loop(function):
    assert not inspect_function(function).trains


def test_the_rate_of_a_build_is_named(tmp_path):
    answer = riesz_lab.compare(build, metrics=["sobolev-tilde"], seeds=1, epochs=1, lr=0.03, runs=tmp_path)
    assert "The learning rate is 0.03 in all arms" in answer.text
    assert "your function's" not in answer.text
