"""Damage saved models and stores at random, and count what loading them does not notice.

A classifier and a pipeline with preprocessing are saved and a small sweep is stored. Copies are
damaged: bits are flipped, files cut,
parts overwritten or exchanged, digits changed, rows of tables exchanged or deleted, tables dropped.
Each copy is then loaded or read. There are three honest ends: it is refused by an `InputError`, it
gives exactly what was written, or it cannot be damaged in this way. The two others are counted:

    foreign   another exception than `InputError`
    silent    it loads, but predicts or tabulates differently

Then models whose digests are recomputed are loaded (`fuzz_models.py`, with what is counted there).
All of these counts must be zero; otherwise the exit code is 1.
"""

import argparse
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd

from fuzz_models import BAD, KINDS, fuzz_models
from wri import ERMClassifier, WRIClassifier, make_pipeline, saving
from wri.datasets import hospitals
from wri.datasets.schema import TableSchema
from wri.errors import InputError
from wri.sweep import Store, Sweep, SweepSpec, run_sweep
from wri.sweep.data import gather
from wri.sweep.tables import as_rows, build

TABLES = ("setting", "datasets", "runs", "results", "measured", "seal")
Read = Callable[[Path], object]


def flip_bits(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 1, 8))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def cut(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def overwrite(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = draw.randrange(len(data))
    size = min(draw.choice((1, 16, 512)), len(data) - start)
    data[start : start + size] = draw.choice((bytes(size), draw.randbytes(size)))
    path.write_bytes(data)


def exchange(path: Path, draw: random.Random) -> None:
    """Two parts of a file change places."""
    data = bytearray(path.read_bytes())
    size = draw.choice((1, 8, 64))
    one, other = draw.randrange(len(data) - size), draw.randrange(len(data) - size)
    first, second = data[one : one + size], data[other : other + size]
    data[one : one + size], data[other : other + size] = second, first
    path.write_bytes(data)


def change_digit(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    digits = [place for place, byte in enumerate(data) if 48 <= byte <= 57]
    data[draw.choice(digits)] = draw.randrange(48, 58)
    path.write_bytes(data)


def _edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def drop_table(path: Path, draw: random.Random) -> None:
    _edit(path, f"DROP TABLE {draw.choice(TABLES)}")


def delete_row(path: Path, draw: random.Random) -> None:
    table = draw.choice(TABLES)
    if table == "measured":
        row = "SELECT id, measure, split FROM measured ORDER BY random() LIMIT 1"
        _edit(path, f"DELETE FROM measured WHERE (id, measure, split) = ({row})")
    else:
        row = f"SELECT rowid FROM {table} ORDER BY random() LIMIT 1"
        _edit(path, f"DELETE FROM {table} WHERE rowid = ({row})")


def swap_rows(path: Path, draw: random.Random) -> None:
    """A column of two rows changes places."""
    table, column = draw.choice(
        [("runs", "planned"), ("runs", "stack"), ("results", "steps"), ("results", "digest")]
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        (one, first), (other, second) = draw.sample(rows, 2)
        update = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
        connection.executemany(update, [(second, one), (first, other)])


def swap_measured(path: Path, draw: random.Random) -> None:
    """The values of two splits change places."""
    one, other = draw.sample([f"env{e}_{part}" for e in range(3) for part in ("in", "out")], 2)
    swap = f"CASE split WHEN '{one}' THEN '{other}' WHEN '{other}' THEN '{one}' ELSE split END"
    with closing(sqlite3.connect(path)) as connection, connection:
        (run,) = draw.choice(connection.execute("SELECT id FROM results").fetchall())
        rows = connection.execute(
            f'SELECT id, measure, {swap}, "values" FROM measured WHERE id = ?', (run,)
        ).fetchall()
        connection.execute("DELETE FROM measured WHERE id = ?", (run,))
        connection.executemany("INSERT INTO measured VALUES (?, ?, ?, ?)", rows)


OF_FILES = (flip_bits, cut, overwrite, exchange, change_digit)
OF_STORES = (*OF_FILES, drop_table, delete_row, swap_rows, swap_measured)


def make_model(folder: Path) -> Read:
    """Save a model; and what a loaded one says of some rows."""
    sites = hospitals(60, seed=0)
    x, y = np.concatenate([site.x for site in sites]), np.concatenate([site.y for site in sites])
    names = np.repeat([site.name for site in sites], [len(site.y) for site in sites])
    WRIClassifier(steps=20, hidden=(8, 4)).fit(x, y, groups=names).save(folder)

    def read(path: Path) -> object:
        model = saving.load(path)
        site = model.score_new_site(x)
        answers = [model.predict(x), model.predict_proba(x), model.verdict(x), model.typicality(x)]
        answers += [model.score_samples(x), model.nearest_environment(x), site.predictions]
        return [answer.tolist() for answer in answers], site.meaning

    return read


def make_pipeline_model(folder: Path) -> Read:
    """The same of a pipeline with the standard preprocessing of a raw table."""
    sites = hospitals(60, seed=0)
    rows = pd.DataFrame(np.concatenate([site.x for site in sites]), columns=["a", "b", "c"])
    rows.loc[::7, "a"] = np.nan
    draw = np.random.default_rng(0)
    rows["ward"] = draw.choice(["north", "south", "tent"], len(rows), p=[0.6, 0.39, 0.01])
    rows["smoker"] = draw.choice(["yes", "no", ""], len(rows))
    rows["site"] = np.repeat([site.name for site in sites], [len(site.y) for site in sites])
    y = np.concatenate([site.y for site in sites])
    steps = TableSchema.infer(rows, environment="site").make_preprocessing()
    model = make_pipeline(*steps, ERMClassifier(environment="site", steps=20))
    model.fit(rows, y).save(folder)

    def read(path: Path) -> object:
        loaded = saving.load(path)
        judged = loaded.assess(rows)
        answers = [judged.predictions, judged.probabilities, judged.scores, judged.typicality]
        answers += [judged.verdicts, judged.nearest]
        schema = TableSchema.of(loaded)
        return [a.tolist() for a in answers], schema and schema.as_lines(), repr(loaded)

    return read


def make_store(path: Path) -> Read:
    """Store a sweep; and what its tables say."""
    spec = SweepSpec(("erm", "vrex"), draws=2, trials=2, steps=20, preset="table")
    with Store(path, write=True) as store:
        run_sweep(Sweep(spec, [gather("hospitals", hospitals(40, seed=0)[:3])]), store)
    path.with_name(path.name + ".lock").unlink()

    def read(path: Path) -> object:
        with Store(path) as store:
            outcomes, infos, done = store.outcomes(), store.infos(), store.finished()
            pending = store.pending(store.known())
        models = [outcome.model and outcome.model.as_dict() for outcome in outcomes]
        tables = as_rows(build(outcomes, infos.values()))
        return json.dumps(tables), models, sorted(done), repr(pending), repr(infos)

    return read


def attempt(read: Read, path: Path, expected: object, what: str) -> str:
    """One of "refused", "unchanged", "silent", "foreign"."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "unchanged" if read(path) == expected else "silent"
    except InputError:
        return "refused"
    except Exception:
        print(what, traceback.format_exc(), file=sys.stderr)
        return "foreign"


def damage_folders(
    count: int, seed: int, home: Path, make: Callable[[Path], Read] = make_model
) -> Counter[str]:
    original, copy = home / make.__name__, home / "copy"
    read = make(original)
    expected, found = read(original), Counter[str]()
    for n in range(count):
        draw = random.Random(f"folder {seed} {n}")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(original, copy)
        damage = draw.choice(OF_FILES)
        damage(draw.choice(sorted(copy.iterdir())), draw)
        found[_count(read, copy, expected, f"folder {n}, {damage.__name__}")] += 1
    return found


def damage_stores(count: int, seed: int, home: Path) -> Counter[str]:
    original, copy = home / "store.db", home / "copy.db"
    read = make_store(original)
    expected, found = read(original), Counter[str]()
    for n in range(count):
        draw = random.Random(f"store {seed} {n}")
        for rest in home.glob("copy.db*"):
            rest.unlink()
        shutil.copy(original, copy)
        damage = draw.choice(OF_STORES)
        damage(copy, draw)
        found[_count(read, copy, expected, f"store {n}, {damage.__name__}")] += 1
    return found


def _count(read: Read, copy: Path, expected: object, what: str) -> str:
    end = attempt(read, copy, expected, what)
    if end == "silent":
        print(f"{what}: it loads and says something else", file=sys.stderr)
    return end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folders", type=int, default=500, help="copies of a saved model")
    parser.add_argument("--stores", type=int, default=200, help="copies of a store")
    parser.add_argument("--models", type=int, default=300, help="models of each kind, re-digested")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS, help="kinds of models")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        folders = damage_folders(given.folders, given.seed, home)
        pipelines = damage_folders(given.folders, given.seed, home, make_pipeline_model)
        stores = damage_stores(given.stores, given.seed, home)
    models = fuzz_models(given.models, given.seed, given.kinds)
    every = {"folders": folders, "pipelines": pipelines, "stores": stores}
    bad = {k: sum(found[k] for found in every.values()) for k in ("foreign", "silent")}
    for kind in BAD:
        bad[kind] = bad.get(kind, 0) + sum(found.get(kind, 0) for found in models.values())
    if given.json:
        print(json.dumps({**every, "models": models, "seed": given.seed, **bad}))
    else:
        for what, found in every.items():
            counts = ", ".join(f"{number} {kind}" for kind, number in sorted(found.items()))
            print(f"{found.total()} {what}: {counts}")
        for what, ends in models.items():
            print(f"{what}: {', '.join(f'{kind} {number}' for kind, number in ends.items())}")
        print(", ".join(f"{number} {kind}" for kind, number in bad.items()))
    sys.exit(any(bad.values()))


if __name__ == "__main__":
    main()
