"""Tables E.1 to E.3: choosing steps, the filter, and the form of the tables."""

from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest

from wri.datasets import SimulationSetting
from wri.errors import InputError
from wri.paper.experiments import ExperimentTask, run_experiment, simulation
from wri.paper.experiments.simulation import (
    FILTERED,
    LINES,
    ORACLE,
    SERIES,
    UNFILTERED,
    Dataset,
    SimulationSize,
    accuracies,
    chosen_accuracy,
    passes,
    passing,
    train_table,
)
from wri.stacked import Network
from wri.training import Record

SHORT = {name: replace(each, values=each.values[:2]) for name, each in SERIES.items()}
"""Two columns of each table."""


def silent(done, of):
    pass


def record(select, shown):
    measures = {"accuracy": {"select": np.array(select), "shown": np.array(shown)}}
    network = Network((20, 10, 5, 5))
    return Record(
        steps=np.arange(len(shown)),
        measures=measures,
        diverged_at=None,
        network=network,
        parameters=np.zeros(0),
        state=None,
    )


def same(values):
    return record(values, values)


def test_the_step_is_chosen_on_other_rows_than_those_shown():
    assert chosen_accuracy(record([0.2, 0.5, 0.5, 0.1], [0.9, 0.4, 0.8, 0.9])) == 0.4


def test_a_run_that_diverged_is_not_chosen_where_it_did():
    diverged = [np.nan, np.nan]
    assert chosen_accuracy(record([0.2, 0.3, *diverged], [0.5, 0.6, *diverged])) == 0.6


@pytest.mark.parametrize(
    ("erm", "oracle", "kept"),
    [
        ([0.2, 0.3, 0.4, 0.5], [0.7], True),
        ([0.2, 0.5, 0.4, 0.4], [0.7], False),  # best before step 3
        ([0.2, 0.2, 0.2, 0.29], [0.7], False),  # not above 1.5 times chance
        ([0.2, 0.3, 0.4, 0.64], [0.7], False),  # less than a tenth below the oracle
        ([0.2, 0.3, 0.4, 0.91], [1.1], False),  # above 90 %
    ],
)
def test_the_published_filter(erm, oracle, kept):
    assert passes(same(erm), same(oracle)) is kept


def test_data_sets_follow_their_seed_and_setting():
    setting = SimulationSetting(invariant_shift=0.15)
    first, again, other = Dataset(setting, 1), Dataset(setting, 1), Dataset(setting, 2)
    elsewhere = Dataset(SimulationSetting(invariant_shift=0.2), 1)
    features = first.all_features.features
    assert np.array_equal(features, again.all_features.features)
    assert not np.array_equal(features, other.all_features.features)
    assert not np.allclose(features[0, :10], elsewhere.all_features.features[0, :10], atol=0.5)
    assert first.invariant_features.features.shape == (5000, 10)
    held_out = np.concatenate(list(first.evaluate.values()))
    assert set(held_out) == set(range(4000, 5000))
    assert not set(held_out) & set(np.concatenate(first.train))


@pytest.mark.slow
def test_the_oracle_beats_all_that_see_the_spurious_features():
    datasets = [Dataset(SERIES["tableE3"].at(80.0), seed) for seed in range(2)]
    accuracy = accuracies(datasets, LINES, SimulationSize(2, 2, steps=40), 0, silent)
    assert accuracy[ORACLE].shape == (2, 2)
    for line in set(LINES) - {ORACLE}:
        assert accuracy[ORACLE].mean() > accuracy[line].mean() + 5, line


def test_data_sets_that_pass_are_the_first_by_seed(monkeypatch):
    verdicts = iter([False, True, False, True, True, False])
    monkeypatch.setattr(simulation, "passes", lambda erm, oracle: next(verdicts))
    (kept,) = passing([SimulationSetting()], 10, SimulationSize(3, 1, steps=1))
    assert [dataset.seed for dataset in kept] == [11, 13, 14]
    monkeypatch.setattr(simulation, "passes", lambda erm, oracle: False)
    monkeypatch.setattr(simulation, "MOST_ROUNDS", 2)
    with pytest.raises(InputError, match="fewer than 1 of 2 data seeds pass"):
        passing([SimulationSetting()], 0, SimulationSize(1, 1, steps=1))


def test_printed_numbers_stand_beside_their_cells():
    sweep = SERIES["tableE1"]
    assert sweep.paper("WRI", 0.25) == (54.1, 1.8)
    assert sweep.paper("WRI published", 0.25) == (54.1, 1.8)
    assert sweep.paper("WRI overlap, λ = 3", 0.25) == (None, None)
    assert SERIES["tableE3"].paper("ERM", 70.0) == (30.5, 0.9)
    for each in SERIES.values():
        for value in each.values:
            assert None not in each.paper("VREx", value)


def every_second():
    """A filter that asks the published one and lets every second data set pass, found at once."""
    verdicts = cycle([False, True])

    def filtered(erm, oracle):
        assert passes(erm, oracle) in (True, False)
        return next(verdicts)

    return filtered


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "QUICK", SimulationSize(2, 1, steps=6))
        patch.setattr(simulation, "SERIES", SHORT)
        patch.setattr(simulation, "passes", every_second())
        *tables, figure = run_experiment(ExperimentTask(name="simulation", seed=3, folder=folder))
        return tables, figure


@pytest.mark.slow
def test_both_kinds_of_data_seeds_are_shown_and_compared(results):
    tables, _ = results
    for table in tables:
        assert [each.title for each in table.tables] == [FILTERED, UNFILTERED]
        for each in table.tables:
            assert [line for line, _ in each.lines] == list(LINES)
            assert each.columns[-1] == "average"
        assert any("95 % interval" in note and UNFILTERED in note for note in table.notes)


@pytest.mark.slow
def test_an_average_is_that_of_its_cells(results):
    (table, *_), figure = results
    for kind in (FILTERED, UNFILTERED):
        cells = [r for r in table.rows if r.algorithm == "VREx" and r.table == kind]
        *columns, average = [row.ours for row in cells]
        assert average == pytest.approx(np.mean(columns))
        (shown,) = [
            r.ours
            for r in figure.rows
            if (r.algorithm, r.table, r.column) == ("VREx", kind, "tableE1")
        ]
        assert shown == average


@pytest.mark.slow
def test_the_figure_is_drawn_from_the_tables(results):
    _, figure = results
    assert [path.name for path in figure.figures] == [
        f"figureE5.{k}" for k in ("png", "pdf", "svg")
    ]


@pytest.mark.slow
def test_one_table_of_one_kind_trains_nothing_else_and_has_the_same_numbers(
    results, tmp_path, monkeypatch
):
    monkeypatch.setattr(simulation, "QUICK", SimulationSize(2, 1, steps=6))
    monkeypatch.setattr(simulation, "SERIES", SHORT)
    trained = []

    def note(name, *rest):
        trained.append(name)
        return train_table(name, *rest)

    monkeypatch.setattr(simulation, "train_table", note)
    outputs, options = ("tableE2",), {"filtered": False}
    task = ExperimentTask(
        name="simulation", outputs=outputs, seed=3, folder=tmp_path, options=options
    )
    [result] = run_experiment(task)
    assert [table.title for table in result.tables] == [UNFILTERED]
    assert trained == ["tableE2"]
    tables, _ = results
    expected = [row for row in tables[1].rows if row.table == UNFILTERED]
    for found, row in zip(result.rows, expected, strict=True):
        assert (found.algorithm, found.column) == (row.algorithm, row.column)
        assert found.ours == pytest.approx(row.ours, abs=1e-9)
