"""Table 3: scores by hand, mixtures of known clusters, and the whole on digits made up."""

import numpy as np
import pytest

from helpers import make_run
from wri.datasets import Mnist
from wri.errors import InputError
from wri.objectives import WRI
from wri.paper.experiments import ExperimentTask, coloured, run_experiment, table3
from wri.paper.experiments.table3 import DrawResult, TrainedRun
from wri.paper.simulations import coloured_mnist
from wri.progress import silent
from wri.stacked import Network
from wri.training import Record

MIRRORED = (3, 4, 6, 7, 9)


@pytest.fixture(scope="module")
def standin():
    """Ten shapes without symmetry, shaded anew in each picture."""
    random = np.random.default_rng(0)
    shapes = np.kron(random.integers(0, 2, (10, 7, 7)), np.ones((4, 4), int))
    digits = random.permutation(np.repeat(np.arange(10, dtype=np.uint8), 120))
    shades = random.integers(0, 200, (1200, 28, 28))
    return Mnist((255 * shapes[digits] * 3 // 4 + shades // 4).astype(np.uint8), digits)


@pytest.fixture
def environments(standin, tmp_path, monkeypatch, short_weights):
    def draw(name, seed=0, digits=None, rows=None):
        return coloured_mnist(name, seed, standin, rows=rows)

    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(coloured, "coloured_mnist", draw)
    monkeypatch.setattr(coloured, "QUICK_ROWS", 1200)
    monkeypatch.setattr(table3, "QUICK", (2, 30))
    monkeypatch.setattr(table3, "COMPONENTS", {"x": (1, 10, 99), "phi": (1, 2, 99)})
    return draw


def by_cell(result):
    return {(row.table, row.algorithm, row.column): row for row in result.rows}


def test_same_negatives_are_the_digits_that_are_mirrored():
    unaltered = np.arange(10)
    assert table3.are_negatives(unaltered, np.array([4, 7, 4]), "all").all()
    kept = table3.are_negatives(unaltered, np.array([4, 7, 4]), "same")
    assert unaltered[kept].tolist() == [4, 7]


@pytest.fixture
def environments_of_bank():
    return [np.arange(0, 60), np.arange(60, 120)]


def record(network, parameters, state=None, diverged_at=None):
    return Record(
        steps=np.array([0]),
        measures={},
        diverged_at=diverged_at,
        network=network,
        parameters=parameters,
        state=state,
    )


def test_confidence_is_the_largest_softmax():
    linear = Network((2, 3))  # outputs = weight @ x + bias
    weight, bias = np.array([[1.0, 0], [0, 1], [-1, 2]]), np.array([0.0, 1, -1])
    one = TrainedRun(None, record(linear, np.concatenate([weight.ravel(), bias])))
    x = np.array([[0.5, -2.0], [3.0, 1.0]])
    powers = np.exp(x @ weight.T + bias)
    largest = (powers / powers.sum(1, keepdims=True)).max(1)
    assert np.allclose(np.exp(one.confidence(x)), largest)
    sure = one.confidence(np.array([[20.0, 0.0], [30.0, 0.0]]))
    assert sure[0] < sure[1]  # both are 1 in single precision


def test_wris_own_density_lies_within_the_runs_bounds(bank, environments_of_bank):
    bounds = {"min_density": 0.02, "max_density": 1.5}
    run = make_run(WRI(), bank, environments_of_bank, bounds)
    start = WRI().density.initial([0], 2, bank.features.shape[1])

    def density(state, combine):
        one = TrainedRun(run, record(run.network, run.network.initial([0])[0], state))
        return np.exp(one.own_density(combine, bank.features))

    halfway = np.sqrt(0.02 * 1.5)  # σ(0) = ½ in the logarithm
    assert np.allclose(density(0 * start, "mean"), halfway)
    assert np.allclose(density(0 * start, "maximum"), halfway)
    mean, highest = density(30 * start, "mean"), density(30 * start, "maximum")
    assert mean.min() >= 0.02 - 1e-12
    assert highest.max() <= 1.5 + 1e-12
    assert highest.max() > 1.4
    assert (mean < highest + 1e-12).all()
    assert (mean < highest - 0.1).any()


def clusters(random, count):
    """Two environments with rows about three corners, in unequal shares."""
    corners = np.array([[0, 0], [9, 0], [0, 9]])
    which = [random.choice(3, count, p=shares) for shares in ([0.6, 0.2, 0.2], [0.2, 0.4, 0.4])]
    return [corners[own] + random.normal(size=(count, 2)) for own in which]


@pytest.fixture
def three():
    random = np.random.default_rng(0)
    return clusters(random, 400), clusters(random, 200)


def test_held_back_training_rows_choose_the_number_of_components(three):
    done = []
    found = table3.fit_best(*three, table3.as_it_is, (1, 3), lambda *step: done.append(step))
    assert found.form.components == 3
    assert done == [(1, 2), (2, 2)]
    few = [rows[:40] for rows in three[0]]
    found = table3.fit_best(few, three[1], table3.as_it_is, (3, 20), silent)
    assert found.form.components == 3


def test_densities_are_low_between_the_clusters_and_heed_their_shares(three):
    densities = table3.fit_densities(three[0], table3.as_it_is, 3)
    at_corner, between = densities.mixed(np.array([[9.0, 0.0], [4.5, 4.5]]))
    assert at_corner > between + 5
    first, second = densities.logs(np.array([[0.0, 0.0]]))[0]
    assert np.exp(first - second) == pytest.approx(3, rel=0.3)


def test_a_dead_representation_has_one_component(three):
    def dead(x):
        return np.zeros((len(x), 2))

    densities = table3.fit_densities(three[0], dead, 3)
    assert densities.form.components == 1
    assert np.isfinite(densities.logs(dead(np.ones((4, 2))))).all()


def test_draws_with_a_diverged_run_are_left_out_of_every_line():
    fine, broken = (
        DrawResult(sizes=(1, 1), accuracy={}, diverged=lost) for lost in ([], ["IRM", "WRI"])
    )
    found = {4: fine, 5: broken, 6: fine}
    assert list(table3.survivors(found)) == [4, 6]
    assert table3.left_out(found) == ["Draw 5 is left out: IRM and WRI diverged."]
    with pytest.raises(InputError, match="diverged in 2 of 3 draws"):
        table3.survivors(found | {4: broken})


@pytest.mark.slow
def test_the_whole_table_with_evidence_of_its_own(environments, tmp_path):
    told = []
    [result] = run_experiment(
        ExperimentTask(
            name="table3",
            folder=tmp_path,
            progress=lambda done, of: told.append(done / of),
            options={"width": 8},
        )
    )
    rows = by_cell(result)
    assert [len(table.lines) for table in result.tables] == [5, 4]
    assert {row.n for row in result.rows if row.column != "worst AUROC"} == {2}
    cell = rows[table3.AS_PRINTED, "WRI", "AUROC"]
    assert (cell.paper, cell.paper_spread) == (0.595, 0.039)
    assert cell.ours > 0.95  # ten shapes, ten components: what is mirrored lies far away
    assert rows[table3.AS_PRINTED, "WRI's confidence", "AUROC"].paper is None
    assert rows[table3.ON_PHI, "WRI", "AUROC"].paper is None
    rates = [rows[table3.AS_PRINTED, "IRM", column] for column in table3.COLUMNS[:4]]
    assert [row.paper for row in rates] == [29.8, 46.8, 66.4, 84.8]
    assert all(0 <= row.ours <= 100 for row in rates)
    assert told == sorted(told)
    assert told[-1] == 1
    assert result.notes[0].startswith(
        "Preset coloured, features PCA(width=8), draws 0 to 1, densities combined"
    )
    assert any(note.startswith("Components of the mixtures: on x 10, on") for note in result.notes)
    assert any("WRI minus ERM" in note and "over 2 draws" in note for note in result.notes)
    worst = rows[table3.AS_PRINTED, "WRI", "worst AUROC"]
    assert worst.ours <= cell.ours


@pytest.mark.parametrize("preset", ["paper", "published"])
@pytest.mark.slow
def test_the_whole_table_with_wris_own_densities(preset, environments, tmp_path):
    options = {"preset": preset, "combine": "maximum", "negatives": "same", "width": 8}
    [result] = run_experiment(
        ExperimentTask(name="table3", seed=3, folder=tmp_path, options=options)
    )
    assert [table.title for table in result.tables] == [table3.AS_PRINTED]
    assert all(0 <= row.ours <= 1 for row in result.rows if row.column == "AUROC")
    tests = [environments("cmnist", draw)[2].digits for draw in (3, 4)]
    same = np.mean([np.isin(digits, MIRRORED).sum() for digits in tests])
    assert f"combined by their maximum; {same:.0f} common rows (same digits)" in result.notes[0]
    assert "The preset anneals IRM and VREx so long that the penalty never starts." in result.notes


@pytest.mark.slow
def test_equal_tasks_give_equal_tables(environments, tmp_path):
    options = {"preset": "paper", "width": 8}
    tables = [
        [result.rows for result in run_experiment(task)]
        for task in (
            ExperimentTask(name="table3", seed=seed, folder=tmp_path, options=options)
            for seed in (0, 0, 1)
        )
    ]
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]
