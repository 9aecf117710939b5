"""The attachment: the optimizer's step on directed gradients, and nothing else changed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import riesz
from cases import METRICS, by_hand, relative_error
from training import backward, conv_gradients, network


def trained(
    steps=4, metric=None, by_hand_metric=None, make=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), **settings
):
    """Weights after a few steps, directed by an attachment or by hand."""
    model = network()
    optimizer = make(model.parameters())
    if metric is not None:
        riesz.attach(optimizer, model, metric=metric, **settings)
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, step)
        if by_hand_metric is not None:
            riesz.precondition_(conv_gradients(model), by_hand_metric)
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def test_identity_is_bit_equal_to_not_attaching():
    assert all(map(torch.equal, trained(metric=riesz.Identity()), trained()))


@pytest.mark.parametrize("metric", METRICS, ids=repr)
def test_attached_equals_directing_by_hand(metric):
    wanted = trained(by_hand_metric=metric)
    got = trained(metric=metric)
    assert max(relative_error(g, w) for g, w in zip(got, wanted, strict=True)) <= 1e-5


def test_grad_holds_the_directed_gradient_in_place_after_the_step():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.2))
    backward(model, 0)
    grad = model[0].weight.grad
    wanted = by_hand(riesz.SobolevTilde(0.2), grad)
    plain = model[5].weight.grad.clone()
    optimizer.step()
    assert model[0].weight.grad is grad
    assert relative_error(grad, wanted) <= 2e-6
    assert torch.equal(model[5].weight.grad, plain)


@pytest.mark.parametrize("by_keyword", [False, True])
def test_a_closure_is_directed_after_its_backward_pass(by_keyword):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    riesz.attach(optimizer, model, metric=riesz.SobolevTilde())
    for step in range(4):

        def closure(step=step):
            optimizer.zero_grad()
            return backward(model, step)

        loss = optimizer.step(closure=closure) if by_keyword else optimizer.step(closure)
        assert loss.item() > 0
    assert all(map(torch.equal, model.parameters(), trained(metric=riesz.SobolevTilde())))


def test_parameters_without_gradient_are_passed_over():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    riesz.attach(optimizer, model, metric=riesz.SobolevTilde())
    optimizer.step()
    model[3].weight.grad = torch.ones_like(model[3].weight)
    optimizer.step()
    assert model[0].weight.grad is None


def test_enabled_and_detach_give_back_the_plain_optimizer():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde())
    attachment.enabled = False
    for step in range(4):
        if step == 2:
            attachment.enabled = True
            attachment.detach()
            attachment.detach()
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    assert all(map(torch.equal, model.parameters(), trained()))
    riesz.attach(optimizer, model, metric=riesz.SobolevTilde())


def test_attach_adds_four_hooks_and_a_getstate_and_detach_removes_them():
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    before = {name: dict(value) if "hooks" in name else value for name, value in vars(optimizer).items()}
    attachment = riesz.attach(optimizer, metric=riesz.SobolevTilde())
    added = {name: len(value) - len(before[name]) for name, value in vars(optimizer).items() if "hooks" in name}
    assert {name for name, number in added.items() if number} == {
        "_optimizer_step_pre_hooks",
        "_optimizer_step_post_hooks",
        "_optimizer_load_state_dict_pre_hooks",
        "_optimizer_load_state_dict_post_hooks",
    }
    assert sum(added.values()) == 4
    assert set(vars(optimizer)) - set(before) == {"__getstate__"}
    attachment.detach()
    assert vars(optimizer) == before


def test_metric_may_be_replaced_while_training():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(1.0))
    tilde = [riesz.SobolevTilde(0.05), riesz.SobolevTilde(0.01), riesz.SobolevTilde(0.01, riemann=True)]
    for metric in (tilde[0], riesz.ReweightedL2(3.0), *tilde[1:]):
        attachment.metric = metric
        assert attachment.metric is metric
        model[0].weight.grad = f = torch.randn_like(model[0].weight)
        wanted = by_hand(metric, f)
        optimizer.step()
        assert relative_error(f, wanted) <= 2e-6


def test_a_metric_that_fits_nothing_is_refused_and_the_old_one_stays():
    model = nn.Conv2d(3, 4, 3, groups=1)
    optimizer = torch.optim.SGD([model.bias], lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(), layers="all")
    with pytest.raises(ValueError, match="nothing to direct"):
        attachment.metric = riesz.Centralization()
    assert attachment.metric == riesz.SobolevTilde()
    model.bias.grad = torch.ones(4)
    optimizer.step()
    assert model.bias.grad.tolist() == [2, 2, 2, 2]


def test_a_group_added_later_is_directed_too():
    first, second = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 5, 3)
    model = nn.Sequential(first, second)
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    optimizer.add_param_group({"params": list(second.parameters())})
    second.weight.grad = torch.ones_like(second.weight)
    optimizer.step()
    assert (second.weight.grad == 2).all()
    assert [r.name for r in attachment.report() if r.applied] == ["0.weight", "1.weight"]


def test_parameters_swapped_by_a_trainer_are_found_again():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    new = nn.Parameter(torch.zeros(6, 2, 3, 3))
    model[0].weight = new
    optimizer.param_groups[0]["params"][0] = new
    new.grad = torch.ones_like(new)
    optimizer.step()
    assert (new.grad == 2).all()


def test_parameters_swapped_for_flat_ones_raise_instead_of_training_plainly():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    flat = nn.Parameter(torch.zeros(500))
    flat.grad = torch.ones(500)
    optimizer.param_groups[0]["params"] = [flat]
    with pytest.raises(ValueError, match="nothing to direct"):
        optimizer.step()


def test_nothing_enters_the_state_dict():
    plain, attached = (torch.optim.Adam(network().parameters()) for _ in range(2))
    riesz.attach(attached, metric=riesz.SobolevTilde())
    assert attached.state_dict() == plain.state_dict()


def test_a_step_within_a_step_directs_once():
    class Failing(torch.optim.SGD):
        fail = False

        def step(self, closure=None):
            if self.fail:
                raise ArithmeticError
            return super().step(closure)

    torch.optim.SGD(network().parameters(), lr=0.1)  # from now on SGD.step runs hooks by itself
    model = network()
    optimizer = Failing(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    for fail in (False, True, False):
        optimizer.fail = fail
        model[0].weight.grad = torch.ones_like(model[0].weight)
        if fail:
            with pytest.raises(ArithmeticError):
                optimizer.step()
        else:
            optimizer.step()
        assert (model[0].weight.grad == 2).all()


def test_gradients_left_from_before_are_not_directed_ahead_of_a_closure():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    model[0].weight.grad = torch.ones_like(model[0].weight)
    seen = []

    def closure():
        seen.append(model[0].weight.grad.clone())
        return torch.tensor(0.0)

    optimizer.step(closure)
    assert (seen[0] == 1).all()
    assert (model[0].weight.grad == 2).all()


def test_other_arguments_of_a_step_are_passed_on():
    class Verbose(torch.optim.SGD):
        def step(self, closure=None, note=None, *, more=None):
            self.noted = (note, more)
            return super().step(closure)

    model = network()
    optimizer = Verbose(model.parameters(), lr=0.1)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    optimizer.step(lambda: backward(model, 0), "a", more="b")
    assert optimizer.noted == ("a", "b")


def test_a_parameter_that_changed_its_shape_is_looked_up_again():
    model = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    model[0].weight.data = torch.zeros(27)
    with pytest.raises(ValueError, match="it was flattened"):
        optimizer.step()


def test_lbfgs_runs_with_a_note():
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    with pytest.warns(UserWarning, match="LBFGS"):
        riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    before = copy.deepcopy(model)
    for step in range(2):

        def closure(step=step):
            optimizer.zero_grad()
            return backward(model, step)

        optimizer.step(closure)
    assert not any(map(torch.equal, model.parameters(), before.parameters()))


def test_two_optimizers_each_have_their_own():
    generator, discriminator = network(), network(1)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.0) for m in (generator, discriminator)]
    riesz.attach(optimizers[0], generator, metric=riesz.ReweightedL2(1.0))
    riesz.attach(optimizers[1], discriminator, metric=riesz.ReweightedL2(2.0))
    for model in (generator, discriminator):
        model[0].weight.grad = torch.ones_like(model[0].weight)
    optimizers[1].step()
    assert (generator[0].weight.grad == 1).all()
    assert (discriminator[0].weight.grad == 3).all()


def test_a_text_is_taken_wherever_a_metric_is():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric="sobolev-tilde(lam=0.5)")
    assert attachment.metric == riesz.SobolevTilde(0.5)
    attachment.metric = "reweighted-l2(lam=2)"
    assert attachment.metric == riesz.ReweightedL2(2.0)
    attachment.schedule(lambda step: "sobolev(lam=0.25)")
    optimizer.step()
    assert attachment.metric == riesz.Sobolev(0.25)
    f = torch.randn(5, 3)
    assert torch.equal(
        riesz.precondition_(f.clone(), "sobolev(lam=0.25)"), riesz.precondition_(f.clone(), riesz.Sobolev(0.25))
    )


def test_frozen_parameters_are_reported_as_frozen_until_they_are_not():
    model = network()
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    record = attachment.report()[0]
    assert (record.applied, record.reason) == (False, "frozen (requires_grad=False)")
    assert "1 of 8 directed" in str(attachment.report())
    assert "1 of 8 parameters" in repr(attachment)
    model[0].weight.requires_grad_(True)
    assert attachment.report()[0].applied
    backward(model, 0)
    f = model[0].weight.grad.clone()
    optimizer.step()
    assert torch.equal(model[0].weight.grad, riesz.precondition_(f, riesz.ReweightedL2()))


def test_an_optimizer_whose_chosen_parameters_are_all_frozen_is_warned_of():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(16, 3))
    model[0].requires_grad_(False)
    with pytest.warns(UserWarning, match="every parameter to direct is frozen"):
        riesz.attach(torch.optim.SGD(model.parameters(), lr=0.1), model, metric="sobolev")


def test_attaching_one_of_two_models_of_an_optimizer_is_warned_of():
    first, second = network(), network(1)
    both = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    with pytest.warns(UserWarning, match=r"these stay plain: 2 that might be directed, .* pass nn\.ModuleList"):
        riesz.attach(both, first, metric="sobolev").detach()
    with pytest.warns(UserWarning, match="these stay plain: 8 that might be directed"):
        riesz.attach(both, first, metric="sobolev", layers="all").detach()
    report = riesz.attach(both, nn.ModuleList([first, second]), metric="sobolev").report()
    assert sum(record.applied for record in report) == 4


def test_parameters_outside_of_the_model_that_would_not_be_directed_are_no_matter():
    model, head = network(), nn.Linear(3, 3)  # that of a loss, for one
    riesz.attach(torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1), model, metric="sobolev")


def test_a_warm_step_sets_no_attribute_through_the_guard_against_misspelling(monkeypatch):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric="sobolev")
    for step in range(2):
        backward(model, step)
        optimizer.step()
    guarded = []
    guard = type(attachment).__setattr__
    monkeypatch.setattr(
        type(attachment), "__setattr__", lambda self, name, value: guarded.append(name) or guard(self, name, value)
    )
    backward(model, 2)
    optimizer.step()
    assert guarded == []
    attachment.enabled = False
    assert guarded == ["enabled"]
