"""Make the pages of docs/results anew, in the order of cost, and say which are stale.

    python studies/results.py                    every stale page; again, to go on after a stop
    python studies/results.py --only figure1     one page, stale or not
    python studies/results.py --stale            what is stale and why; nothing is run
    python studies/results.py --accept boosting level --because "only messages changed"

A page is fresh if docs/results/made.json holds its fingerprint: a hash of its commands and of the
code that they reach by imports, without comments and docstrings. If only the code has changed, a
page's quick command is run, where it has one: if that gives the titles and the numbers that it gave
with the page's code, to three digits, the page stays and its fingerprint is renewed. Otherwise the
page is made anew. Quick numbers are kept by processor. They do not show a change that acts at full
size only: make its pages with `--only`. Where a person knows that a change moves no number of a
page, `--accept` renews its fingerprint, and keeps the reason.

`wri reproduce` writes the numbers of a page by itself. What studies and benchmarks print is kept in
results/printed, and this script writes it into their pages, between marks that name the command by
its number in TABLES, and if wanted the first words of a title of its tables:

    <!-- command 0: Loss at new sites -->
    *Loss at new sites, means over ten seeds*
    …
    <!-- end of command -->

The commentary around the marks is written by hand. A page whose commands were interrupted goes on
with the command that was running. Commands that can go on by themselves keep what they have
finished in results/kept/NAME, which is emptied when the page is made, or its code has changed.
"""

import argparse
import ast
import hashlib
import json
import os
import platform
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

import wri
from wri.paper.experiments import EXPERIMENTS
from wri.paper.pages import describe_origin

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "results"
PRINTED = ROOT / "results" / "printed"
KEPT = ROOT / "results" / "kept"
PUBLIC = "PUBLIC"  # variable that names the folder of public tables
MADE = re.compile(r"\n*<!-- made -->.*?<!-- end of made -->\n*", re.DOTALL)
SHOWN = re.compile(
    r"<!-- command (\d+)(?:: (.*?))? -->\n.*?<!-- end of command -->", re.DOTALL
)  # number of the command, first words of a title
NUMBER = re.compile(r"\d+\.\d+")
TITLE = re.compile(r"^(?=\*[^*\n]+\*$)", re.MULTILINE)


class ResultPage(NamedTuple):
    """Page with its commands, the minutes that they take, and what they need.

    Needs are variables that name folders, packages, or folders. The docstring of the page's script
    says how to get them.
    """

    minutes: float  # measured by this script, or what the page says, or a guess from its size
    commands: tuple[str, ...]
    needs: tuple[str, ...] = ()
    quick: str = ""  # command that takes seconds and whose numbers change if the page's do


def reproduced(name: str, minutes: float, options: str = "--seed 0", *needs: str) -> ResultPage:
    start = f"wri reproduce {name}"
    command = f"{start} --full {options} --markdown docs/results -o results/{name}"
    quick = f"{start} --quick {options} --json -o results/quick"
    return ResultPage(minutes, (command,), needs, quick)


def printed(
    minutes: float, *commands: str, needs: tuple[str, ...] = (), quick: str = ""
) -> ResultPage:
    found = tuple(f"python {command}" for command in commands)
    return ResultPage(minutes, found, needs, quick and f"python {quick}")


TABLES = {
    "figure1": reproduced("figure1", 0.5),
    "figureE6": reproduced("figureE6", 0.5),
    "table1": reproduced("table1", 0.5),
    "figureC1": reproduced("figureC1", 1),
    "figure4": reproduced("figure4", 1),
    "sample_complexity": reproduced("sample_complexity", 1),
    "figureD3": reproduced("figureD3", 2),
    "figureD4": reproduced("figureD4", 2),
    "figure3": reproduced("figure3", 3),
    "theorem1": reproduced("theorem1", 5),
    "hospitals": reproduced("hospitals", 5),
    "tableE1": reproduced("tableE1", 3.1),
    "tableE2": reproduced("tableE2", 2.4),
    "tableE3": reproduced("tableE3", 1.8),
    "table3": reproduced("table3", 10, "--seed 20 --features pca"),
    "heart": reproduced("heart", 16, "--seed 0", "WRI_DATA"),
    "figureE5": reproduced("figureE5", 7.3),
    "table2": reproduced("table2", 29, "--seed 20"),
    "tableE4": reproduced("tableE4", 41, "--seed 0 --datasets PACS", "WRI_DATA"),
    "ablation": reproduced("ablation", 48, "--seed 20"),
    "diagnosis_speed": printed(4, "benchmarks/diagnosis_scale.py", "benchmarks/new_site_scale.py"),
    "estimators": printed(4, "benchmarks/estimator_scale.py"),
    "pictures": printed(
        5, "benchmarks/picture_extraction.py $WRI_DATA/PACS --domains photo", needs=("WRI_DATA",)
    ),
    "files": printed(
        10,
        "benchmarks/fit_command.py",
        "benchmarks/predict_speed.py --rows 5000000 --format parquet --keep none",
    ),
    "table_defaults": printed(
        10,
        "studies/estimator_defaults.py erm irm vrex wri",
        "studies/estimator_defaults.py erm wri --hidden 32 16 --lambdas 1 3 10 30",
    ),
    "table_weights": printed(
        15,
        *(
            f"studies/table_weights.py --first 1006 --lambdas 3 10 {size} --lines "
            '"on x: 50" "label: logistic, plain, decay" "label: the preset"'
            for size in (
                "--seeds 14",
                "--seeds 12 --hospitals fixed",
                "--seeds 24 --patients 120 --noise 12",
            )
        ),
        "studies/table_weights_heart.py",
        needs=("WRI_DATA",),
    ),
    "coloured_features": printed(
        8, "studies/autoencoder_decoders.py --rows 24000 --epochs 3 --seeds 3"
    ),
    "sweeps": printed(
        15,
        "benchmarks/sweep_speed.py",
        "benchmarks/sweep_speed.py --backends local ray --algorithms erm wri "
        "--draws 5 --trials 2 --steps 100",
    ),
    "site_answers": printed(
        15,
        "benchmarks/site_answers.py answers --count 20",
        "benchmarks/site_answers.py alarms --tables 2000",
    ),
    "scaling": printed(
        14,
        "benchmarks/scaling.py --keep results/kept/scaling/cells.jsonl "
        "--figure docs/figures/scaling.png",
        "benchmarks/linear_speed.py --only curves",
        "benchmarks/linear_speed.py --only folder --rows 2500000 10000000",
    ),
    "family": printed(
        70,
        "studies/family.py times",
        "studies/family.py run --store results/kept/family/cells.jsonl",
        "studies/family.py table --store results/kept/family/cells.jsonl "
        "--figure docs/figures/family.png",
        needs=("WRI_DATA",),
    ),
    "fashion": printed(
        6,
        "studies/fashion.py --draws 20 21 22 --store results/kept/fashion/cells.jsonl",
        "studies/fashion.py --draws 0 --grey --store results/kept/fashion/cells.jsonl",
        needs=("/usr/share/datasets/fashion-mnist",),
    ),
    "verdicts": printed(
        20,
        "studies/loss_by_verdict.py --seeds 10 --views outputs",
        "studies/loss_by_verdict.py --seeds 5 --data --views outputs --pictures $WRI_DATA/PACS "
        "--domains photo sketch",
        needs=("WRI_DATA",),
    ),
    "speed": printed(
        14,
        "benchmarks/linear_speed.py --only small middle pictures csv large",
        "benchmarks/stack_vs_loop.py",
        "studies/large_tables.py",
    ),
    "new_site": printed(
        8,
        "studies/new_site_coverage.py --keep results/kept/new_site/cells.jsonl",
        "studies/new_site_coverage.py --heart",
        needs=("WRI_DATA",),
    ),
    "boosting": printed(
        14,
        "studies/boosting.py --keep results/kept/boosting/cells.jsonl",
        "benchmarks/boosting_speed.py",
        needs=("WRI_DATA",),
    ),
    "table2_choices": printed(
        18,
        *(
            f"studies/coloured_{what} --dataset {dataset}"
            for what in (
                "lambda.py --first 0 --draws 5",
                "selection.py --first 20 --draws 5",
                "weights.py --first 0 --draws 3",
            )
            for dataset in ("hcmnist", "hcmnist-cs")
        ),
    ),
    "insurance": printed(
        8,
        "studies/overlap_power.py",
        "studies/insurance.py simulated --store results/kept/insurance/simulated.jsonl",
        "studies/insurance.py public --store results/kept/insurance/public.jsonl "
        f"--folder ${PUBLIC}",
        "studies/insurance.py simulated --first 1000 --store results/kept/insurance/chosen.jsonl",
        needs=("WRI_DATA", PUBLIC),
    ),
    "peers": printed(
        12,
        *(
            f"studies/peers.py {what} --store results/kept/peers/cells.jsonl"
            for what in ("tune", "simulated", "heart", f"public --folder ${PUBLIC}")
        ),
        needs=("WRI_DATA", PUBLIC, "ivmodels", "causalicp", "anchorboosting", "cvxpy", "dro"),
    ),
    "level": printed(
        16,
        'studies/diagnosis_level.py --cells --questions "changing classes" "changing numbers" '
        '"gaps classes" "gaps numbers" --draws 199 --repetitions 500 '
        "--store results/kept/level/cells.jsonl",
        "studies/diagnosis_level.py --heart --draws 199 --repetitions 400 "
        "--store results/kept/level/heart.jsonl",
        "studies/diagnosis_level.py --markers --repetitions 500",
        needs=("WRI_DATA",),
    ),
}
"""Pages by name."""


def entry_files(command: str) -> list[Path]:
    """Return the files from which the code of a command is reached."""
    words = shlex.split(command)
    if words[0] == "python":
        return [ROOT / words[1]]
    output = words[2]
    names = [name for name, each in EXPERIMENTS.items() if output in each.outputs]
    return [ROOT / "src" / "wri" / "paper" / "experiments" / f"{name}.py" for name in names]


def reached_files(starts: list[Path]) -> list[Path]:
    """Return the files of this project that some files import, and so on, and these."""
    found, pending = set(starts), list(starts)
    for path in pending:
        new = {*imported_files(path)} - found
        found |= new
        pending += sorted(new)
    return sorted(found)


def imported_files(path: Path) -> Iterator[Path]:
    """Yield the files of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            lazy = wri.LAZY if node.module == "wri" else {}
            below = [lazy.get(alias.name, f"{node.module}.{alias.name}") for alias in node.names]
            names = [node.module, *below]
        elif isinstance(node, ast.Constant) and node.value == "wri.cli":
            names = [node.value]  # a script that runs the command line in another process
        for name in names:
            parts = name.split(".")
            folder = ROOT / "src" if parts[0] == "wri" else path.parent
            for count in range(1, len(parts) + 1):  # packages run before their modules
                place = folder.joinpath(*parts[:count])
                files = (place.with_suffix(".py"), place / "__init__.py")
                yield from (file for file in files if file.exists())
    if path.name == "registry.py":  # it imports objectives by their names
        yield from sorted((path.parent / "objectives").glob("*.py"))


def digest_code(path: Path) -> str:
    """Return a hash of a file's statements; comments and docstrings do not count."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def _is_text(node: ast.AST) -> bool:
    value = getattr(node, "value", None)
    return isinstance(node, ast.Expr) and isinstance(getattr(value, "value", None), str)


def fingerprint(page: ResultPage) -> dict[str, str]:
    """Return the hashes of the code that a page depends on, by file."""
    starts = [path for command in page.commands for path in entry_files(command)]
    return {str(p.relative_to(ROOT)): digest_code(p) for p in reached_files(starts)}


def read_made(folder: Path) -> dict[str, dict]:
    path = folder / "made.json"
    return json.loads(path.read_text()) if path.exists() else {}


def combine(page: ResultPage, files: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps([page.commands, files]).encode()).hexdigest()[:16]


def why_stale(name: str, made: dict[str, dict]) -> str:
    """Return why a page is stale; empty if it is fresh."""
    page, entry = TABLES[name], made.get(name)
    if entry is None:
        return "never made by this script"
    files = fingerprint(page)
    if entry["fingerprint"] == combine(page, files):
        return ""
    if entry["commands"] != [*page.commands]:
        return "its commands changed"
    packages = by_package(files)
    changed = [name for name, digest in packages.items() if entry["packages"].get(name) != digest]
    return f"code changed since {entry['date']}: {', '.join(changed) or 'files were removed'}"


def by_package(files: dict[str, str]) -> dict[str, str]:
    """Return one hash per package or script, to say what changed without a list of all files."""
    groups: dict[str, list[str]] = {}
    for path, digest in files.items():
        parts = Path(path).parts
        group = "/".join(parts[:3]) if parts[0] == "src" else path
        groups.setdefault(group, []).append(f"{path} {digest}")
    return {
        group: hashlib.sha256("\n".join(each).encode()).hexdigest()[:8]
        for group, each in groups.items()
    }


def is_there(need: str) -> bool:
    if need.startswith("/"):
        return Path(need).exists()
    return need in os.environ or (need.islower() and find_spec(need) is not None)


def make_page(name: str, folder: Path) -> None:
    """Run a page's commands, and note what it was made of; an error leaves the note as it was."""
    page = TABLES[name]
    files = fingerprint(page)  # of the code that runs, not of what it is changed to meanwhile
    mark, spent = combine(page, files), [0.0, 0.0]
    empty_if_other(KEPT / name, mark)
    is_printed = page.commands[0].startswith("python")
    if is_printed and not SHOWN.search((folder / f"{name}.md").read_text()):
        sys.exit(f"{folder / name}.md has no mark for what its commands print")
    for number, command in enumerate(page.commands):
        done = PRINTED / f"{name}-{number}.json"  # only while the page is not finished
        if not (done.exists() and json.loads(done.read_text())["of"] == mark):
            start, cpu = time.perf_counter(), cpu_seconds()
            print(f"$ {command}", flush=True)
            run_command(command, PRINTED / f"{name}-{number}.txt")
            seconds = [time.perf_counter() - start, cpu_seconds() - cpu]
            done.write_text(json.dumps({"of": mark, "seconds": seconds}))
        spent = [a + b for a, b in zip(spent, json.loads(done.read_text())["seconds"], strict=True)]
    entry = {
        "fingerprint": mark,
        "commands": [*page.commands],
        "packages": by_package(files),
        "date": date.today().isoformat(),
        "seconds": round(spent[0], 1),
        "cpu_seconds": round(spent[1], 1),
        "origin": describe_origin(),
    }
    entry["quick"] = {find_processor(): quick_numbers(page)} if page.quick else {}
    if is_printed:
        write_page(folder / f"{name}.md", name, entry["origin"])
    keep_entry(folder, name, entry)
    for number in range(len(page.commands)):
        (PRINTED / f"{name}-{number}.json").unlink()
    shutil.rmtree(KEPT / name)
    print(f"{name}: {entry['seconds']} s", flush=True)


def empty_if_other(kept: Path, mark: str) -> None:
    """Empty a page's folder of finished work if it was done by other code."""
    noted = kept / "of"
    if not (noted.exists() and noted.read_text() == mark):
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        noted.write_text(mark)


def run_command(command: str, printed_to: Path, show: bool = True) -> None:
    """Run a command in the root of the project; what it prints is kept, and shown if asked for."""
    words = shlex.split(os.path.expandvars(command))
    start = [sys.executable, "-m", "wri.cli"] if words[0] == "wri" else [sys.executable]
    environment = os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    printed_to.parent.mkdir(parents=True, exist_ok=True)
    called = subprocess.Popen(
        [*start, *words[1:]], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    with called, printed_to.open("w") as file:
        for line in called.stdout or ():
            file.write(line)
            if show:
                print(line, end="")
    if called.returncode:
        sys.exit(f"{command} ended with {called.returncode}; the pages before it are done")


def quick_numbers(page: ResultPage) -> str:
    """Return a hash of what a page's quick command prints, numbers to three digits."""
    kept = PRINTED / f"quick-{page.commands[0].split()[1].replace('/', '-')}-{os.getpid()}.txt"
    run_command(page.quick, kept, show=False)
    text = kept.read_text()
    kept.unlink()
    cells = [
        [
            *(each[name] for name in ("table", "algorithm", "column")),
            *(_to_three_digits(each[name]) for name in ("ours", "spread")),
        ]
        for line in text.splitlines()
        if page.quick.startswith("wri ")
        for each in json.loads(line)["rows"]
    ] or NUMBER.sub(lambda found: _to_three_digits(float(found[0])), text)
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()[:16]


def _to_three_digits(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def still_holds(name: str, folder: Path) -> bool:
    """Renew the fingerprint of a page if its experiment gives the same quick numbers as before."""
    page, entry = TABLES[name], read_made(folder).get(name, {})
    before = entry.get("quick", {}).get(find_processor())
    if not before or entry["commands"] != [*page.commands]:
        return False
    files = fingerprint(page)
    if quick_numbers(page) != before:
        return False
    renew(name, folder, files)
    print(f"{name}: stays; the code changed, the quick numbers did not", flush=True)
    return True


def accept(name: str, folder: Path, reason: str) -> None:
    """Renew the fingerprint of a page whose numbers a change of code cannot have moved."""
    entry = read_made(folder).get(name, {"commands": None})
    if entry["commands"] != [*TABLES[name].commands]:
        sys.exit(f"{name} was not made with its present commands; make it with --only {name}")
    renew(name, folder, fingerprint(TABLES[name]), accepted=reason)


def renew(name: str, folder: Path, files: dict[str, str], **also: str) -> None:
    today = {"checked": date.today().isoformat(), **also}
    renewed = {"fingerprint": combine(TABLES[name], files), "packages": by_package(files)}
    keep_entry(folder, name, read_made(folder)[name] | renewed | today)


def keep_entry(folder: Path, name: str, entry: dict) -> None:
    """Write what a page was made of."""
    PRINTED.mkdir(parents=True, exist_ok=True)
    with FileLock(PRINTED / "made.lock"):  # pages may be made side by side
        made = read_made(folder) | {name: entry}
        part = folder / "made.json.part"
        part.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
        os.replace(part, folder / "made.json")


def find_processor() -> str:
    """Return name and version of the processor: long training gives other digits on another."""
    path = Path("/proc/cpuinfo")
    first = path.read_text().partition("\n\n")[0] if path.exists() else ""
    found = re.findall(r"^(?:cpu family|model|model name|stepping)\s*: (.*)$", first, re.MULTILINE)
    return " ".join(found) or platform.processor() or platform.machine()


def cpu_seconds() -> float:
    """Return the processor time of all finished commands; it hardly depends on other work."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def write_page(path: Path, name: str, origin: str) -> None:
    """Write what the commands printed between a page's marks, and to its end what it ran with."""

    def show(mark: re.Match[str]) -> str:
        number, title = int(mark[1]), mark[2]
        found = printed_part((PRINTED / f"{name}-{number}.txt").read_text(), title)
        if not found:
            sys.exit(f"{path}: {TABLES[name].commands[number]} printed no table *{title or ''}…*")
        return f"{mark[0].splitlines()[0]}\n{found}\n<!-- end of command -->"

    lines = "\n".join(TABLES[name].commands)
    signed = f"<!-- made -->\n```\n{lines}\n```\n{origin}\n<!-- end of made -->\n"
    text = SHOWN.sub(show, MADE.sub("", path.read_text()))
    path.write_text(f"{text.rstrip()}\n\n{signed}")


def printed_part(text: str, title: str | None) -> str:
    """Return what was printed, or the tables whose titles begin with some words."""
    if title is None:
        return text.strip()
    parts = (part.strip() for part in TITLE.split(text))
    return "\n\n".join(part for part in parts if part.startswith(f"*{title}"))


def main() -> None:
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--only", metavar="NAME", choices=TABLES, help="make one page")
    parser.add_argument("--stale", action="store_true", help="list stale pages; run nothing")
    accepted = {"nargs": "+", "metavar": "NAME", "choices": TABLES}
    parser.add_argument("--accept", **accepted, help="pages whose numbers have not moved")
    parser.add_argument("--because", metavar="TEXT", help="why they have not")
    options, folder = parser.parse_args(), PAGES
    if bool(options.accept) != bool(options.because):
        parser.error("--accept and --because go together")
    for name in options.accept or ():
        accept(name, folder, options.because)
    if options.only:
        make_page(options.only, folder)
    if options.only or options.accept:
        return
    made = read_made(folder)
    minutes = {
        name: made[name]["seconds"] / 60 if name in made else page.minutes
        for name, page in TABLES.items()
    }
    for name in sorted(TABLES, key=minutes.__getitem__):
        reason = why_stale(name, made)
        lacking = [need for need in TABLES[name].needs if not is_there(need)]
        if options.stale and reason:
            about = "measured" if name in made else "about"
            print(f"{name} ({about} {minutes[name]:.1f} min): {reason}")
        elif reason and lacking:
            print(f"{name}: left out, it needs {', '.join(lacking)}")
        elif reason and not still_holds(name, folder):
            make_page(name, folder)


if __name__ == "__main__":
    main()
