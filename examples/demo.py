"""The demo: fit a table of four hospitals, predict a fifth, reproduce Figure 1.

The marker of the fifth hospital means the opposite of what it means in the other four.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path


def run(*arguments: str) -> dict:
    """A command of wri, shown as a person types it; its JSON document."""
    print("$ wri", *arguments, flush=True)
    command = [sys.executable, "-m", "wri.cli", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo"))
    folder = parser.parse_args().output
    shutil.rmtree(folder / "tables", ignore_errors=True)
    (folder / "tables").mkdir(parents=True)
    rows, new = folder / "tables" / "hospitals.csv", folder / "tables" / "hospitals-new.csv"
    model, figures = folder / "model", folder / "figure1"
    run("data", "hospitals", "--write", str(rows))
    columns = ("--target", "sick", "--env", "hospital")
    fit = run("fit", str(rows), *columns, "-o", str(model))
    insured = ("--algorithms", "wri", "--penalty-weight", "3", "--fast")
    run("fit", str(rows), *columns, *insured, "-o", str(folder / "insured"))
    right = {}
    for name in ("model", "insured"):
        output = ("-o", str(folder / f"{name}-predictions.csv"), "--target", "sick")
        found = run("predict", str(folder / name), str(new), *output)
        right[name] = found["outcomes"]["accuracy"]
    run("reproduce", "figure1", "-o", str(figures))
    held = {
        name: [each["score"] for each in fit["held_out"] if each["algorithm"] == name]
        for name in ("erm", "wri")
    }
    means = {name: sum(scores) / len(scores) for name, scores in held.items()}
    cost = f"WRI costs {'more' if fit['kept']['algorithm'] == 'erm' else 'no more'} than 1 %"
    print(
        f"\nFour hospitals, each held out: ERM {means['erm']:.0%}, WRI {means['wri']:.0%} right; "
        f"{fit['kept']['algorithm'].upper()} was kept: {cost} of the loss."
    )
    print(
        f"A fifth hospital, whose marker is reversed: the kept model {right['model']:.0%} right, "
        f"WRI with its full penalty {right['insured']:.0%}: what the insurance buys."
    )
    print(f"Report: {folder.resolve() / 'model' / 'report.html'}; Figure 1: {figures.resolve()}")


if __name__ == "__main__":
    main()
