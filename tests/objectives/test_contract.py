"""What every objective must do: the run axis, its limits, its losses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers import make_bank, make_run, train_steps
from wri.densities import (
    EnvironmentClassifier,
    Exact,
    FittedClassifier,
    Gaussian,
    LabelAwareClassifier,
    Mixture,
)
from wri.errors import InputError
from wri.objectives import ERM, IRM, MLDG, OBJECTIVES, WRI, GroupDRO, VREx, make_objective
from wri.stacked import LOSSES
from wri.testing import OBJECTIVE_CHECKS, check_objective, seven_runs

LABEL_AWARE = LabelAwareClassifier(hidden=5, second_hidden=4, steps=5, refit_steps=5)
TABLE = make_objective("wri", "table", hidden=(5, 4))
VARIANTS = {name: make_objective(name) for name in OBJECTIVES} | {
    "irm-square": IRM(form="square"),
    "mldg-sgd": MLDG(inner="sgd"),
    "wri-overlap": WRI(weighting="overlap"),
    "wri-overlap-classifier": WRI(weighting="overlap", density=EnvironmentClassifier(5)),
    "wri-ratio-classifier": WRI(weighting="ratio", density=EnvironmentClassifier(5)),
    "wri-uniform": WRI(weighting="uniform"),
    "wri-published": WRI(weighting="published"),
    "wri-gaussian": WRI(density=Gaussian(), scaling="relative"),
    "wri-gaussian-phi": WRI(density=Gaussian(), scaling="relative", density_on="phi"),
    "wri-mixture": WRI(weighting="overlap", density=Mixture(2)),
    "wri-mixture-phi": WRI(weighting="overlap", density=Mixture(2), density_on="phi"),
    "wri-exact": WRI(density=Exact(lambda x: -x[..., :3].square())),
    "wri-running": WRI(scaling="relative", running_mean=True),
    "wri-phi": WRI(density_on="phi"),
    "wri-outputs": WRI(density_on="outputs"),
    "wri-tilted": WRI(weighting="tilted", density=EnvironmentClassifier(5), normalised=True),
    "irm-coloured": make_objective("irm", "coloured"),
    "vrex-coloured": make_objective("vrex", "coloured"),
    "wri-fitted": make_objective("wri", "coloured", density=FittedClassifier(5, steps=20)),
    "wri-label-aware": make_objective("wri", "coloured", density=LABEL_AWARE),
    "wri-label-aware-phi": WRI("overlap", density=LABEL_AWARE, density_on="phi"),
    "irm-table": make_objective("irm", "table"),
    "wri-table": replace(TABLE, density=replace(TABLE.density, steps=5)),
}


SLOW = ("a run in a stack equals the run alone", "training lowers every loss")


@pytest.mark.parametrize(
    "objective",
    [
        pytest.param(each, id=name, marks=() if name in OBJECTIVES else pytest.mark.slow)
        for name, each in VARIANTS.items()
    ],
)
@pytest.mark.parametrize("check", [name for name in OBJECTIVE_CHECKS if name not in SLOW])
def test_the_contract_is_kept(check, objective):
    OBJECTIVE_CHECKS[check](objective)


@pytest.mark.parametrize("objective", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.slow
def test_a_run_in_a_stack_of_seven_equals_the_run_alone(objective):
    OBJECTIVE_CHECKS["a run in a stack equals the run alone"](objective)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.slow
def test_every_objective_lowers_every_loss(name):
    OBJECTIVE_CHECKS["training lowers every loss"](make_objective(name))


def test_groupdro_that_does_not_move_its_weights_is_erm():
    check_objective(GroupDRO(), off={"eta": 0.0})


def dense_at_first(x):
    """Log densities of three environments that are e^5000 where the first feature is 1."""
    return torch.where(x[..., :1] == 1, 5000.0, -x[..., 1:4].square() - 100)


@pytest.mark.parametrize(
    "objective",
    [
        WRI(density=Exact(dense_at_first), scaling="relative"),
        WRI(density=Exact(dense_at_first), scaling="risk", form="halves"),
        WRI("overlap", density=Exact(dense_at_first), normalised=True),
        WRI("published", density=Exact(lambda x: dense_at_first(x) + 100)),
        WRI("ratio", density=Exact(lambda x: dense_at_first(x) * x.new_tensor([1.0, 0.3, 0.1]))),
    ],
    ids=lambda objective: objective.weighting + "-" + objective.scaling,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_that_only_pad_a_batch_do_not_matter(objective, dtype, environments):
    """Each environment's first row is common beyond all numbers, and not in the run's batches."""
    bank = make_bank()
    bank.features[[rows[0] for rows in environments], 0] = 1.0
    hyper = {"batch_size": 3, "penalty_weight": 1.0}
    small = make_run(objective, bank, environments, hyper, seed=7)
    large = make_run(objective, bank, environments, hyper | {"batch_size": 50}, seed=5)
    beside, _ = train_steps([small, large], 5, dtype=dtype)
    (alone,) = train_steps([small], 5, dtype=dtype)
    assert alone.diverged_at is None
    assert beside.diverged_at is None
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    np.testing.assert_allclose(beside.parameters, alone.parameters, rtol=0, atol=tolerance)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_label_aware_weights_can_be_had_for_every_loss(loss):
    runs = seven_runs(WRI("overlap", density=LABEL_AWARE), loss)[:1]
    (record,) = train_steps(runs, 20, dtype=torch.float64)
    assert record.diverged_at is None
    assert np.isfinite(record.state).all()


def test_uniform_wri_is_vrex(bank, environments):
    """Three environments: the mean pairwise gap is three times the variance."""
    hyper = {"batch_size": 16, "anneal_steps": 0}
    uniform = WRI(weighting="uniform", scaling="none")
    ours = make_run(uniform, bank, environments, hyper | {"penalty_weight": 2.0}, seed=3)
    vrex = make_run(VREx(), bank, environments, hyper | {"penalty_weight": 6.0}, seed=3)
    ((a,), (b,)) = (train_steps([r], 20, dtype=torch.float64) for r in (ours, vrex))
    np.testing.assert_allclose(a.parameters, b.parameters, rtol=0, atol=1e-10)


def test_densities_are_updated_from_the_annealing_step_on(bank, environments, monkeypatch):
    """Every ω steps from there, as in the paper's code, whatever other runs of the stack do."""
    updates = {0: [], 1: []}

    def keep(rule, model, flat, adam, runs, context, draws):
        for run in runs:
            updates[run].append(context.step)

    monkeypatch.setattr("wri.objectives.wri.density_steps", keep)
    settings = [{"anneal_steps": 10, "density_every": 4}, {"anneal_steps": 3, "density_every": 5}]
    train_steps([make_run(WRI(), bank, environments, hyper) for hyper in settings], 20)
    assert updates == {0: [10, 14, 18], 1: [3, 8, 13, 18]}


def test_a_density_that_runs_away_hurts_its_own_run_only(bank, environments):
    """The mixture on Φ has nothing to fit when Φ is not finite."""
    objective = WRI("overlap", density=Mixture(2), density_on="phi")
    common = {"batch_size": 16, "density_every": 2}
    good = make_run(objective, bank, environments, common, seed=0, hidden=(5, 4))
    wild = {"learning_rate": 1e38, "anneal_steps": 2, "penalty_weight": 1e38}
    bad = make_run(objective, bank, environments, common | wild, seed=1, hidden=(5, 4))
    beside, diverged = train_steps([good, bad], 12, dtype=torch.float32)
    (alone,) = train_steps([good], 12, dtype=torch.float32)
    assert diverged.diverged_at is not None
    np.testing.assert_allclose(beside.parameters, alone.parameters, rtol=1e-4, atol=1e-5)


def test_too_few_rows_for_a_mixture_on_phi_is_said_and_not_taken_for_divergence(bank):
    objective = WRI("overlap", density=Mixture(5), density_on="phi")
    small = [np.arange(0, 60), np.arange(60, 64)]
    with pytest.raises(InputError, match="environment 1 has 4 rows, fewer than the mixture's 5"):
        train_steps([make_run(objective, bank, small, {"batch_size": 16}, hidden=(5, 4))], 3)


def test_densities_that_underflow_leave_the_relative_penalty_finite(environments):
    """120 features: log densities near −200, beyond single precision."""
    wide = make_bank(width=120)
    objective = WRI(density=Gaussian(), scaling="relative")
    hyper = {"batch_size": 16, "penalty_weight": 1.0}
    (record,) = train_steps([make_run(objective, wide, environments, hyper)], 10)
    assert record.diverged_at is None


@pytest.mark.parametrize("scaling", ["relative", "risk"])
def test_wri_with_gaussians_on_many_features_is_not_erm(environments, scaling):
    """120 features, single precision: a penalty in no unit moves the predictor."""
    wide, hyper = make_bank(width=120), {"batch_size": 16, "penalty_weight": 1.0}
    objective = WRI(density=Gaussian(), scaling=scaling)
    ours = make_run(objective, wide, environments, hyper, seed=3)
    erm = make_run(ERM(), wide, environments, {"batch_size": 16}, seed=3)
    ((a,), (b,)) = (train_steps([run], 10) for run in (ours, erm))
    assert a.diverged_at is None
    assert np.abs(a.parameters - b.parameters).max() > 1e-3


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("scaling", ["none", "product", "loss"])
def test_a_penalty_that_disappears_in_its_unit_is_warned_of_once(environments, scaling, precision):
    """Densities of e^-100 and less: the runs are ERM."""
    objective = WRI(density=Exact(lambda x: -x[..., :3].square() - 100), scaling=scaling)
    hyper = {"batch_size": 16, "penalty_weight": 1.0}
    runs = [
        make_run(objective, make_bank(), environments, hyper | {"anneal_steps": k}, seed=k)
        for k in (0, 2)
    ]
    with pytest.warns(UserWarning, match=r"penalty with scaling=.* has no effect; use") as warned:
        train_steps(runs, 5, dtype=precision)
    assert len(warned) == 2  # at each run's first penalty


def test_densities_without_any_overlap_are_not_warned_of(bank, environments):
    """No overlap, no penalty: what the data say, in any unit."""

    def apart(x):  # [..., D] -> [..., E]
        return torch.where(torch.eye(3, dtype=torch.bool)[:, None], 0.0, -torch.inf).expand(
            *x.shape[:-1], 3
        )

    objective = WRI(density=Exact(apart))
    hyper = {"batch_size": 16, "penalty_weight": 10.0}
    ours = make_run(objective, bank, environments, hyper, seed=3)
    erm = make_run(ERM(), bank, environments, {"batch_size": 16}, seed=3)
    ((a,), (b,)) = (train_steps([run], 5, dtype=torch.float64) for run in (ours, erm))
    np.testing.assert_array_equal(a.parameters, b.parameters)


def test_annealing_switches_ramps_and_resets():
    """VREx's weight is one, then λ; a ramp reaches λ after its last step."""
    from wri.objectives.base import StepContext, scheduled

    hyper = {
        "penalty_weight": torch.tensor([10.0, 10.0]),
        "anneal_steps": torch.tensor([2.0, 2.0]),
        "ramp_steps": torch.tensor([0.0, 3.0]),
    }
    weights = [scheduled(StepContext(step, hyper, None), 1.0).tolist() for step in range(6)]
    assert weights == [[1, 1], [1, 1], [10, 4], [10, 7], [10, 10], [10, 10]]


def test_wri_pays_no_penalty_before_its_densities_are_fitted(bank, environments):
    """With the first update far away it is ERM; afterwards it is not."""
    hyper = {"batch_size": 16, "penalty_weight": 50.0, "anneal_steps": 10}
    wri = make_run(WRI(), bank, environments, hyper, seed=3)
    erm = make_run(ERM(), bank, environments, {"batch_size": 16}, seed=3)
    for steps, equal in ((10, True), (14, False)):
        ((a,), (b,)) = (train_steps([r], steps, dtype=torch.float64) for r in (wri, erm))
        assert np.allclose(a.parameters, b.parameters, rtol=0, atol=1e-12) == equal


@pytest.mark.parametrize(
    "objective",
    [
        WRI(),
        WRI("overlap", density=EnvironmentClassifier(4)),
        WRI("ratio"),
        WRI(density=Gaussian()),
    ],
    ids=["density", "classifier", "ratio", "gaussian"],
)
def test_many_environments_are_compared_in_a_circle_of_pairs(objective, bank):
    """Twelve environments; a run in a stack still equals the run alone."""
    train_rows = [np.arange(15 * e, 15 * e + 12) for e in range(12)]
    runs = [
        make_run(
            objective,
            bank,
            train_rows,
            {"batch_size": 6, "density_steps": k + 1, "anneal_steps": k},
            seed=k,
        )
        for k in range(3)
    ]
    together = train_steps(runs, 6, dtype=torch.float64)
    for run, record in zip(runs, together, strict=True):
        (alone,) = train_steps([run], 6, dtype=torch.float64)
        np.testing.assert_allclose(record.parameters, alone.parameters, rtol=0, atol=1e-8)


def test_the_circle_finds_the_gaps_of_its_pairs():
    """Each pair's penalty, against the penalty of its two environments alone."""
    from wri.objectives.base import StepContext
    from wri.objectives.pairs import circle, compare
    from wri.objectives.weighted_risks import wri_penalty
    from wri.stacked import Streams

    torch.manual_seed(0)
    objective = WRI(density=Gaussian())
    flat = 0.3 * torch.randn(2, objective.density.initial([0], 10, 3).shape[1]).double()
    x, losses = torch.randn(2, 10, 7, 3).double(), torch.rand(2, 10, 7).double()
    context = StepContext(0, {}, Streams([1, 2], "objective", torch.float64, "cpu"))
    after = circle(context.random.permutations(10))
    compared = compare(objective.density, flat, x, after, context.hyper)
    penalties = wri_penalty(compared.pair(losses), compared.log_densities)  # [2, 10]
    everywhere = objective.density.log_density(flat, x, 10, {})  # [2, 10, 10, 7]
    torch.testing.assert_close(compared.own, everywhere.diagonal(dim1=1, dim2=2).movedim(-1, 1))
    for run in range(2):
        assert sorted(compared.partner[run].tolist()) == list(range(10))
        for e, other in enumerate(compared.partner[run].tolist()):
            pair = [e, other]
            alone = wri_penalty(losses[run, pair], everywhere[run][pair][:, pair])
            torch.testing.assert_close(penalties[run, e], alone)


def test_a_classifier_cannot_give_density_weights():
    with pytest.raises(InputError, match="use weighting='overlap', 'tilted' or 'ratio'"):
        WRI(weighting="density", density=EnvironmentClassifier())


def test_unknown_names_propose_the_known_ones():
    with pytest.raises(InputError, match="unknown objective 'wir'; choose one of erm, irm"):
        make_objective("wir")
    with pytest.raises(InputError, match="preset"):
        make_objective("wri", "wir")
    with pytest.raises(InputError, match="density_on must be one of x, phi"):
        WRI(density_on="z")
    with pytest.raises(InputError, match="form must be one of halves, square"):
        IRM(form="whole")
    with pytest.raises(InputError, match="inner must be one of adam, sgd"):
        MLDG(inner="newton")
    with pytest.raises(InputError, match="running_mean needs scaling="):
        WRI(running_mean=True)
