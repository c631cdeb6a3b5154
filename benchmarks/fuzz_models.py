"""Change saved models as somebody does who recomputes their digests, and load them.

A network, trees, a pipeline and a classifier of pictures are saved. In copies either the structure
of `model.json` and of the tensors is changed (entries dropped, added, exchanged, of another type),
or values are (numbers, texts, cells of tensors and of a forest's text). Digests are made anew, so
that only the checks of the loader stand between the change and the model. Worker processes load the
copies and predict with those that load. What must not happen, whatever was changed:

    foreign   another exception than `InputError`, or than `ValueError` when it predicts, which
              scikit-learn raises for a table of other columns
    crash     the process ends
    heavy     a load takes more than 500 MB of memory
    slow      a load takes more than 10 seconds
    nan       NaN or infinity among the predictions
"""

import faulthandler
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors.numpy
from PIL import Image
from torch import nn

import wri
from wri import saving
from wri.datasets import ImageFolder, hospitals
from wri.datasets.schema import TableSchema
from wri.errors import InputError
from wri.features import Backbone, Preprocessing
from wri.saving.folder import tensors_name
from wri.saving.values import record_digest
from wri.threads import resident_bytes

BAD = ("foreign", "crash", "heavy", "slow", "nan")
KINDS = ("networks", "trees", "pipelines", "pictures")
MOST_BYTES, MOST_SECONDS = 500 * 2**20, 10
CONTROL = 600 * 2**20  # bytes that a worker takes first, to see that they are measured
HANGS = 60  # seconds until a worker is ended
AT_ONCE = 3000  # models per worker

OTHERS: tuple[Any, ...] = (None, True, 3, -1, 0.5, "", "x", [], {}, [0], {"a": 1}, [[]], [None])
NUMBERS = (
    *(0, 1, -1, 2, 7, 1000, 10**6, 10**9, 2**31, 2**63, 10**400, 12),
    *(0.5, -0.5, 5e-324, 1e-300, 1e308, -1e308, 1.7e308, float("nan"), float("inf")),
)
TEXTS = ("", "x", "<U9999", "|O", "<f8", "nan", "drop", "passthrough", "é" * 300, "a" * 20000)
Change = Callable[[dict[str, Any], dict[str, np.ndarray], random.Random], None]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a record with each of its keys."""
    waiting = [value]
    while waiting:
        container = waiting.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            yield container, key
            if isinstance(container[key], dict | list):
                waiting.append(container[key])


def change_structure(
    record: dict[str, Any], tensors: dict[str, np.ndarray], draw: random.Random
) -> None:
    """Change entries of the record, tensors, or lines of a forest."""
    kind = draw.random()
    if kind < 0.1:
        change_tensor_forms(tensors, draw)
    elif kind < 0.3 and "forest.0" in tensors:
        change_forest(record, tensors, draw, change_lines)
    else:
        for _ in range(draw.choice((1, 1, 2, 3))):
            container, key = draw.choice(list(places(record)))
            change_entry(record, container, key, draw)


def change_entry(record: dict[str, Any], container: Any, key: Any, draw: random.Random) -> None:
    kind = draw.randrange(7)
    value = container[key]
    if kind == 0:
        del container[key]
    elif kind == 1:
        container[key] = draw.choice(OTHERS)
    elif kind == 2:  # another part of the record
        other, place = draw.choice(list(places(record)))
        container[key] = json.loads(json.dumps(other[place]))
    elif kind == 3:
        container[key] = draw.choice(([value], {"x": value}, {"tuple": [value]}, {"array": value}))
    elif kind == 4 and isinstance(value, list) and value:
        container[key] = value * draw.choice((2, 100, 1 + 50_000 // len(json.dumps(value))))
    elif kind == 5 and isinstance(value, list | dict) and value:
        names = list(value) if isinstance(value, dict) else range(len(value))
        one, other = draw.choice(names), draw.choice(names)
        value[one], value[other] = value[other], value[one]
    elif isinstance(container, dict):
        container[draw.choice(("x", "n_jobs", "memory", "class", "width", "values"))] = value
    else:
        container.insert(key, draw.choice(OTHERS))


def change_tensor_forms(tensors: dict[str, np.ndarray], draw: random.Random) -> None:
    name = draw.choice(sorted(tensors))
    array = tensors.pop(name)
    kind = draw.randrange(5)
    if kind == 0:
        tensors[name] = array.ravel()[: draw.randrange(array.size + 1)].copy()
    elif kind == 1:
        tensors[name] = array.astype(draw.choice((np.float32, np.int64, np.uint8, bool)))
    elif kind == 2:
        tensors[name] = array[None].copy()
    elif kind == 3:
        other = draw.choice(sorted(tensors))
        tensors[name], tensors[other] = tensors[other], array


def change_values(
    record: dict[str, Any], tensors: dict[str, np.ndarray], draw: random.Random
) -> None:
    """Change values of the record, cells of tensors, or numbers of a forest."""
    kind = draw.random()
    if kind < 0.35:
        change_cells(tensors, draw)
    elif kind < 0.6 and "forest.0" in tensors:
        change_forest(record, tensors, draw, change_words)
    else:
        plain = [(c, k) for c, k in places(record) if not isinstance(c[k], dict | list)]
        for container, key in draw.choices(plain, k=draw.choice((1, 1, 2, 5))):
            value = container[key]
            if isinstance(value, bool):
                container[key] = not value
            elif isinstance(value, int | float):
                near = (value + 1, value - 1, -value, 2 * value)
                container[key] = draw.choice((*NUMBERS, *near))
            else:
                texts = [c[k] for c, k in plain if isinstance(c[k], str)]
                container[key] = draw.choice((*TEXTS, draw.choice(texts), draw.choice(NUMBERS)))


def change_cells(tensors: dict[str, np.ndarray], draw: random.Random) -> None:
    name = draw.choice([n for n in sorted(tensors) if not n.startswith("forest.")])
    array = tensors[name]
    if not array.size:
        return
    if draw.random() < 0.3:
        with np.errstate(over="ignore"):
            array *= draw.choice((0, -1, 1e10, 1e300, 1e308, 1e-300))
    for _ in range(draw.choice((1, 1, 5, 50))):
        place = tuple(draw.randrange(length) for length in array.shape)
        array[place] = draw.choice([number for number in NUMBERS if number != 10**400])


def change_forest(
    record: dict[str, Any],
    tensors: dict[str, np.ndarray],
    draw: random.Random,
    change: Callable[[list[str], random.Random], list[str]],
) -> None:
    place = draw.randrange(len(record["forests"]))
    lines = tensors[f"forest.{place}"].tobytes().decode().split("\n")
    text = "\n".join(change(lines, draw)).encode() or b" "
    tensors[f"forest.{place}"] = np.frombuffer(text, np.uint8)
    record["forests"][place] = len(text)


def change_lines(lines: list[str], draw: random.Random) -> list[str]:
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    kind = draw.randrange(5)
    if kind == 0:
        del lines[one]
    elif kind == 1:
        lines[one], lines[other] = lines[other], lines[one]
    elif kind == 2:
        lines.insert(one, lines[other])
    elif kind == 3:
        lines[one] = lines[one].partition("=")[0] + "=" + lines[other].partition("=")[2]
    else:
        low, high = sorted((one, other))
        del lines[low : min(high, low + 20)]
    return lines


def change_words(lines: list[str], draw: random.Random) -> list[str]:
    for _ in range(draw.choice((1, 1, 3))):
        place = draw.choice([n for n, line in enumerate(lines) if "=" in line])
        name, _, values = lines[place].partition("=")
        words = values.split(" ")
        one = draw.randrange(len(words))
        near = ("0", "1", "-1", "2", "-2", "99", "4294967295", "2147483648", "1e308", "-1e308")
        words[one] = draw.choice((*near, "nan", "inf", "-inf", "5e-324", "", "x", "1_0"))
        lines[place] = f"{name}={' '.join(words)}"
    return lines


CHANGES: dict[str, Change] = {"structure": change_structure, "values": change_values}


def make_table() -> tuple[pd.DataFrame, np.ndarray]:
    """Rows of four hospitals with gaps, categories and a column of sites."""
    sites = hospitals(60, seed=0)
    rows = pd.DataFrame(np.concatenate([site.x for site in sites]), columns=["a", "b", "c"])
    rows.loc[::7, "a"] = np.nan
    draw = np.random.default_rng(0)
    rows["ward"] = draw.choice(["north", "south", "tent"], len(rows), p=[0.6, 0.39, 0.01])
    rows["smoker"] = draw.choice(["yes", "no", ""], len(rows))
    rows["site"] = np.repeat([site.name for site in sites], [len(site.y) for site in sites])
    return rows, np.concatenate([site.y for site in sites])


def save_models(home: Path) -> None:
    """Save a model of each kind in a folder of its name."""
    rows, y = make_table()
    numbers, site = rows[["b", "c"]].to_numpy(), rows["site"]
    network = wri.WRIClassifier(steps=20, hidden=(8, 4))
    network.fit(numbers, y, groups=site).save(home / "networks")
    trees = wri.WRIBoostingClassifier(environment="site", rounds=6, least_rows=10)
    table = rows.drop(columns="smoker").astype({"ward": "category"})
    trees.fit(table, y).save(home / "trees")
    steps = TableSchema.infer(rows, environment="site").make_preprocessing()
    pipeline = wri.make_pipeline(*steps, wri.ERMRegressor(environment="site", steps=20))
    pipeline.fit(rows, rows["b"] + y).save(home / "pipelines")
    draw = np.random.default_rng(0)
    for number in range(36):
        colour = np.array([(200, 0, 0), (0, 0, 200)])[number % 2] + draw.integers(0, 50, (4, 4, 3))
        folder = home / "files" / ("day", "night", "dusk")[number % 3] / ("red", "blue")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(colour.astype(np.uint8)).save(folder / f"{number}.png")
    estimator = wri.ERMClassifier(steps=30)
    pictures = wri.PictureClassifier(estimator, backbone=make_backbone(), workers=1)
    pictures.fit(ImageFolder(home / "files")).save(home / "pictures")


def make_backbone() -> Backbone:
    return Backbone("pixels", nn.Flatten(), Preprocessing(side=2, crop=1.0))


def make_reader(
    kind: str, home: Path
) -> tuple[Callable[[Path], Any], Callable[[Any], list[np.ndarray]]]:
    """Functions that load a folder, and that predict with the model and return the numbers."""
    rows = make_table()[0].iloc[::5]
    X: Any = {
        "networks": rows[["b", "c"]].to_numpy(),
        "trees": rows.drop(columns="smoker").astype({"ward": "category"}),
        "pipelines": rows,
        "pictures": ImageFolder(home / "files").only("day") if kind == "pictures" else None,
    }[kind]

    def load(folder: Path) -> Any:
        if kind == "pictures":
            return wri.PictureClassifier.load(folder, make_backbone())
        return saving.load(folder)

    def use(model: Any) -> list[np.ndarray]:
        judged = model.assess(X)
        repr(model)
        model.score_new_site(X)
        main = judged.predictions if judged.probabilities is None else judged.probabilities
        return [main, judged.typicality]

    return load, use


def attempt(load: Callable[[Path], Any], use: Callable[[Any], Any], copy: Path, what: str) -> str:
    """How a changed model ends: "loads", "refused", "foreign" or "nan"."""
    loaded = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = load(copy)
            loaded = True
            numbers = use(model)
        if not all(np.isfinite(each).all() for each in numbers):
            print(what, "gives predictions that are not finite", file=sys.stderr)
            return "nan"
        return "loads"
    except InputError:
        return "refused"
    except Exception as error:
        if loaded and isinstance(error, ValueError):
            return "refused"
        print(what, traceback.format_exc(), file=sys.stderr)
        return "foreign"


def write_changed(original: Path, copy: Path, change: Change, draw: random.Random) -> None:
    """Write a changed copy of a model with digests that fit."""
    record = json.loads((original / "model.json").read_text())
    (path,) = original.glob("model-*.safetensors")
    tensors = {n: each.copy() for n, each in safetensors.numpy.load(path.read_bytes()).items()}
    change(record, tensors, draw)
    data = safetensors.numpy.save(tensors)
    sha256 = hashlib.sha256(data).hexdigest()
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    (copy / tensors_name(sha256)).write_bytes(data)
    if isinstance(record.get("sha256"), str):
        record["sha256"] = sha256
    record["digest"] = record_digest(record)
    (copy / "model.json").write_text(json.dumps(record))


def list_cases(count: int, kinds: Sequence[str]) -> list[tuple[str, str, int]]:
    """Kind, sort of change and number of each changed model."""
    return [(kind, how, n) for kind in kinds for how in CHANGES for n in range(count)]


def work(cases: Sequence[tuple[str, str, int]], seed: int, home: Path) -> None:
    """Load changed models in this process; print a line for each."""
    results, sys.stdout = sys.stdout, sys.stderr
    copy = home / "copy"
    seen = measure_memory(lambda: len(bytearray(CONTROL)))[1]
    if seen < 0.9 * CONTROL:
        sys.exit(f"{CONTROL} bytes were taken, but {seen} measured")
    readers = {kind: make_reader(kind, home) for kind in {kind for kind, _, _ in cases}}
    for kind, (load, use) in readers.items():
        use(load(home / kind))
    for kind, how, number in cases:
        load, use = readers[kind]
        draw = random.Random(f"{kind} {how} {seed} {number}")
        write_changed(home / kind, copy, CHANGES[how], draw)
        faulthandler.dump_traceback_later(HANGS, exit=True)
        start = time.perf_counter()
        what = f"{kind}, {how} {number}"
        end, size = measure_memory(lambda: attempt(load, use, copy, what))  # noqa: B023
        seconds = time.perf_counter() - start
        faulthandler.cancel_dump_traceback_later()
        if end not in BAD:
            end = "heavy" if size > MOST_BYTES else "slow" if seconds > MOST_SECONDS else end
        print(json.dumps([end, size, seconds]), file=results, flush=True)


def measure_memory(action: Callable[[], Any]) -> tuple[Any, int]:
    """Result of an action, and the bytes by which the process grew meanwhile; needs Linux.

    `ru_maxrss` would not do: a process begins with the peak of the one that started it.
    """
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = resident_bytes()
    result = action()
    peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
    return result, max(0, 1024 * int(peak) - before)


def fuzz_models(count: int, seed: int, kinds: Sequence[str] = KINDS) -> dict[str, Any]:
    """Change and load models of every kind; count how they end, with the largest sizes and times.

    Parameters
    ----------
    count
        Models for each kind and each of structure and values.
    seed
        Seed of the changes.
    kinds
        Some of `KINDS`.
    """
    cases = list_cases(count, kinds)
    ended: list[tuple[str, int, float]] = []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ["WRI_CACHE"] = str(home / "cache")
        save_models(home)
        while len(ended) < len(cases):
            ended += _run_worker(count, kinds, seed, len(ended), home)
    found: dict[str, Any] = {}
    for (kind, how, _), (end, size, seconds) in zip(cases, ended, strict=True):
        own = found.setdefault(f"{kind}, {how}", {"largest_mb": 0, "longest_seconds": 0.0})
        own[end] = own.get(end, 0) + 1
        own["largest_mb"] = max(own["largest_mb"], size >> 20)
        own["longest_seconds"] = max(own["longest_seconds"], round(seconds, 2))
    return found


def _run_worker(
    count: int, kinds: Sequence[str], seed: int, first: int, home: Path
) -> list[tuple[str, int, float]]:
    """Load some models in a process of its own; the last one may be what ended it."""
    some = list_cases(count, kinds)[first : first + AT_ONCE]
    order = [str(count), ",".join(kinds), str(seed), str(first), str(home)]
    worker = subprocess.run([sys.executable, __file__, *order], stdout=subprocess.PIPE, text=True)
    ended = [tuple(json.loads(line)) for line in worker.stdout.splitlines()]
    if len(ended) < len(some):
        print(f"{some[len(ended)]}: code {worker.returncode}", file=sys.stderr)
        ended.append(("crash" if worker.returncode < 0 else "slow", 0, 0.0))
    return ended


if __name__ == "__main__":
    count, kinds, seed, first, home = sys.argv[1:]
    some = list_cases(int(count), kinds.split(","))[int(first) :][:AT_ONCE]
    work(some, int(seed), Path(home))
