"""The attachment: the optimizer's step on directed gradients, and nothing else changed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import riesz
from cases import METRICS, by_hand, relative_error
from riesz.control import permutation
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


def test_norm_control_keeps_each_norm_and_only_turns():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.02), control="norm")
    backward(model, 0)
    f = model[0].weight.grad.clone()
    model[3].weight.grad.zero_()
    optimizer.step()
    g = model[0].weight.grad
    wanted = by_hand(riesz.SobolevTilde(0.02), f)
    assert relative_error(g, wanted * (f.double().norm() / wanted.norm())) <= 2e-6
    assert (model[3].weight.grad == 0).all()


def test_norm_control_leaves_non_finite_gradients_visible():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=riesz.SobolevTilde(), control="norm")
    backward(model, 0)
    model[0].weight.grad[0, 0, 0, 0] = torch.inf
    optimizer.step()
    assert not torch.isfinite(model[0].weight.grad).all()


@pytest.mark.parametrize("direction", ["output", "rasterized"])
def test_permuted_control_is_conjugation_by_one_fixed_permutation(direction):
    def step(f):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        metric = riesz.SobolevTilde(0.02, blend=0.0)
        riesz.attach(optimizer, model, metric=metric, control="permuted", direction=direction)
        model[0].weight.grad = f.clone()
        optimizer.step()
        return model[0].weight.grad

    f = torch.randn(6, 2, 3, 3)
    g = step(f)
    assert torch.equal(g, step(f))
    n = 6 if direction == "output" else f.numel()
    matrix = torch.stack([step(column.view_as(f)).flatten() for column in torch.eye(f.numel())])
    if direction == "output":
        matrix = matrix.view(6, 18, 6, 18)[:, 0, :, 0]
    kernel = riesz.SobolevTilde(0.02, blend=0.0).kernel(n)
    plain = torch.stack([kernel.roll(i) for i in range(n)])
    torch.testing.assert_close(matrix.double(), matrix.double().T, atol=1e-4, rtol=1e-4)
    eigenvalues, wanted = (torch.linalg.eigvalsh(m.double()) for m in (matrix, plain))
    torch.testing.assert_close(eigenvalues, wanted, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(matrix.double(), plain, atol=1e-2)


@pytest.mark.parametrize("control", [None, "norm", "permuted"])
def test_diagnostics_recovered_from_the_directed_gradient_agree_with_recorded_ones(control):
    told = []
    for recording in (False, True):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.05), control=control)
        attachment.recording = recording
        backward(model, 0)
        f = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        diagnoses = attachment.diagnostics()
        told.append([(d.ratio, d.cosine) for d in diagnoses])
        for d in diagnoses:
            g = dict(model.named_parameters())[d.name].grad
            assert d.ratio == pytest.approx((g.norm() / f[d.name].norm()).item(), rel=1e-4)
            cosine = nn.functional.cosine_similarity(f[d.name].flatten(), g.flatten(), dim=0)
            assert d.cosine == pytest.approx(cosine.item(), rel=1e-4)
    assert torch.allclose(torch.tensor(told[0]), torch.tensor(told[1]), rtol=1e-4)


def test_diagnostics_say_why_they_cannot_tell():
    model = nn.Sequential(nn.Conv2d(2, 512, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(blend=0.0))
    with pytest.raises(RuntimeError, match="was not directed"):
        attachment.diagnostics()
    model[0].weight.grad = torch.randn_like(model[0].weight)
    optimizer.step()
    with pytest.raises(RuntimeError, match="smooths it too strongly"):
        attachment.diagnostics()
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match="its gradient is gone"):
        attachment.diagnostics()
    attachment.metric = riesz.Centralization()
    model[0].weight.grad = torch.randn_like(model[0].weight)
    optimizer.step()
    with pytest.raises(RuntimeError, match="a projection cannot be undone"):
        attachment.diagnostics()
    attachment.recording = True
    optimizer.step()
    assert len(attachment.diagnostics()) == 1


def test_diagnostics_tell_of_the_last_step_or_not_at_all():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.05))
    backward(model, 0)
    optimizer.step()
    assert len(attachment.diagnostics()) == 2
    model[0].weight.grad.mul_(2)
    told = attachment.diagnostics()
    assert [d.name for d in told] == ["3.weight"]
    assert told.notes == ("0.weight: its gradient was changed after the step directed it",)
    model[3].weight.grad = torch.randn_like(model[3].weight)
    with pytest.raises(RuntimeError, match="changed after the step"):
        attachment.diagnostics()
    attachment.recording = True
    optimizer.step()
    assert len(attachment.diagnostics()) == 2
    attachment.metric = riesz.SobolevTilde(0.5)
    with pytest.raises(RuntimeError, match="was not directed by this metric"):
        attachment.diagnostics()
    optimizer.step()
    attachment.enabled = False
    optimizer.step()
    with pytest.raises(RuntimeError, match="was not directed"):
        attachment.diagnostics()


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


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (torch.float16, 1.0),
        (torch.float16, 1e-3),
        (torch.bfloat16, 1.0),
        (torch.bfloat16, 1e-24),
        (torch.float32, 1e-24),
        (torch.float32, 1e20),
    ],
)
def test_norm_control_keeps_norms_in_every_dtype_and_range(dtype, size):
    model = nn.Conv2d(4, 512, 1, bias=False).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=riesz.SobolevTilde(1.0, blend=0.0), control="norm")
    signs = torch.randint(2, (512, 4, 1, 1), generator=torch.Generator().manual_seed(0)) * 2 - 1
    model.weight.grad = (signs * size).to(dtype)
    wanted = model.weight.grad.double().norm().item()
    optimizer.step()
    assert model.weight.grad.double().norm().item() == pytest.approx(wanted, rel=1e-3 if dtype.itemsize == 2 else 1e-5)


def test_permutations_differ_by_name_and_ignore_wrappers():
    cpu = torch.device("cpu")
    first = permutation("a.weight", 50, cpu)
    assert not torch.equal(first, permutation("b.weight", 50, cpu))
    assert torch.equal(first, permutation("module.a.weight", 50, cpu))
    assert torch.equal(first, permutation("_orig_mod.a.weight", 50, cpu))


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
