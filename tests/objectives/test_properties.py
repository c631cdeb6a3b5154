"""Facts that hold for any stack and any numbers, on cases that Hypothesis draws.

A run in a stack equals the run alone; penalties of finite numbers are finite and so are their
gradients; no overlap means no penalty. Cases are the same in every call (`derandomize`).
"""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers import make_run as make_any_run
from helpers import train_steps
from wri.densities import EnvironmentClassifier, Exact, Gaussian
from wri.objectives import CORAL, ERM, IRM, MLDG, WRI, GroupDRO, Mixup, VREx
from wri.objectives.functional import coral_penalty, irm_penalty, vrex_penalty, wri_penalty
from wri.training import Bank

WIDTH, ROWS = 4, 14  # features, rows of the largest environment

settings.register_profile(
    "facts",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
facts = settings.get_profile("facts")


def exact(scale):
    """Log densities of any number of environments, from −scale to scale."""

    def logs(environments, x):
        centres = torch.linspace(-1, 1, environments, dtype=x.dtype)
        return scale * (x[..., :1] * centres).sin()

    return logs


class Waves(Exact):
    """`Exact` for any number of environments."""

    def log_density(self, flat, x, environments, hyper):
        return self.function(environments, x).movedim(-1, 1)


OBJECTIVES = {
    "erm": ERM(),
    "irm": IRM(),
    "irm-square": IRM(form="square"),
    "vrex": VREx(),
    "groupdro": GroupDRO(),
    "mixup": Mixup(),
    "mldg": MLDG(),
    "mldg-sgd": MLDG(inner="sgd"),
    "coral": CORAL(),
    "wri": WRI(),
    "wri-published": WRI("published"),
    "wri-gaussian": WRI(density=Gaussian(), scaling="risk"),
    "wri-ratio": WRI("ratio", "risk", density=Waves(exact(200.0))),
    "wri-underflow": WRI(density=Waves(lambda e, x: exact(300.0)(e, x) - 900), scaling="relative"),
    "wri-overflow": WRI(density=Waves(lambda e, x: exact(300.0)(e, x) + 900), scaling="risk"),
    "wri-halves": WRI(
        "density", density=Waves(exact(900.0)), normalised=True, form="halves", divided=True
    ),
    "wri-overlap": WRI("overlap", density=EnvironmentClassifier(3), normalised=True),
    "wri-tilted": WRI("tilted", "product", density=Waves(exact(900.0)), normalised=True),
}


@st.composite
def stacks(draw, objective):
    """Two to four runs with odd batch sizes, weighted rows or not, and one may diverge."""
    environments = draw(st.integers(objective.least_environments, 12))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    n = environments * ROWS
    weights = random.gamma(0.5, size=n) + 1e-3 if draw(st.booleans()) else None
    features = random.normal(size=(n, WIDTH)) + random.normal(size=WIDTH)
    bank = Bank(features, np.arange(n) % 3, classes=3, weights=weights)
    runs = []
    for seed in range(draw(st.integers(2, 4))):
        sizes = draw(st.lists(st.integers(3, ROWS), min_size=environments, max_size=environments))
        train = [np.arange(size) + e * ROWS for e, size in enumerate(sizes)]
        given = {
            "batch_size": draw(st.integers(2, ROWS + 3)),
            "learning_rate": draw(st.sampled_from([1e-3, 0.05])),
            "penalty_weight": draw(st.sampled_from([0.0, 1.0, 30.0])),
            "anneal_steps": draw(st.integers(0, 2)),
            "ramp_steps": draw(st.integers(0, 2)),
            "density_steps": draw(st.integers(1, 3)),
            "density_every": draw(st.integers(1, 2)),
            "density_batch_size": draw(st.integers(2, ROWS)),
            "eta": draw(st.sampled_from([0.01, 1e4])),
            "meta_test": draw(st.integers(1, 3)),
        }
        if seed == 1 and draw(st.booleans()):
            given |= {"learning_rate": 1e300, "weight_decay": 1e300}  # diverges at its first step
        known = {parameter.name for parameter in objective.hyperparameters()}
        hyper = {name: value for name, value in given.items() if name in known}
        splits = {"all": np.arange(n)}
        runs.append(make_any_run(objective, bank, train, hyper, seed, splits, (3,)))
    return runs


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.slow
def test_a_run_in_any_stack_equals_the_run_alone(objective):
    @settings(facts, max_examples=4)
    @given(stacks(objective))
    def check(runs):
        together = train_steps(runs, 4, 2, ("loss",), dtype=torch.float64)
        for run, record in zip(runs, together, strict=True):
            (alone,) = train_steps([run], 4, 2, ("loss",), dtype=torch.float64)
            assert record.diverged_at == alone.diverged_at
            assert (record.diverged_at is None) == (run.hyper["learning_rate"] < 1)
            np.testing.assert_allclose(record.parameters, alone.parameters, rtol=1e-7, atol=1e-8)
            ours, theirs = record.measures["loss"]["all"], alone.measures["loss"]["all"]
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* holds a single class")
        check()


def floats(low, high):
    return st.floats(low, high, allow_nan=False)


@st.composite
def batches(draw, least, most):
    """Losses `[E, B]`, log densities `[E, E, B]` between two numbers, row weights or none."""
    environments, rows = draw(st.integers(2, 5)), draw(st.integers(2, 7))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    scale = draw(st.sampled_from([0.0, 1e-6, 1.0, 1e3]))  # of the losses; a perfect fit has none
    losses = scale * random.gamma(0.3, size=(environments, rows))
    low = draw(floats(least, most))
    high = draw(floats(low, most))
    logs = random.uniform(low, high, (environments, environments, rows))
    real = np.ones((environments, rows), bool)
    weight = None
    if draw(st.booleans()):
        real = np.arange(rows) < random.integers(2, rows + 1, (environments, 1))
        weight = real * (random.gamma(0.5, size=real.shape) + 1e-3)
        weight = torch.tensor(weight / weight.sum(-1, keepdims=True), dtype=torch.float32)
        logs = np.where(real, logs, draw(floats(-3e38, 3e38)))
    return torch.tensor(losses).float(), torch.tensor(logs).float(), weight


def penalty_and_gradients(losses, logs, *options, **named):
    losses, logs = losses.requires_grad_(), logs.requires_grad_()
    penalty = wri_penalty(losses, logs, *options, **named)
    gradients = torch.autograd.grad(penalty, [losses, logs], allow_unused=True)
    return [penalty.detach(), *(gradient for gradient in gradients if gradient is not None)]


weightings = st.sampled_from(["density", "overlap", "tilted", "ratio", "uniform", "published"])
forms = st.sampled_from(["square", "halves"])


@settings(facts, max_examples=120)
@given(batches(-1e6, 1e6), weightings, st.sampled_from(["relative", "risk"]), forms)
@pytest.mark.slow
def test_in_no_unit_finite_numbers_have_a_finite_penalty(batch, weighting, scaling, form):
    losses, logs, weight = batch
    found = penalty_and_gradients(losses, logs, weighting, scaling, weight, False, form)
    assert all(values.isfinite().all() for values in found)


@settings(facts, max_examples=80)
@given(
    batches(-1e6, 1e6),
    weightings,
    st.sampled_from(["none", "product", "loss", "relative", "risk"]),
    forms,
)
@pytest.mark.slow
def test_normalised_penalties_are_finite_in_every_scaling(batch, weighting, scaling, form):
    losses, logs, weight = batch
    found = penalty_and_gradients(losses, logs, weighting, scaling, weight, True, form)
    assert all(values.isfinite().all() for values in found)


@settings(facts, max_examples=80)
@given(
    batches(-1e6, 8.0),
    st.sampled_from(["density", "overlap", "tilted", "uniform", "published"]),
    st.sampled_from(["none", "product", "loss"]),
    forms,
)
def test_in_the_densities_unit_they_are_finite_up_to_large_densities(
    batch, weighting, scaling, form
):
    """All but ratios, which are beyond all numbers where a density is next to nothing."""
    losses, logs, weight = batch
    found = penalty_and_gradients(losses, logs, weighting, scaling, weight, False, form)
    assert all(values.isfinite().all() for values in found)


@settings(facts, max_examples=60)
@given(
    batches(-80.0, 80.0),
    st.sampled_from(["density", "overlap", "tilted", "ratio", "published"]),
    st.sampled_from(["none", "product", "loss", "relative", "risk"]),
    st.booleans(),
    forms,
)
def test_no_overlap_means_no_penalty(batch, weighting, scaling, normalised, form):
    losses, logs, weight = batch
    own = torch.eye(len(losses), dtype=torch.bool)[..., None]
    logs = torch.where(own, logs, -torch.inf)
    found = penalty_and_gradients(losses, logs, weighting, scaling, weight, normalised, form)
    assert all((values == 0).all() for values in found)


@settings(facts, max_examples=25)
@given(batches(-1.0, 1.0), forms)
def test_the_other_penalties_of_finite_numbers_are_finite(batch, form):
    losses, _, weight = batch
    values = losses.requires_grad_()
    features = torch.stack([losses, losses.square()], -1)  # [E, B, F]
    penalties = [
        vrex_penalty(values.mean(-1)),
        irm_penalty(values, form, weight).mean(),
        coral_penalty(features, weight),
    ]
    for penalty in penalties:
        (gradient,) = torch.autograd.grad(penalty, values, retain_graph=True)
        assert penalty.isfinite()
        assert gradient.isfinite().all()
