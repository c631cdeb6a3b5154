"""Tables of hand-made runs, computed by hand."""

import csv
import io
import json

import numpy as np
import pytest

from helpers import make_info, make_outcome
from wri.errors import InputError
from wri.sweep.tables import as_csv, as_latex, as_rows, as_text, build, comparison_rows

DATA = make_info("two sites", ("site A", "site_B"), (0.5, 0.5), (0.0, 0.0))
SCORES = {  # in %, of trials 0, 1, 2 in site A and in site_B
    "wri": ([70, 72, 74], [60, 60, 60]),
    "erm": ([60, 61, 65], [60, 60, 60]),
    "coral": ([50, 50, 50], [90, 80, 70]),
}


def outcome(algorithm, held_out, trial, score, data=DATA):
    """One draw, one checkpoint; a score of NaN is a run that diverged."""
    accuracy = {
        f"env{k}_{rows}": np.array([score / 100 if k == held_out else 0.9 + 0 * score])
        for k in range(len(data.environments))
        for rows in ("in", "out")
    }
    return make_outcome(data.name, algorithm, (held_out,), 0, trial, np.array([100]), accuracy)


def runs(scores=SCORES, data=DATA):
    return [
        outcome(algorithm, held_out, trial, score, data)
        for algorithm, environments in scores.items()
        for held_out, trials in enumerate(environments)
        for trial, score in enumerate(trials)
    ]


def table(scores=SCORES, outcomes=None):
    (found,) = build(runs(scores) if outcomes is None else outcomes, [DATA], ["oracle"])
    return found


def test_cells_by_hand():
    found = table()
    assert found.columns == ("site A", "site_B", "average")
    assert list(found.lines) == ["erm", "coral", "wri"]  # ERM leads
    means = {name: [cell.mean for cell in cells] for name, cells in found.lines.items()}
    assert means["erm"] == pytest.approx([62, 60, 61])
    assert means["coral"] == pytest.approx([50, 80, 65])
    assert means["wri"] == pytest.approx([72, 60, 66])
    errors = [cell.standard_error for cell in found.lines["coral"]]
    site_b = (200 / 2) ** 0.5 / 3**0.5  # squared deviations of 90, 80, 70 sum to 200
    assert errors == pytest.approx([0, site_b, site_b / 2])


def test_the_best_of_every_column_is_marked():
    found = table()
    best = [[name for name in found.lines if found.is_best(name, k)] for k in range(3)]
    assert best == [["wri"], ["coral"], ["wri"]]


def test_ties_are_all_marked_and_reasons_never():
    found = table({"a": ([56, 58], [50, 50]), "b": ([57, 57], [50, 50]), "c": ([90], [90, 90])})
    assert [found.is_best(name, 0) for name in "abc"] == [True, True, False]
    assert [found.is_best(name, 1) for name in "abc"] == [False, False, True]
    assert [found.is_best(name, 2) for name in "abc"] == [True, True, False]


def test_a_cell_needs_every_trial_and_an_average_every_environment():
    found = table({**SCORES, "wri": ([70], [60, 60, 60])})
    site_a, site_b, average = found.lines["wri"]
    missing = "2 of 3 trials are missing: no run of wri with site A held out (trial 1, 2)"
    assert (site_a.mean, site_a.reason) == (None, missing)
    assert site_b.mean == pytest.approx(60)
    assert (average.mean, average.reason) == (None, "no average without site A")


def test_a_reason_common_to_all_trials_is_given_once():
    found = table({**SCORES, "wri": ([], [60, 60, 60])})
    assert found.lines["wri"][0].reason == "no run of wri with site A held out"


def test_a_diverged_trial_empties_its_cell():
    site_a, _, average = table({**SCORES, "wri": ([70, np.nan, 74], [60, 60, 60])}).lines["wri"]
    assert site_a.reason == "1 of 3 trials is missing: all runs diverged (trial 1)"
    assert average.reason == "no average without site A"


def test_averages_are_paired_over_trials():
    to_erm, to_erm_too, best_to_second = table().comparisons
    # Averages: erm 60, 60.5, 62.5; coral 70, 65, 60; wri 65, 66, 67.
    assert to_erm[:2] == ("coral", "erm")
    assert to_erm_too[:2] == ("wri", "erm")
    assert to_erm[2].mean == pytest.approx(4)  # of 10, 4.5, −2.5
    differences = np.array([5, 5.5, 4.5])
    half = 4.302652729911275 * 0.5 / 3**0.5  # Student's t, two degrees of freedom; s = 0.5
    found = to_erm_too[2]
    assert (found.mean, found.n) == (pytest.approx(differences.mean()), 3)
    assert (found.low, found.high) == (pytest.approx(5 - half), pytest.approx(5 + half))
    assert best_to_second[:2] == ("wri", "coral")
    assert best_to_second[2].mean == pytest.approx(1)


def test_a_pair_is_compared_once():
    found = table({"ERM": ([60, 61], [60, 60]), "wri": ([50, 52], [60, 60])})
    assert [pair[:2] for pair in found.comparisons] == [("wri", "ERM")]
    found = table({"irm": ([60, 61], [60, 60]), "wri": ([50, 52], [60, 60])})
    assert [pair[:2] for pair in found.comparisons] == [("irm", "wri")]


def test_what_cannot_be_compared_says_why():
    (one,) = table({"erm": ([60], [60]), "wri": ([50], [60])}).comparisons
    assert one[2:] == (None, "an interval needs at least two trials")
    (other,) = table({"erm": ([60, 61], [60, 60]), "wri": ([50], [60, 60])}).comparisons
    assert other[2:] == (None, "no average of wri")


def test_rows_are_json_without_nan():
    scores = {**SCORES, "wri": ([70, np.nan, 74], [60, 60, 60])}
    rows = json.loads(json.dumps(as_rows([table(scores)]), allow_nan=False))
    keys = ["selection", "dataset", "measure", "environment", "algorithm"]
    keys += ["mean", "standard_error", "n", "choices"]
    assert len(rows) == 3 * 3
    for row in rows:
        empty = row["algorithm"] == "wri" and row["environment"] != "site_B"
        assert list(row) == (keys + ["reason"] * empty)
        assert (row["mean"] is None, row["n"]) == (empty, 0 if empty else 3)
    pairs = json.loads(json.dumps(comparison_rows([table(scores)]), allow_nan=False))
    assert [(row["first"], row["n"], row["mean"] is None) for row in pairs] == [
        ("coral", 3, False),
        ("wri", 0, True),
    ]


def test_one_trial_has_no_standard_error():
    found = table({"erm": ([60], [70])})
    assert found.lines["erm"][0].standard_error is None
    assert "\nerm    60.0*    70.0*     65.0*" in as_text([found])


def test_csv_gives_the_rows_back():
    scores = {**SCORES, 'w,"r"': ([70], [60, 60, 60])}
    rows = as_rows([table(scores)])
    back = list(csv.DictReader(io.StringIO(as_csv([table(scores)]))))
    assert len(back) == len(rows)
    for row, read in zip(rows, back, strict=True):
        assert read.pop("reason") == row.pop("reason", "")
        row.pop("choices")  # a flat file has no place for them
        assert read == {key: "" if value is None else str(value) for key, value in row.items()}


def test_text_by_hand():
    text = as_text([table({"erm": ([60, 62], [50, 50]), "wri": ([64, 70], [50])})])
    assert text == (
        "two sites, accuracy, oracle: last checkpoint, draw chosen on held-back rows of the test "
        "environment"
        "\n% ± standard error over 2 trials; * best\n"
        "\n         site A       site_B      average"
        "\nerm  61.0 ± 1.0   50.0 ± 0.0*  55.5 ± 0.5*"
        "\nwri  67.0 ± 3.0*         [1]          [2]\n"
        "\n[1] 1 of 2 trials is missing: no run of wri with site_B held out (trial 1)"
        "\n[2] no average without site_B\n"
        "\nDifference of the averages over the same trials (95 % interval)"
        "\nwri − erm: no average of wri"
    )


def test_latex_is_escaped_marked_and_closed():
    name = r"50%_{a}&\b~^<$#>"
    latex = as_latex([table({**SCORES, name: ([1, 2], [1, 2, 3])})])
    escaped = (
        r"50\%\_\{a\}\&\textbackslash{}b\textasciitilde{}\textasciicircum{}"
        r"\textless{}\$\#\textgreater{}"
    )
    lines = latex.splitlines()
    assert r"Algorithm & site A & site\_B & average \\" in lines
    assert rf"{escaped} & \textsuperscript{{1}} & 2.0 $\pm$ 0.6 & \textsuperscript{{2}} \\" in lines
    assert r"wri & \textbf{72.0 $\pm$ 1.2} & 60.0 $\pm$ 0.0 & \textbf{66.0 $\pm$ 0.6} \\" in lines
    assert r"\par{\footnotesize \textsuperscript{2} no average without site A}" in lines
    assert r"\par{\footnotesize wri $-$ coral: +1.00 ($-$13.90 to +15.90)}" in lines
    assert latex.count(r"\begin{") == latex.count(r"\end{") == 2
    plain = latex.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")


def test_a_table_for_every_selection_and_data_set():
    other = make_info("another", ("x", "y", "z"), (0.5, 0.5, 0.5), (0.0, 0.0, 0.0))
    tables = build(
        runs() + runs({"erm": ([1], [2])}, other), [DATA, other], ["oracle-early", "oracle"]
    )
    places = [(found.selection, found.dataset) for found in tables]
    assert places == [
        ("oracle-early", "another"),
        ("oracle-early", "two sites"),
        ("oracle", "another"),
        ("oracle", "two sites"),
    ]
    assert tables[0].columns == ("x", "y", "average")  # z was never held out
    assert tables[0].legend == "% in a single trial; average over 2 of 3 environments"


def test_runs_of_an_unknown_data_set_do_not_vanish():
    with pytest.raises(InputError, match="runs of two sites"):
        build(runs(), [])


def test_an_empty_store_has_no_tables():
    assert build([], [DATA]) == []
    assert as_text([]) == as_latex([]) == ""
