"""Closed forms, hand-computed values and known limits of the baselines besides the paper's."""

from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import nn

from helpers import make_bank
from wri.objectives import IGA, OBJECTIVES, SD, Fishr
from wri.objectives.anchor import score_residuals
from wri.objectives.base import Batch, Model, Start, StepContext
from wri.objectives.clove import confidence_and_error
from wri.objectives.functional import (
    anchor_penalty,
    bottleneck_penalty,
    calibration_penalty,
    gradient_spread,
    head_gradient_variance,
    mmd_penalty,
    risk_quantile,
)
from wri.stacked import CROSS_ENTROPY, LOGISTIC, LOSSES, SQUARED, Network
from wri.testing import OBJECTIVE_CHECKS
from wri.training import Bank, ModelSpec, Run, train_stack


def draw(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.manual_seed(seed))


def shares(*shape, seed=1):
    weight = torch.rand(shape, dtype=torch.float64, generator=torch.manual_seed(seed))
    return weight / weight.sum(-1, keepdim=True)


def at_start(objective, x, y, loss=CROSS_ENTROPY, hidden=(4,), **hyper):
    """Return the loss of one run at its initial weights, and its parameters."""
    outputs = 3 if loss.classes else 1
    network = Network((x.shape[-1], *hidden, outputs))
    flat = torch.tensor(network.initial([0])).requires_grad_()
    start = Start(
        seeds=[0],
        environments=x.shape[1],
        network=network,
        dtype=torch.float64,
        device="cpu",
        draws=None,
    )
    values = {"anneal_steps": 0, "ramp_steps": 0} | hyper
    tensors = {name: torch.tensor([value]).double() for name, value in values.items()}
    context = StepContext(100, tensors, None)
    model = Model(network, flat, loss)
    losses, _ = objective.loss(model, Batch(x, y), objective.initial(start), context)
    return losses[0], model


def same_environments(rows=8):
    """Return three environments with the same rows."""
    x, y = draw(rows, 5), torch.arange(rows) % 3
    return x.expand(1, 3, rows, 5), y.expand(1, 3, rows)


COMPARE = ("iga", "fishr", "mmd", "eqrm")


@pytest.mark.parametrize("name", COMPARE)
def test_equal_environments_are_erm(name):
    """Those that compare environments have nothing to penalise, and every quantile is the mean."""
    x, y = same_environments()
    hyper = {"penalty_weight": 100.0, "momentum": 0.9, "quantile": 0.9}
    loss, model = at_start(OBJECTIVES[name](), x, y, **hyper)
    risk = model.losses(x, y).mean()
    torch.testing.assert_close(loss, risk, rtol=1e-6, atol=1e-12)


def test_the_quantile_solves_its_equation():
    """A share α of the smoothed distribution lies below it."""
    for count, alpha in ((2, 0.75), (3, 0.5), (5, 0.99), (40, 0.3)):
        risks = draw(count, seed=count).square()
        found = risk_quantile(risks, alpha).item()
        kernel = NormalDist(0, 1.06 * risks.std().item() * count**-0.2)
        below = np.mean([kernel.cdf(found - risk) for risk in risks.tolist()])
        assert below == pytest.approx(alpha, abs=1e-12)


def test_the_gradient_of_the_quantile_is_its_slope():
    risks = draw(2, 4).square().requires_grad_()
    alpha = torch.tensor([0.6, 0.95], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda each: risk_quantile(each, alpha), risks)


def test_limits_of_the_quantile():
    """The middle of two risks is their mean; a high quantile follows the worst environment."""
    risks = torch.tensor([0.2, 0.9, 0.4], dtype=torch.float64, requires_grad=True)
    assert risk_quantile(risks[:2], 0.5).item() == pytest.approx(0.55)
    high = risk_quantile(risks, 1 - 1e-6)
    assert high > risks.max()
    (slope,) = torch.autograd.grad(high, risks)
    assert slope.argmax() == 1
    assert slope.sum().item() == pytest.approx(1)  # all risks one higher: the quantile too
    same = torch.full((3,), 0.7, requires_grad=True)  # in single precision
    (slope,) = torch.autograd.grad(risk_quantile(same, 0.9), same)
    torch.testing.assert_close(slope, torch.full((3,), 1 / 3), rtol=0, atol=1e-3)


def test_eqrm_is_erm_before_its_annealing_step():
    """The run beside it anneals at its second step."""
    check = OBJECTIVE_CHECKS["without penalty it is ERM"]
    check(OBJECTIVES["eqrm"](), {"anneal_steps": 1000})


def test_sd_penalises_the_squared_outputs():
    x, y = draw(1, 2, 6, 5), torch.arange(12).view(1, 2, 6) % 3
    loss, model = at_start(SD(), x, y, penalty_weight=0.3)
    expected = model.losses(x, y).mean() + 0.3 * model.outputs(x).square().mean()
    torch.testing.assert_close(loss, expected)


def test_iga_sees_the_gradients_of_a_plain_module():
    x, y = draw(1, 3, 6, 5), torch.arange(18).view(1, 3, 6) % 3
    loss, model = at_start(IGA(), x, y, hidden=(), penalty_weight=2.0)
    layer = nn.Linear(5, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(model.flat[0, :15].view(3, 5))
        layer.bias.copy_(model.flat[0, 15:])
    risks = [nn.functional.cross_entropy(layer(x[0, e]), y[0, e]) for e in range(3)]
    gradients = [torch.autograd.grad(risk, [*layer.parameters()]) for risk in risks]
    each = torch.stack([torch.cat([part.reshape(-1) for part in own]) for own in gradients])
    spread = sum((own - each.mean(0)).square().sum() for own in each)
    torch.testing.assert_close(gradient_spread(each), spread)
    torch.testing.assert_close(loss, sum(risks) / 3 + 2 * spread)


def test_the_bottleneck_weighs_rows_as_numpys_covariance_does():
    phi, weight = draw(2, 9, 3), shares(2, 9)
    expected = [
        np.diag(np.cov(rows.T, aweights=own)).mean()
        for rows, own in zip(phi.numpy(), weight.numpy(), strict=True)
    ]
    np.testing.assert_allclose(bottleneck_penalty(phi, weight), expected)
    equal = torch.full((2, 9), 1 / 9, dtype=torch.float64)
    torch.testing.assert_close(bottleneck_penalty(phi), bottleneck_penalty(phi, equal))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_variances_of_gradients_are_those_of_single_rows(loss):
    """One backward pass per row through a plain linear layer."""
    outputs = 3 if loss.classes else 1
    layer = nn.Linear(4, outputs, dtype=torch.float64)
    phi, y = draw(7, 4), torch.arange(7) % (3 if loss.classes else 2)
    each = []
    for row in range(7):
        risk = loss.per_example(layer(phi[None, row]), y[None, row]).sum()
        weight, bias = torch.autograd.grad(risk, [layer.weight, layer.bias])
        each.append(torch.cat([weight, bias[:, None]], 1).reshape(-1))
    scores = layer(phi)
    (slopes,) = torch.autograd.grad(loss.per_example(scores, y).sum(), scores)
    found = head_gradient_variance(slopes, phi)
    torch.testing.assert_close(found, torch.stack(each).var(0, unbiased=False))


def test_fishr_keeps_a_running_mean_of_its_variances():
    """From zero: (1 − μ)·v after one step, and (1 − μ)(1 + μ)·v after two with the same rows."""
    x, y = draw(1, 2, 6, 5), torch.arange(12).view(1, 2, 6) % 3
    network = Network((5, 4, 3))
    model = Model(network, torch.tensor(network.initial([0])).requires_grad_(), CROSS_ENTROPY)
    hyper = {"penalty_weight": 1.0, "anneal_steps": 0.0, "ramp_steps": 0.0, "momentum": 0.9}
    tensors = {name: torch.tensor([value]).double() for name, value in hyper.items()}
    state, seen = torch.zeros(1, 2, 15, dtype=torch.float64), []
    for step in range(2):
        _, state = Fishr().loss(model, Batch(x, y), state, StepContext(step, tensors, None))
        seen.append(state)
    torch.testing.assert_close(seen[1], 1.9 * seen[0])
    assert not state.requires_grad


def plain_mmd(phi, weight):
    """The formula as it is written, pair by pair, for automatic differentiation."""

    def kernel(first, second):
        distance = (phi[first][:, None] - phi[second]).square().sum(-1)
        each = sum(torch.exp(-(10.0**power) * distance) for power in range(-3, 4))
        return weight[first] @ each @ weight[second]

    pairs = [*combinations(range(len(phi)), 2)]
    return sum(kernel(i, i) + kernel(j, j) - 2 * kernel(i, j) for i, j in pairs) / len(pairs)


def test_mmd_and_its_gradient_are_those_of_the_formula(monkeypatch):
    monkeypatch.setattr("wri.objectives.mmd.AT_ONCE", 200)  # one run at a time
    phi, weight = 0.3 * draw(2, 3, 4, 2), shares(2, 3, 4)
    moving, again = phi.clone().requires_grad_(), phi.clone().requires_grad_()
    found = mmd_penalty(moving, weight)
    expected = torch.stack([plain_mmd(again[run], weight[run]) for run in range(2)])
    torch.testing.assert_close(found, expected)
    upstream = torch.tensor([1.0, -2.0], dtype=torch.float64)
    (ours,) = torch.autograd.grad(found, moving, upstream)
    (theirs,) = torch.autograd.grad(expected, again, upstream)
    torch.testing.assert_close(ours, theirs)


def test_mmd_of_equal_samples_is_zero():
    phi = draw(6, 3)
    shuffled = phi[torch.randperm(6, generator=torch.manual_seed(0))]
    assert mmd_penalty(torch.stack([phi, shuffled])).item() == pytest.approx(0, abs=1e-12)
    assert mmd_penalty(torch.stack([phi, phi + 1])) > 0.1


def test_the_calibration_error_is_the_double_sum():
    errors, weight = draw(2, 7), shares(2, 7)
    confidence = torch.rand(2, 7, dtype=torch.float64, generator=torch.manual_seed(2))
    kernel = torch.exp(-(confidence[:, :, None] - confidence[:, None]).abs() / 0.4)
    for row_weight, share in ((weight, weight), (None, torch.full_like(weight, 1 / 7))):
        scaled = errors * share
        expected = torch.einsum("ra,rab,rb->r", scaled, kernel, scaled)
        torch.testing.assert_close(calibration_penalty(errors, confidence, row_weight), expected)


def test_calibrated_predictions_have_no_calibration_error():
    """Three quarters of rows with confidence 3/4 are right, and half of those with 1/2."""
    confidence = torch.tensor([0.75] * 4 + [0.5] * 2, dtype=torch.float64)
    right = torch.tensor([1, 0, 1, 1, 1, 0])
    assert calibration_penalty(right - confidence, confidence).item() == pytest.approx(0, abs=1e-15)
    assert calibration_penalty(1 - right - confidence, confidence) > 0.01
    odds = torch.log(torch.tensor([[3.0], [3.0], [1 / 3]], dtype=torch.float64))
    level, errors = confidence_and_error(LOGISTIC, odds, torch.tensor([1, 0, 0]))
    torch.testing.assert_close(level, torch.tensor([0.75, 0.75, 0.25]).double())
    torch.testing.assert_close(errors, torch.tensor([0.25, -0.75, -0.25]).double())
    level, errors = confidence_and_error(
        CROSS_ENTROPY, torch.tensor([[3.0, 1.0]]).log(), torch.tensor([1])
    )
    torch.testing.assert_close(errors, torch.tensor([-0.75]))


def test_residuals_are_the_slopes_of_the_losses():
    """Half the slope for squared error."""
    for loss, outputs in ((CROSS_ENTROPY, 3), (LOGISTIC, 1), (SQUARED, 1)):
        scores, y = draw(5, outputs).requires_grad_(), torch.arange(5) % max(2, outputs)
        (slope,) = torch.autograd.grad(loss.per_example(scores, y).sum(), scores)
        factor = 0.5 if loss is SQUARED else 1.0
        torch.testing.assert_close(score_residuals(loss, scores.detach(), y), factor * slope)


def anchor_bank(counts=(30, 50, 40)):
    random = np.random.default_rng(0)
    environment = np.repeat(np.arange(len(counts)), counts)
    x = random.normal(size=(len(environment), 3)) + environment[:, None] * [1.0, -0.5, 0.0]
    y = x @ [1.0, 2.0, -1.0] + 1.5 * environment + random.normal(size=len(environment))
    train = [np.flatnonzero(environment == e) for e in range(len(counts))]
    return Bank(x, y, loss=SQUARED), train, environment


@pytest.mark.parametrize("weight", [0.0, 3.0, 1e3])
def test_anchor_regression_is_least_squares_with_rescaled_anchors(weight):
    """Rows are centred and their projection on the environments grows by √γ, with γ = 1 + λ."""
    bank, train, environment = anchor_bank()
    hyper = {"penalty_weight": weight, "weight_decay": 0.0}
    spec = ModelSpec.of("anchor", preset="table", hyper=hyper, standardise=False)
    (record,) = train_stack([Run(spec, bank, train, seed=0)])
    share = np.sqrt(1 / np.bincount(environment))[environment]  # environments count alike
    columns = np.column_stack([bank.features, np.ones(len(environment)), bank.targets])
    means = np.stack([columns[own].mean(0) for own in train])[environment]
    rescaled = share[:, None] * (columns + (np.sqrt(1 + weight) - 1) * means)
    expected = np.linalg.lstsq(rescaled[:, :-1], rescaled[:, -1], rcond=None)[0]
    np.testing.assert_allclose(record.parameters, expected, rtol=0, atol=1e-5)


def test_anchor_with_large_weight_leaves_no_mean_residual():
    bank, train, _ = anchor_bank()
    spec = ModelSpec.of("anchor", preset="table", hyper={"penalty_weight": 1e6, "weight_decay": 0})
    (record,) = train_stack([Run(spec, bank, train, seed=0)])
    run = Run(spec, bank, train, seed=0)
    for own in train:
        x, y = run.view(own)
        residual = x @ record.parameters[:-1] + record.parameters[-1] - y
        assert residual.mean() == pytest.approx(0, abs=1e-3)
    assert anchor_penalty(torch.tensor([[1.0, -1.0], [3.0, 1.0]])).item() == 4.0


@pytest.mark.parametrize("name", ["sd", "iga", "fishr", "anchor"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_smooth_baselines_are_solved_to_a_minimum(name, loss):
    """The gradient of the objective on all rows vanishes, whatever the seed."""
    bank = make_bank(loss)
    train = [np.arange(0, 60), np.arange(60, 110), np.arange(110, 180)]
    spec = ModelSpec.of(name, preset="table", hyper={"weight_decay": 1e-2})
    assert spec.is_solved
    records = train_stack([Run(spec, bank, train, seed=s) for s in (0, 1)])
    assert max(record.gradient for record in records) < 1e-5
    np.testing.assert_allclose(records[0].parameters, records[1].parameters, rtol=0, atol=1e-12)


def test_what_cannot_be_solved_is_trained():
    """CLOvE's kernel has a kink, and EQRM where risks agree; the others need Φ."""
    assert not any(ModelSpec.of(name, preset="table").is_solved for name in ("clove", "eqrm"))
    assert all(
        ModelSpec.of(name, preset="table").hidden for name in ("mmd", "iberm", "ibirm", "coral")
    )
