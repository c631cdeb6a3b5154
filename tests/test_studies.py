"""Studies print what their pages show, and go on where they were stopped."""

import json


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
