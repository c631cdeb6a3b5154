"""Theorem 1: enough environments leave no spurious predictor with equal weighted risks."""

import numpy as np
import pytest

from wri.paper.experiments import ExperimentTask, run_experiment, theorem1


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    with pytest.MonkeyPatch.context() as smaller:
        smaller.setattr(theorem1, "SPURIOUS", range(1, 3))
        smaller.setattr(theorem1, "ENVIRONMENTS", range(2, 6))
        yield run_experiment(
            ExperimentTask(name="theorem1", folder=tmp_path_factory.mktemp("theorem1"))
        )[0]


def table(result, start):
    (found,) = (each for each in result.tables if each.title.startswith(start))
    return {line: dict(zip(found.columns, cells, strict=True)) for line, cells in found.lines}


@pytest.mark.slow
def test_as_many_environments_are_enough_as_counting_says(result):
    for cells in table(result, "environments").values():
        for weighting in ("ratio", "density"):
            assert cells[f"{weighting}, found"].ours == cells[f"{weighting}, counted"].ours


@pytest.mark.slow
def test_the_theorems_count_is_not_enough(result):
    cells = table(result, "environments")["d_spu = 1"]
    assert cells["theorem: |E| > d_spu"].ours == 2
    assert cells["definition: C(k, 2) > 2 d_spu"].ours == 3
    assert cells["ratio, found"].ours == 3
    assert cells["density, found"].ours == 4


@pytest.mark.slow
def test_spurious_weights_vanish_with_enough_environments(result):
    for line, cells in table(result, "largest").items():
        weighting, d_spu = line.split(", d_spu = ")
        for column, row in cells.items():
            enough = int(column.removeprefix("k = ")) >= theorem1.enough(weighting, int(d_spu))
            assert (row.ours == 0) == enough


@pytest.mark.slow
def test_starts_end_spurious_with_too_few_only(result):
    ends = table(result, "where")
    for weighting in ("ratio", "density"):
        few, enough = (ends[f"{weighting}, {n} environments"] for n in ("too few", "enough"))
        assert few["gap 0, w_spu ≠ 0"].ours > 10
        assert enough["gap 0, w_spu ≠ 0"].ours == 0
    assert ends["ratio, enough environments"]["gap 0, w_spu = 0"].ours == 100


@pytest.mark.slow
def test_the_penalty_drives_spurious_weights_of_erm_to_zero(result):
    lines = table(result, "|w_spu| that minimises")
    for d_spu in (1, 2):
        erm, wri = (lines[f"d_spu = {d_spu}, {name}"] for name in ("ERM", "WRI"))
        for column in ("ratio, enough", "ratio, 3 more", "density, 3 more"):
            assert erm[column].ours > 0.03
            assert wri[column].ours < 0.01
    assert lines["d_spu = 2, WRI"]["ratio, too few"].ours > 0.05


@pytest.mark.slow
def test_general_position_certifies_ratio_weights_only(result):
    cells = table(result, "draws")["d_spu = 1"]
    assert cells["density: rank"].ours == 0
    assert cells["density: spurious"].ours == 100
    assert cells["with γ a pair"].ours == 100
    assert cells["ratio: rank"].ours == cells["ratio: spurious"].ours == 0
    for cells in table(result, "M's").values():
        assert cells["zero (%)"].ours == 0
        assert 1e-6 < cells["smallest"].ours < cells["median"].ours


def test_one_environment_more_than_enough_leaves_density_weights_no_valley():
    _, spurious = theorem1.penalise("density", 1, 5, 5, seed=0)
    assert spurious.max() < 1e-6


def test_gaps_have_the_derivatives_they_claim():
    (moments,) = theorem1.drawn(["density"], 2, 4, 3, seed=0)
    gaps = theorem1.gaps_of(moments)
    w = np.random.default_rng(0).normal(size=(3, 2, 4))
    value, slope = gaps(w)
    np.testing.assert_allclose(value[1, 1], moments.gaps(w[:, 1])[1])
    for column in range(4):
        step = 1e-6 * np.eye(4)[column]
        numeric = (gaps(w + step)[0] - gaps(w - step)[0]) / 2e-6
        np.testing.assert_allclose(slope[..., column], numeric, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_figures_are_written(result):
    assert [path.suffix for path in result.figures] == [".png", ".pdf", ".svg"]
    assert all(path.stat().st_size > 10_000 for path in result.figures)
