"""Speed and memory of `wri predict` on a long table.

A model with the standard preprocessing is fitted to 20 columns (16 numbers with gaps, 2 yes/no, 2
categories) of 6 sites and saved; a file of many rows is written piece by piece; then
`wri.cli.predicting.predict_file` runs in processes of its own, whose largest memory is measured.
Reading, evaluation (preprocessing, predictor, densities, verdicts) and writing are reported apart.

    python benchmarks/predict_speed.py --format parquet --keep none
    python benchmarks/predict_speed.py --rows 400000
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

NUMBERS = [f"x{d}" for d in range(16)]
SITES = ("north", "south", "east", "west", "hill", "lake")
PIECE = 200_000


def draw(n: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    site = random.integers(len(SITES), size=n)
    x = random.normal(size=(n, len(NUMBERS))).round(4)
    x[:, 0] += 0.5 * site
    rows = pd.DataFrame(x, columns=NUMBERS)
    rows.loc[random.random(n) < 0.02, "x3"] = np.nan
    rows["smoker"] = random.choice(["yes", "no"], n)
    rows["urgent"] = random.choice(["yes", "no", ""], n, p=[0.3, 0.6, 0.1])
    rows["ward"] = random.choice([f"ward {w}" for w in range(12)], n)
    rows["blood"] = random.choice(["A", "B", "AB", "0"], n)
    rows["site"] = np.array(SITES)[site]
    odds = x[:, 0] + 0.5 * x[:, 1] + (rows["smoker"] == "yes")
    rows["sick"] = (odds + random.logistic(size=n) > 1).astype(int)
    return rows


def prepare(home: Path, fitted: int, rows: int, ending: str) -> None:
    import wri
    from wri.datasets.schema import TableSchema

    train = draw(fitted, 0)
    schema = TableSchema.infer(train, "sick", "site")
    model = wri.make_pipeline(
        *schema.make_preprocessing(), wri.WRIClassifier(environment="site", steps=200)
    )
    model.fit(train, train["sick"]).save(home / "model")
    path, features = home / f"rows{ending}", [*train.columns[:20]]
    if ending == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        schema_of = pa.Table.from_pandas(train[features]).schema
        with parquet.ParquetWriter(path, schema_of) as writer:
            for start in range(0, rows, PIECE):
                some = draw(min(PIECE, rows - start), 1 + start)[features]
                writer.write_table(pa.Table.from_pandas(some, schema=schema_of))
        return
    with path.open("w") as file:
        for start in range(0, rows, PIECE):
            some = draw(min(PIECE, rows - start), 1 + start)[features]
            some.to_csv(file, index=False, header=start == 0)


def measure(home: Path, ending: str, keep: str) -> None:
    """In a process of its own."""
    from wri.cli.predicting import predict_file
    from wri.datasets.table_files import open_table
    from wri.estimators import load

    kept = None if keep == "all" else []
    table = open_table(home / f"rows{ending}")
    done = predict_file(load(home / "model"), table, home / f"out{ending}", keep=kept)
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {**done.as_dict(), "largest_mb": round(largest)}
    found["rows_per_second"] = {
        what: round(done.rows / spent) for what, spent in done.seconds.items()
    }
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--train", type=int, default=6000, help="rows that the model is fitted to")
    parser.add_argument("--format", choices=["csv", "parquet"], default="csv")
    parser.add_argument("--keep", choices=["all", "none"], default="all", help="columns kept")
    parser.add_argument("--repeat", type=int, default=3, help="processes, one after the other")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    ending = f".{given.format}"
    if given.measure is not None:
        measure(given.measure, ending, given.keep)
        return
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        prepare(home, given.train, given.rows, ending)
        command = [sys.executable, __file__, "--measure", str(home)]
        command += ["--format", given.format, "--keep", given.keep]
        ran = [
            subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
            for _ in range(given.repeat)
        ]
    runs = [json.loads(each.stdout.splitlines()[-1]) for each in ran]
    if given.json:
        print(json.dumps(runs[-1]))
        return
    columns = "all columns" if given.keep == "all" else "no column"
    form = {"csv": "CSV", "parquet": "Parquet"}[given.format]
    what = f"{given.rows:,} rows of {form}, {columns} of the input copied"
    print(f"*Predictions, {what}: median (range) of {given.repeat} processes*\n")
    rates = {
        f"{part}, 1,000 rows/s": [round(run["rows_per_second"][part] / 1000) for run in runs]
        for part in runs[0]["rows_per_second"]
    }
    found = {**rates, "largest memory, MB": [run["largest_mb"] for run in runs]}
    print("| " + " | ".join(found) + " |")
    print("|" + "---|" * len(found))
    cells = [f"{median(own):,.0f} ({min(own):,}–{max(own):,})" for own in found.values()]
    print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
