"""Studies print what their pages show, and go on where they were stopped."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest


def test_new_site_coverage_counts_intervals_and_resumes(printed_by, tmp_path):
    keep = tmp_path / "designs.jsonl"
    result = printed_by("studies/new_site_coverage.py", f"--designs 1 --first 1 --keep {keep}")
    assert sum(line["intervals"] + line["no interval"] for line in result["new"].values()) == 5
    design = json.loads(keep.read_text())
    for met in design["met"]:
        met["held"] = False
    keep.write_text(json.dumps(design) + "\n")
    again = printed_by("studies/new_site_coverage.py", f"--designs 1 --first 1 --keep {keep}")
    assert {line["held"] for line in again["new"].values()} == {0}


def test_diagnosis_level_counts_alarms_and_resumes(printed_by, tmp_path):
    store = tmp_path / "level.jsonl"
    command = f"--store {store} --questions overlap --designs gaussian --rows 40 --power 1"
    lines = printed_by("studies/diagnosis_level.py", f"{command} --repetitions 1")
    assert {(line["said"], line["change"], line["n"]) for line in lines} == {
        (said, change, 1) for said in ("differ", "little in common") for change in (0.0, 0.4)
    }
    kept = store.read_text()
    lines = printed_by("studies/diagnosis_level.py", f"{command} --repetitions 2")
    assert {line["n"] for line in lines if not line["change"]} == {2}
    assert store.read_text().startswith(kept)
    assert len(store.read_text().splitlines()) == 3


def test_peers_meet_the_same_sites_and_cells_are_kept(printed_by, tmp_path):
    """The smallest cell, with whatever is installed: regression, nothing changes, one seed."""
    store = tmp_path / "peers.jsonl"
    command = f"simulated --seeds 7 8 --designs numbers full fixed --store {store}"
    only = "ERM constant regression ICP DRO"  # anchor boosting needs stderr to be a file
    cells = printed_by("studies/peers.py", f"{command} --only {only}")
    found = {cell["model"]: cell for cell in cells}
    assert {"ERM", "ERM without flagged", "plain regression", "constant"} <= set(found)
    for future in ("like", "unrelated", "reversed"):
        assert len({cell[f"ERM {future}"] for cell in cells}) == 1
        assert found["ERM"][future] == found["ERM"][f"ERM {future}"]
        assert 0.9 < found["constant"][future] < 1.3  # in units of the training rows' variance
    assert all(cell["time"] > 0 for cell in cells)
    assert found["ERM"]["like"] < found["ERM"]["unrelated"] < found["ERM"]["reversed"]
    assert found["ERM"]["like"] < found["constant"]["like"] < found["ERM"]["reversed"]

    lines = store.read_text().splitlines()
    again = printed_by("studies/peers.py", f"{command} --only {only}")
    assert again == cells  # also the times: nothing was computed
    assert store.read_text().splitlines() == lines
    printed_by("studies/peers.py", f"{command} --only constant --again")
    assert len(store.read_text().splitlines()) == len(lines) + 2  # the constant and ERM


def test_the_least_worst_regret_is_that_of_the_candidate_between_two_extremes(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "studies"))
    peer_models = importlib.import_module("peer_models")
    losses = np.array([[1.0, 2.0], [1.2, 1.2], [2.0, 1.0]])  # best in one future, half way, other
    assert peer_models.least_worst_regret(losses) == 1


def test_a_draw_of_hospitals_depends_on_its_seed_alone(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "studies"))
    draw = importlib.import_module("boosting").drawn_threshold_hospitals
    assert draw(3) == draw(3) != draw(4)
    _, turned, unrelated = draw(3)
    assert turned.marker < 0 == unrelated.marker


@pytest.mark.slow
def test_weights_of_pictures_are_predicted_by_the_other_fold(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "studies"))
    fashion = importlib.import_module("fashion")
    images = np.random.default_rng(0).integers(0, 255, (12, 3, 16, 16), dtype=np.uint8)
    y, environment = np.tile([0, 1], 6), np.repeat([0, 1], 6)
    logits = fashion.label_logits(images, y, environment, 0)
    assert logits.shape == (12, 2)
    changed = images.copy()
    changed[0] = 255 - changed[0]
    moved = (fashion.label_logits(changed, y, environment, 0) != logits).any(1)
    fold = np.random.default_rng([0, 2]).integers(0, fashion.FOLDS, len(y))
    assert moved[0]
    assert (moved[1:] == (fold[1:] != fold[0])).all()  # networks of the own fold have not seen it


@pytest.fixture
def pages(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "studies"))
    return importlib.import_module("results")


def test_every_page_of_results_has_its_commands(pages):
    there = {path.stem for path in pages.PAGES.glob("*.md")} - {"index"}
    assert set(pages.TABLES) == there
    for page in pages.TABLES.values():
        for command in page.commands:
            assert pages.entry_files(command)
            assert all(path.exists() for path in pages.entry_files(command))


def test_a_fingerprint_covers_code_that_is_reached_and_no_words(pages, tmp_path):
    files = pages.fingerprint(pages.TABLES["figure1"])
    assert "src/wri/paper/experiments/figure1.py" in files
    assert "src/wri/objectives/weighted_risks.py" in files
    assert "src/wri/objectives/mldg.py" in pages.fingerprint(pages.TABLES["tableE4"])
    assert not [name for name in files if name.startswith("src/wri/cli")]
    assert "src/wri/cli/fit.py" in pages.fingerprint(pages.TABLES["files"])
    script = tmp_path / "script.py"
    script.write_text('"""Words."""\nfrom other import f  # a comment\n\nx = f(1)\n')
    (tmp_path / "other.py").write_text("def f(x):\n    return x\n")
    assert [path.name for path in pages.reached_files([script])] == ["other.py", "script.py"]
    before = pages.digest_code(script)
    script.write_text('"""Other words."""\nfrom other import f\nx = f(1)\n')
    assert pages.digest_code(script) == before
    script.write_text("from other import f\nx = f(2)\n")
    assert pages.digest_code(script) != before


def work_below(folder, pages, monkeypatch, *scripts):
    """Let a page "answer" of these scripts be made in a folder."""
    monkeypatch.setattr(pages, "TABLES", {"answer": pages.printed(1, *scripts)})
    monkeypatch.setattr(pages, "ROOT", folder)
    monkeypatch.setattr(pages, "PRINTED", folder / "printed")
    monkeypatch.setattr(pages, "KEPT", folder / "kept")


def test_pages_are_fresh_until_their_code_changes(pages, monkeypatch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("print(6 * 7)\n")
    work_below(tmp_path, pages, monkeypatch, "script.py")
    (tmp_path / "answer.md").write_text("# Answer\n")
    with pytest.raises(SystemExit, match="has no mark"):
        pages.make_page("answer", tmp_path)
    marked = "# Answer\n\n<!-- command 0 -->\n42\n<!-- end of command -->\n"
    (tmp_path / "answer.md").write_text(marked)
    assert pages.why_stale("answer", {}) == "never made by this script"
    for _ in range(2):
        pages.make_page("answer", tmp_path)
    page = (tmp_path / "answer.md").read_text()
    assert page.startswith(f"{marked}\n<!-- made -->\n```\npython script.py\n```\nwri ")
    assert page.count("<!-- made -->") == 1
    assert (tmp_path / "printed" / "answer-0.txt").read_text() == "42\n"
    made = pages.read_made(tmp_path)
    assert pages.why_stale("answer", made) == ""
    script.write_text("print(6 * 8)\n")
    assert pages.why_stale("answer", made).endswith(": script.py")
    script.write_text("raise SystemExit(3)\n")
    with pytest.raises(SystemExit, match="ended with 3"):
        pages.make_page("answer", tmp_path)
    assert pages.read_made(tmp_path) == made


def test_a_page_stays_if_the_code_changed_and_the_quick_numbers_did_not(
    pages, monkeypatch, tmp_path
):
    printed, page = {"ours": 0.12345}, pages.reproduced("figure1", 1)

    def run(command, printed_to, show=True):
        assert " --quick " in command
        cell = {"table": "", "algorithm": "WRI", "column": "accuracy", "spread": None, **printed}
        printed_to.write_text(json.dumps({"rows": [cell]}) + "\n")

    monkeypatch.setattr(pages, "PRINTED", tmp_path)
    monkeypatch.setattr(pages, "TABLES", {"figure1": page})
    monkeypatch.setattr(pages, "run_command", run)
    entry = {"commands": [*page.commands], "date": "2026-01-01", "packages": {}}
    entry |= {
        "fingerprint": "of other code",
        "quick": {pages.find_processor(): pages.quick_numbers(page)},
    }
    pages.keep_entry(tmp_path, "figure1", entry)
    assert "code changed" in pages.why_stale("figure1", pages.read_made(tmp_path))
    printed["ours"] = 0.12449  # other digits
    assert not pages.still_holds("figure1", tmp_path)
    printed["ours"] = 0.123451  # rounding
    assert pages.still_holds("figure1", tmp_path)
    made = pages.read_made(tmp_path)
    assert pages.why_stale("figure1", made) == ""
    assert made["figure1"]["date"] == "2026-01-01"  # of the page's numbers
    other = pages.reproduced("figure1", 1, "--seed 1")
    monkeypatch.setattr(pages, "TABLES", {"figure1": other})
    assert not pages.still_holds("figure1", tmp_path)


def test_a_person_may_say_that_a_page_has_not_moved(pages, monkeypatch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("print(42)\n")
    work_below(tmp_path, pages, monkeypatch, "script.py")
    (tmp_path / "answer.md").write_text("<!-- command 0 -->\n<!-- end of command -->\n")
    with pytest.raises(SystemExit, match="--only answer"):
        pages.accept("answer", tmp_path, "never made")
    pages.make_page("answer", tmp_path)
    script.write_text("print(6 * 7)\n")
    assert pages.why_stale("answer", pages.read_made(tmp_path))
    pages.accept("answer", tmp_path, "the same product")
    made = pages.read_made(tmp_path)
    assert pages.why_stale("answer", made) == ""
    assert made["answer"]["accepted"] == "the same product"


def test_tables_that_a_command_prints_stand_in_its_page(pages, monkeypatch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("print('\\n*First, n = 3*\\n\\n| a |\\n\\n*Second*\\n\\n| b |')\n")
    work_below(tmp_path, pages, monkeypatch, "script.py")
    page, end = tmp_path / "answer.md", "<!-- end of command -->"
    page.write_text(
        f"Seen:\n<!-- command 0: Second -->\nold\n{end}\nAll:\n<!-- command 0 -->\n{end}\n"
    )
    for _ in range(2):
        pages.make_page("answer", tmp_path)
    text = page.read_text().partition("\n<!-- made")[0]
    first, second = "*First, n = 3*\n\n| a |", "*Second*\n\n| b |"
    assert text == (
        f"Seen:\n<!-- command 0: Second -->\n{second}\n{end}\n"
        f"All:\n<!-- command 0 -->\n{first}\n\n{second}\n{end}\n"
    )
    page.write_text(f"<!-- command 0: Third -->\n{end}\n")
    with pytest.raises(SystemExit, match="printed no table"):
        pages.make_page("answer", tmp_path)


def test_a_page_goes_on_with_the_command_that_was_interrupted(pages, monkeypatch, tmp_path):
    (tmp_path / "first.py").write_text("open('seen', 'a').write('x')\nprint(1)\n")
    (tmp_path / "second.py").write_text("raise SystemExit(3)\n")
    work_below(tmp_path, pages, monkeypatch, "first.py", "second.py")
    monkeypatch.setattr(pages, "fingerprint", lambda page: {"code": "the same"})
    (tmp_path / "answer.md").write_text("<!-- command 1 -->\n<!-- end of command -->\n")
    with pytest.raises(SystemExit, match="ended with 3"):
        pages.make_page("answer", tmp_path)
    (tmp_path / "kept" / "answer" / "cells").touch()
    (tmp_path / "second.py").write_text("import os\nprint(os.listdir('kept/answer'))\n")
    pages.make_page("answer", tmp_path)
    assert (tmp_path / "seen").read_text() == "x"
    assert "'cells'" in (tmp_path / "answer.md").read_text()
    (tmp_path / "kept" / "answer").mkdir()
    (tmp_path / "kept" / "answer" / "cells").touch()
    pages.make_page("answer", tmp_path)  # asked for again: all of it, without what was kept
    assert (tmp_path / "seen").read_text() == "xx"
    assert "'cells'" not in (tmp_path / "answer.md").read_text()


def test_the_family_is_tuned_on_other_draws_than_reported_and_resumes(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "studies"))
    family = importlib.import_module("family")
    for problem in family.PROBLEMS.values():
        assert not set(problem.tuned) & set(problem.reported)
    small = replace(family.PROBLEMS["gaussians"], values=(1e-3, 3.2), tuned=(1000,), reported=(0,))
    monkeypatch.setattr(family, "PROBLEMS", {"gaussians": small})
    store = tmp_path / "family.jsonl"
    family.run_problem(family.Results(store), "gaussians", ("erm", "vrex"))
    lines = store.read_text().splitlines()
    assert len(lines) == 4  # VREx with both values, then ERM and VREx at the chosen one
    results = family.Results(store)
    assert family.tuned_value(results, "gaussians", "vrex") == 3.2
    erm, vrex = (results.of("gaussians", *line, 0) for line in (("erm", None), ("vrex", 3.2)))
    assert vrex["reversed"] < erm["reversed"]
    family.run_problem(results, "gaussians", ("erm", "vrex"))
    assert store.read_text().splitlines() == lines


def test_weights_of_pictures_balance_what_the_score_and_the_label_tell(monkeypatch):
    """Overlap weights of p(e | A, y) give both environments the same rows of A and y."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "studies"))
    fashion = importlib.import_module("fashion")
    random = np.random.default_rng(0)
    environment, y = np.repeat([0, 1], 4000), random.integers(0, 2, 8000)
    score = random.normal(environment * np.where(y == 1, 1.0, -0.5))
    log_odds = fashion.refit_by_label(score, environment, y)
    weight = 1 / (1 + np.exp(np.where(environment == 1, log_odds, -log_odds)))
    for label in (0, 1):
        means = [
            np.average(score[own], weights=weight[own])
            for own in ((environment == e) & (y == label) for e in (0, 1))
        ]
        assert abs(means[0] - means[1]) < 0.05
    shares = [np.average(y[environment == e], weights=weight[environment == e]) for e in (0, 1)]
    assert abs(shares[0] - shares[1]) < 0.01
