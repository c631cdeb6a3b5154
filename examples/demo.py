"""The demo: fit a table of four hospitals, predict a fifth, reproduce Figure 1.

At the fifth hospital the marker means the opposite of what it means at the other four.
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
    right = {}
    for name in ("model", "erm"):
        if name == "erm":
            run("fit", str(rows), *columns, "--fast", "--keep", "erm", "-o", str(folder / name))
        output = ("-o", str(folder / f"{name}-predictions.csv"), "--target", "sick")
        found = run("predict", str(folder / name), str(new), *output)
        right[name] = found["outcomes"]["accuracy"]
    run("reproduce", "figure1", "-o", str(figures))
    print(f"\n{fit['verdict']['question']} {fit['verdict']['sentence']}\n{fit['kept']['why']}")
    print(
        f"The fifth hospital, whose marker is reversed: the kept model is right for "
        f"{right['model']:.0%} of its patients, ERM for {right['erm']:.0%}."
    )
    print(f"Report: {folder.resolve() / 'model' / 'report.html'}; Figure 1: {figures.resolve()}")


if __name__ == "__main__":
    main()
