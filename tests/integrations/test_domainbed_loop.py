"""Our objectives in DomainBed's training loop: equal to the objectives themselves."""

import copy
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from wri.densities import EnvironmentClassifier, FittedClassifier
from wri.errors import InputError
from wri.integrations.domainbed import ALGORITHMS, WRIAlgorithm, hparam_settings
from wri.integrations.domainbed.hparams import LABELS
from wri.objectives.base import Batch, Model, StepContext
from wri.registry import OBJECTIVES
from wri.stacked import CROSS_ENTROPY, Network, Streams

SHAPE = (2, 3)  # as a picture of one row and two channels would have
HPARAMS = {
    "lr": 0.03,
    "weight_decay": 1e-3,
    "irm_lambda": 5.0,
    "irm_penalty_anneal_iters": 2,
    "vrex_lambda": 5.0,
    "vrex_penalty_anneal_iters": 2,
    "groupdro_eta": 0.5,
    "mixup_alpha": 0.4,
    "mldg_beta": 0.7,
    "n_meta_test": 1,
    "mmd_gamma": 2.0,
    "eqrm_burnin_iters": 2,
    "penalty": 0.1,
    "ib_lambda": 0.5,
    "ib_penalty_anneal_iters": 1,
    "lambda": 5.0,
    "penalty_anneal_iters": 2,
    "ema": 0.9,
    "wri_lambda": 3.0,
    "wri_density_steps": 3,
    "resnet18": False,  # not ours: ignored
}


def make_featurizer():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU())


def make_algorithm(label, seed=0, domains=3, hparams=HPARAMS):
    torch.manual_seed(seed)
    featurizer = make_featurizer().double()
    return ALGORITHMS[label](SHAPE, 4, domains, hparams, featurizer=featurizer)


def make_minibatches(step, domains=3, rows=(16, 16, 16), dtype=torch.float64):
    """Four classes, whose features are shifted from environment to environment."""
    random = torch.Generator().manual_seed(100 + step)
    made = []
    for e in range(domains):
        y = torch.randint(4, (rows[e],), generator=random)
        x = 0.5 * torch.randn((rows[e], 6), generator=random, dtype=dtype) + 0.3 * e
        x[torch.arange(rows[e]), y] += 1.5
        made.append((x.view(-1, *SHAPE), y))
    return made


def loss_of_the_objective(algorithm, minibatches):
    """The loss of the same objective, weights and state on a stack with one run."""
    step = int(algorithm.update_count)
    parts = (*algorithm.featurizer.parameters(), *algorithm.classifier.parameters())
    flat = torch.cat([p.detach().reshape(-1) for p in parts])[None].requires_grad_()
    model = Model(Network((6, 5, 4)), flat, CROSS_ENTROPY)
    longest = max(len(y) for _, y in minibatches)
    x = torch.zeros(1, len(minibatches), longest, 6, dtype=torch.float64)
    y = torch.zeros(1, len(minibatches), longest, dtype=torch.long)
    weight = torch.zeros(1, len(minibatches), longest, dtype=torch.float64)
    for e, (own, targets) in enumerate(minibatches):
        x[0, e, : len(own)], y[0, e, : len(own)] = own.flatten(1), targets
        weight[0, e, : len(own)] = 1 / len(own)
    hyper = {name: flat.new_tensor([value]) for name, value in algorithm.hyper.items()}
    random = Streams([int(algorithm.seed)], f"step {step}", torch.float64, "cpu")
    state = copy.deepcopy(algorithm._read_state())
    context = StepContext(step, hyper, random)
    even = len({len(y) for _, y in minibatches}) == 1
    batch = Batch(x, y, None if even else weight)
    loss, _ = algorithm.objective.loss(model, batch, state, context)
    return float(loss.detach())


@pytest.mark.parametrize("rows", [(16, 16, 16), (16, 9, 12)], ids=["even", "uneven"])
@pytest.mark.parametrize("label", ALGORITHMS)
@pytest.mark.slow
def test_every_step_has_the_loss_of_the_objective(label, rows):
    algorithm = make_algorithm(label)
    for step in range(4):  # beyond the annealing step and WRI's first density update
        minibatches = make_minibatches(step, rows=rows)
        expected = loss_of_the_objective(algorithm, minibatches)
        found = algorithm.update(minibatches)
        assert found["loss"] == pytest.approx(expected, abs=1e-6)
        assert int(algorithm.update_count) == step + 1


@pytest.mark.parametrize("label", ALGORITHMS)
@pytest.mark.slow
def test_every_algorithm_learns(label):
    algorithm = make_algorithm(label)
    x, y = (torch.cat(parts) for parts in zip(*make_minibatches(999), strict=True))

    def risk():
        with torch.no_grad():
            return float(nn.functional.cross_entropy(algorithm.predict(x), y))

    before = risk()
    for step in range(60):
        found = algorithm.update(make_minibatches(step), None)
        assert np.isfinite(list(found.values())).all()
    assert risk() < 0.8 * before
    assert algorithm(x).shape == (48, 4)


def test_what_is_reported_adds_up():
    for label in ALGORITHMS:
        algorithm = make_algorithm(label)
        for step in range(3):
            minibatches = make_minibatches(step)
            with torch.no_grad():
                parts = [nn.functional.cross_entropy(algorithm(x), y) for x, y in minibatches]
            found = algorithm.update(minibatches)
            if label in ("Mixup", "MLDG"):
                assert [*found] == ["loss"]
                continue
            assert found["risk"] == pytest.approx(float(sum(parts)) / 3)
            assert found["risk"] + found["penalty"] == pytest.approx(found["loss"])
        if label == "ERM":
            assert found["penalty"] == pytest.approx(0)


@pytest.mark.slow
def test_densities_learn_where_rows_are_common():
    """WRI's penalty starts with the first density update; then own rows are denser than others'."""
    algorithm = make_algorithm("WRI", hparams=HPARAMS | {"wri_density_penalty_weight": 0.0})
    penalties = [algorithm.update(make_minibatches(step))["penalty"] for step in range(80)]
    assert penalties[0] == pytest.approx(0)
    assert max(penalties) > 0
    state = algorithm._read_state()
    assert bool(state.fitted)
    before = make_algorithm("WRI").get_buffer("state_flat")
    x = torch.stack([x for x, _ in make_minibatches(999)])
    with torch.no_grad():
        phi = algorithm.featurizer(x.flatten(0, 1)).view(1, 3, 16, 5)
        hyper = {name: phi.new_tensor([value]) for name, value in algorithm.hyper.items()}
        density = algorithm.objective.density
        own, at_first = (
            density.log_density_own(flat, phi, hyper).mean() for flat in (state.flat, before)
        )
    assert own > at_first


@pytest.mark.parametrize(("label", "prefix"), [("ERM", "erm"), ("WRI", "wri")])
def test_gradients_are_clipped(label, prefix):
    def norm_after_a_step(hparams):
        algorithm = make_algorithm(label, hparams=HPARAMS | hparams)
        algorithm.update(make_minibatches(0))
        gradients = [parameter.grad.flatten() for parameter in algorithm.parameters()]
        return float(torch.cat(gradients).norm())

    free = norm_after_a_step({})
    clipped = norm_after_a_step({f"{prefix}_clip_norm": free / 5})
    assert clipped == pytest.approx(free / 5, rel=1e-4)
    assert norm_after_a_step({f"{prefix}_clip_norm": free * 5}) == pytest.approx(free)


def test_a_schedule_of_unknown_length_is_refused():
    assert make_algorithm("WRI", hparams=HPARAMS | {"wri_final_rate": 1.0})
    with pytest.raises(InputError, match=r"wri_final_rate = 0\.1 needs the number of steps"):
        make_algorithm("WRI", hparams=HPARAMS | {"wri_final_rate": 0.1})


def test_the_penalty_follows_the_annealing_step_at_once():
    """The densities are updated at the annealing step, also where ω does not divide it."""
    hparams = HPARAMS | {"wri_penalty_anneal_iters": 3, "wri_density_every": 4}
    algorithm = make_algorithm("WRI", hparams=hparams)
    penalties = [algorithm.update(make_minibatches(step))["penalty"] for step in range(6)]
    assert penalties[:4] == pytest.approx([0] * 4)
    assert min(penalties[4:]) > 1e-6


@pytest.mark.parametrize("label", ALGORITHMS)
def test_a_saved_state_goes_on_as_the_original(label):
    """Weights, densities, weights of environments, step number and random draws."""
    algorithm = make_algorithm(label)
    for step in range(3):
        algorithm.update(make_minibatches(step))
    other = make_algorithm(label, seed=5)
    other.load_state_dict(algorithm.state_dict())
    other.optimizer.load_state_dict(copy.deepcopy(algorithm.optimizer.state_dict()))
    for step in range(3, 6):
        first, second = (each.update(make_minibatches(step)) for each in (algorithm, other))
        assert first == second
    saved = algorithm.state_dict()
    assert all(torch.equal(value, saved[name]) for name, value in other.state_dict().items())


def test_a_copy_trains_apart_from_the_original():
    algorithm = make_algorithm("WRI")
    twin = copy.deepcopy(algorithm)
    before = {name: value.clone() for name, value in algorithm.state_dict().items()}
    twin.update(make_minibatches(0))
    assert all(torch.equal(v, before[name]) for name, v in algorithm.state_dict().items())
    changed = [name for name, value in twin.state_dict().items() if not value.equal(before[name])]
    assert {"featurizer.1.weight", "classifier.weight", "state_flat", "update_count"} <= {*changed}


def test_the_precision_and_device_of_the_parameters_count():
    """Moved after it is made, as DomainBed does it; on the "meta" device nothing is computed."""
    algorithm = make_algorithm("WRI").float()
    found = algorithm.update(make_minibatches(0, dtype=torch.float32))
    assert np.isfinite(found["loss"])
    assert algorithm.state_flat.dtype == torch.float32
    moved = make_algorithm("WRI").to("meta")
    assert {tensor.device.type for tensor in moved.state_dict().values()} == {"meta"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
@pytest.mark.parametrize("label", ALGORITHMS)
def test_on_cuda(label):
    algorithm = make_algorithm(label).cuda()
    for step in range(3):
        minibatches = [(x.cuda(), y.cuda()) for x, y in make_minibatches(step)]
        assert np.isfinite(algorithm.update(minibatches)["loss"])


def test_adam_starts_anew_when_annealing_ends():
    algorithm = make_algorithm("VREx")
    optimizers = []
    for step in range(4):
        algorithm.update(make_minibatches(step))
        optimizers.append(algorithm.optimizer)
    assert optimizers[0] is optimizers[1]
    assert optimizers[1] is not optimizers[2]
    assert optimizers[2] is optimizers[3]


def test_missing_hparams_have_defaults_and_bad_ones_are_named():
    algorithm = WRIAlgorithm((3,), 2, 2, {})
    assert algorithm.hyper["penalty_weight"] == hparam_settings("WRI")["wri_lambda"].default
    assert algorithm.update([(torch.randn(4, 3), torch.arange(4) % 2)] * 2)["loss"] > 0
    with pytest.raises(InputError, match=r"hyper-parameter wri_lambda = -1 lies outside"):
        WRIAlgorithm((3,), 2, 2, {"wri_lambda": -1.0})


def test_hparams_are_ours_under_domainbeds_names():
    assert {*LABELS.values()} == {*OBJECTIVES}
    for label, name in LABELS.items():
        settings = hparam_settings(label)
        assert len(settings) == len(OBJECTIVES[name].objective.own_hyperparameters)
        for default, draw in settings.values():
            first, again = (draw(np.random.RandomState(3)) for _ in range(2))
            assert first == again
            assert isinstance(default, int | float)
    irm = hparam_settings("IRM")
    assert irm["irm_lambda"].default == 100.0
    drawn = [irm["irm_lambda"].draw(np.random.RandomState(s)) for s in range(50)]
    assert 0.1 <= min(drawn) < 10 < 1e3 < max(drawn) <= 1e5
    assert irm["irm_ramp_steps"].draw(np.random.RandomState(0)) == 0
    with pytest.raises(InputError, match="algorithm must be one of ERM, IRM"):
        hparam_settings("DANN")


def test_the_featurizer_is_given_made_or_domainbeds(monkeypatch):
    made = WRIAlgorithm(SHAPE, 4, 3, HPARAMS, featurizer=lambda shape, hparams: make_featurizer())
    assert made.classifier.in_features == 5
    monkeypatch.setitem(sys.modules, "domainbed", None)  # as if it were not installed
    with pytest.raises(InputError, match=r"shape \(2, 3\) need a featurizer and DomainBed is not"):
        WRIAlgorithm(SHAPE, 4, 3, HPARAMS)
    assert WRIAlgorithm((6,), 4, 3, HPARAMS).predict(torch.zeros(7, 6)).shape == (7, 4)

    class Featurizer(nn.Sequential):
        n_outputs = 5

        def __init__(self, input_shape, hparams):
            assert (input_shape, hparams["lr"]) == (SHAPE, 0.03)
            super().__init__(*make_featurizer())

    networks = ModuleType("domainbed.networks")
    networks.Featurizer = Featurizer
    monkeypatch.setitem(sys.modules, "domainbed", ModuleType("domainbed"))
    monkeypatch.setitem(sys.modules, "domainbed.networks", networks)
    assert isinstance(WRIAlgorithm(SHAPE, 4, 3, HPARAMS).featurizer, Featurizer)


def test_other_options_of_the_objective():
    class OverlapWRI(WRIAlgorithm):
        options = {  # noqa: RUF012
            **WRIAlgorithm.options,
            "weighting": "overlap",
            "density": EnvironmentClassifier(),
        }

    algorithm = OverlapWRI((3,), 2, 2, {})
    rows = [(torch.randn(8, 3) + e, torch.arange(8) % 2) for e in range(2)]
    assert [algorithm.update(rows)["penalty"] > 0 for _ in range(2)] == [False, True]

    class FittedWRI(WRIAlgorithm):
        options = {**OverlapWRI.options, "density": FittedClassifier()}  # noqa: RUF012

    with pytest.raises(InputError, match="FittedClassifier is fitted on whole environments"):
        FittedWRI((3,), 2, 2, {})


@pytest.mark.parametrize(
    ("minibatches", "message"),
    [
        (make_minibatches(0)[:2], r"per environment \(3, num_domains\), but 2 were given"),
        ([(x[:0], y[:0]) for x, y in make_minibatches(0)], "minibatch 0 has no rows"),
    ],
)
def test_minibatches_that_cannot_be(minibatches, message):
    with pytest.raises(InputError, match=message):
        make_algorithm("ERM").update(minibatches)


def test_one_environment_is_enough_for_erm_alone():
    make_algorithm("ERM", domains=1).update(make_minibatches(0, domains=1))
    with pytest.raises(InputError, match="vrex needs 2 training environments"):
        make_algorithm("VREx", domains=1)


def test_a_state_is_kept_as_named_buffers():
    algorithm = make_algorithm("WRI")
    names = {name for name, _ in algorithm.named_buffers()}
    assert {"state_flat", "state_adam_mean", "state_fitted"} <= names
    state = algorithm._read_state()
    assert state.adam.mean is algorithm.get_buffer("state_adam_mean")
    assert state.mean_weight is None
