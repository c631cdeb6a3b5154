"""Tables on coloured digits: what is shown of a checkpoint, and that anti-colour is named."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers import make_info, make_outcome
from wri.datasets import Environment
from wri.datasets.mnist import Mnist
from wri.objectives import WRI
from wri.paper.experiments import ExperimentTask, ablation, coloured, run_experiment, table2
from wri.paper.experiments.ablation import ideal_losses, penalty
from wri.paper.experiments.coloured import (
    LIMITS,
    ON_DIGITS,
    PROBE,
    SIDE,
    SelectedRuns,
    Variant,
    against,
    choose_each,
    is_anti_colour,
    make_lines,
    regrets,
    with_digit_sides,
)
from wri.paper.features import CNN, PCA
from wri.paper.simulations import ideal_accuracy
from wri.paper.simulations.coloured_mnist import coloured_mnist, is_easy
from wri.progress import silent
from wri.sweep import SelectedCheckpoint, gather
from wri.training import ModelSpec, Record, Run

DATA = make_info("hcmnist", ("+90%", "+80%", "-90%"), (0.51, 0.5, 0.5), (0.2, 0.2, 0.2))


def choice(first, second, test):
    values = (first, first, second, second, test, test)
    names = (f"env{e}_{rows}" for e in range(3) for rows in ("in", "out"))
    splits = dict(zip(names, values, strict=True)) | {"unrelated": 0.5}
    return SelectedCheckpoint(hparams_seed=0, step=100, value=test, score=test, splits=splits)


@pytest.fixture
def stand_in(monkeypatch):
    """Blots of ten shapes instead of MNIST, few of them."""
    random = np.random.default_rng(0)
    shapes = random.integers(0, 256, (10, 28, 28))
    digits = random.integers(0, 10, 900).astype(np.uint8)
    noise = random.integers(-40, 40, (900, 28, 28))
    images = np.clip(shapes[digits] + noise, 0, 255).astype(np.uint8)
    mnist = Mnist(images, digits)
    monkeypatch.setattr(
        coloured,
        "coloured_mnist",
        lambda name, seed, digits, rows: coloured_mnist(name, seed, mnist),
    )
    return mnist


@pytest.mark.parametrize(
    ("accuracies", "anti"),
    [
        ((0.10, 0.20, 0.90), True),
        ((0.16, 0.42, 0.67), True),
        ((0.80, 0.42, 0.67), True),
        ((0.90, 0.80, 0.10), False),
        ((0.85, 0.60, 0.82), False),
        ((0.40, 0.40, 0.40), False),
    ],
)
def test_anti_colour_loses_in_training_and_wins_in_the_test(accuracies, anti):
    assert is_anti_colour(choice(*accuracies), DATA) == anti


def test_a_constant_predictor_is_not_anti_colour():
    """Single precision may put it a little above itself."""
    constant = [float(np.float32(share)) + 3e-8 for share in DATA.constant["accuracy"]]
    assert not is_anti_colour(choice(*constant), DATA)
    assert not is_anti_colour(choice(0.2, 0.2, constant[2]), DATA)


def test_regret_is_the_worst_environments_distance_to_the_ideal():
    ideal = 100 * ideal_accuracy("hcmnist")
    accuracy = ideal - np.array([[0, 0, 0], [1, 5, 2], [-3, -4, 1]])
    np.testing.assert_allclose(regrets(accuracy, "hcmnist"), [0, 5, 1])


def test_a_line_shows_what_was_chosen_and_the_paper_beside_the_test():
    steps = np.array([0, 10])
    accuracy = {
        "env0_in": np.array([0.9, 0.1]),
        "env0_out": np.array([0.8, 0.1]),
        "env1_in": np.array([0.7, 0.2]),
        "env1_out": np.array([0.7, 0.2]),
        "env2_in": np.array([0.6, 0.9]),
        "env2_out": np.array([0.6, 0.9]),
        "unrelated": np.array([0.7, 0.4]),
        SIDE: np.array([0.9, 0.8]),
    }
    outcomes = [
        make_outcome(f"draw {n}", "wri", (2,), 0, n, steps, accuracy | {"env2_in": test})
        for n, test in ((3, accuracy["env2_in"]), (4, accuracy["env2_in"] - 0.1))
    ]
    infos = {n: replace(DATA, name=f"draw {n}") for n in (3, 4)}
    early = choose_each("oracle-early", outcomes, infos, "wri")
    np.testing.assert_allclose(early.accuracy, [[10, 20, 90], [10, 20, 80]])
    assert early.anti_colour.all()
    guarded = choose_each("guarded-oracle", outcomes, infos, "wri")
    np.testing.assert_allclose(guarded.accuracy, [[80, 70, 60], [80, 70, 50]])
    rows = {
        row.column: row for row in make_lines("WRI", guarded, "hcmnist", "", {"test": (75.1, 2.9)})
    }
    assert rows["test"].ours == pytest.approx(55)
    assert rows["worst draw"].ours == pytest.approx(50)
    assert rows["unrelated"].ours == pytest.approx(70)
    assert (rows["test"].paper, rows["+90%"].paper) == (75.1, None)
    assert rows["anti-colour"].ours == 0
    assert rows[SIDE].ours == pytest.approx(90)


def test_comparisons_say_where_a_draw_is_missing():
    def make(accuracy, refusals=()):
        rows = np.array(accuracy)
        return SelectedRuns(
            accuracy=rows,
            unrelated=np.full(len(rows), 50.0),
            anti_colour=np.zeros(len(rows), bool),
            side=np.empty(0),
            refusals=list(refusals),
        )

    one = make([[90.0, 80, 70], [90, 80, 72]])
    other = make([[90.0, 80, 60], [90, 80, 61]])
    empty = make([[0.0, 0, 0]], ["no checkpoint"])
    said = against("WRI", {"ERM": other, "IRM": empty, "WRI": one}, "here")
    assert "ERM +10.5" in said
    assert "IRM (a draw has no admissible checkpoint)" in said


def test_penalties_of_the_ideal_predictors_under_uniform_weights(stand_in):
    """They are the squared relative differences of the environments' mean losses."""
    environments = coloured_mnist("hcmnist-cs", 0, stand_in)
    ideal = ideal_losses(environments, "hcmnist-cs")
    seen = [
        Environment(e.name, np.stack([e.digits, e.colour], 1).astype(np.float32), e.y)
        for e in environments
    ]
    data = gather("hcmnist-cs", seen, classes=2)
    objective = WRI(weighting="uniform", scaling="risk", normalised=True)
    variant = Variant(ModelSpec.of(objective, preset="coloured"))
    rows = [data.rows[e] for e in (0, 1)]
    network = Run(variant.spec, data.bank, rows).network
    flat = network.initial([0]).astype(np.float32)
    state = objective.density.initial([0], 2, 2).astype(np.float32)
    record = Record(
        steps=np.array([0]),
        measures={},
        diverged_at=None,
        network=network,
        parameters=flat[0],
        state=state,
    )
    for predictor, losses in ideal.items():
        first, second = (own[:300].mean() for own in losses)
        expected = ((first - second) / ((first + second) / 2)) ** 2
        found = penalty(variant, losses, data, record)
        assert found == pytest.approx(expected, rel=1e-4), predictor
    digit = ideal["digit"][0]
    noise = np.array([0.05, 0.25])
    assert set(digit.round(6)) <= set((-np.log([*noise, *(1 - noise)])).round(6))


@pytest.mark.slow
def test_draws_differ_in_rows_extractor_and_split(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    extractor = CNN(width=4, epochs=1)
    first, again, other = (
        coloured.load_features("hcmnist", False, extractor, silent, draw) for draw in (3, 3, 4)
    )
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert (first.name, other.name) == ("hcmnist, draw 3", "hcmnist, draw 4")
    assert not np.array_equal(first.digits, other.digits)
    assert not np.array_equal(first.splits(3)["env0_in"], other.splits(4)["env0_in"])


def test_unrelated_rows_are_the_test_environments_digits_in_colours_by_a_coin(
    stand_in, tmp_path, monkeypatch
):
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    data = coloured.load_features("hcmnist-cs", False, PCA(width=4), silent, 2)
    rows, test = data.splits(2)["unrelated"], data.rows[2]
    assert np.array_equal(data.digits[rows], data.digits[test])
    assert np.array_equal(data.bank.targets[rows], data.bank.targets[test])
    environment = coloured.digits("hcmnist-cs", False, 2)[2]
    colour = coloured.recoloured(environment, 2).colour
    assert abs(np.mean(environment.colour == environment.y) - 0.1) < 0.06
    assert abs(np.mean(colour == environment.y) - 0.5) < 0.1


def test_sides_of_digits_are_learned_and_labels_are_measured(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    data = coloured.load_features("hcmnist-cs", False, PCA(width=4), silent, 2)
    both, n = with_digit_sides(data), len(data.digits)
    assert np.array_equal(both.targets[:n], data.bank.targets)
    assert np.array_equal(both.targets[n:] == 1, data.digits < 5)
    assert np.array_equal(both.features[n:], data.bank.features)


def test_the_column_of_the_digit_group_holds_the_true_log_odds(stand_in, tmp_path, monkeypatch):
    """65 % of the easy digits are in the first environment and 5 % in the second."""
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    data = coloured.load_features("hcmnist-cs", False, PCA(width=4), silent, 2)
    x = torch.as_tensor(ablation.with_group(data, "hcmnist-cs").bank.features)
    found = ablation.VARIANTS["weights: true digit group"].spec.objective.density.function(x)
    odds = (found[:, 0] - found[:, 1]).exp().numpy()
    np.testing.assert_allclose(odds[is_easy(data.digits)], 0.65 / 0.05, rtol=1e-5)
    assert (odds[~is_easy(data.digits)] < 1).all()
    assert x[:, -1].abs().max() < 1e-5


def small(name, folder, **options):
    return ExperimentTask(
        name=name, folder=folder, options={"features": "pca", "width": 8, **options}
    )


@pytest.mark.slow
@pytest.mark.usefixtures("short_weights")
def test_table2_is_a_sweep_that_goes_on(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(table2, "QUICK", (2, 2, 20))
    [result] = run_experiment(small("table2", tmp_path))
    titles = [table.title for table in result.tables]
    assert len(titles) == 2 * 6
    assert titles[0].startswith("HCMNIST, defaults")
    assert titles[3].startswith("HCMNIST, guarded-oracle")
    labels = [name for name, _ in result.tables[0].lines]
    assert labels == ["ideal digit predictor", ON_DIGITS, PROBE, "ERM", "IRM", "VREx", "WRI"]
    assert {row.n for row in result.rows} == {1, 2}
    assert all(row.spread is None for row in result.rows)  # two draws have no standard error
    assert all(path.exists() for path in result.figures)

    def nothing(*args, **options):
        raise AssertionError("what is in the store is not trained again")

    monkeypatch.setattr("wri.report.style.save", lambda *figure: [])
    with monkeypatch.context() as patch:
        patch.setattr("wri.sweep.Store.finish", nothing)
        [again] = run_experiment(small("table2", tmp_path))
        assert again.rows == result.rows
    run_experiment(small("table2", tmp_path, preset="published"))  # other objectives, another file
    assert len(list(tmp_path.glob("table2-*-pca8-quick-*.db"))) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("short_weights")
def test_the_ablation_trains_every_line_on_the_same_draws(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ablation, "QUICK_STEPS", 130)  # the preset's penalty begins at 100
    chosen = ("wri", "weights: uniform", "weights: classifier on Φ", "paper")
    monkeypatch.setattr(ablation, "VARIANTS", {name: ablation.VARIANTS[name] for name in chosen})
    [result] = run_experiment(small("ablation", tmp_path))
    first = result.tables[0]
    assert first.title == "HCMNIST-CS, last step"
    assert [name for name, _ in first.lines] == ["ideal digit predictor", *LIMITS, *chosen]
    assert first.columns[-2:] == ["penalty of digit", "penalty of colour"]
    assert all(cell is not None for cell in dict(first.lines)["wri"])
    charged = {
        name: [cell.ours for cell in cells[-2:]] for name, cells in first.lines if name in chosen
    }
    assert len({tuple(values) for values in charged.values()}) == len(chosen)
    assert charged["weights: uniform"][0] > charged["weights: uniform"][1]  # VREx's wrong choice
