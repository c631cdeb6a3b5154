"""Tables 4 and E.4 and those of appendix E.5: DomainBed's pictures, each domain held out.

    pictures ─► backbone ─► feature layer of 32 or 64, ERM on the training domains ─► sweep

Features of the backbone are computed once and kept. Per trial, held-out domain and width a feature
layer is trained on the training rows (`features.featurizer`, the backbone fixed), so repetitions
draw split, featurizer and initial weights; the pictures are the same. The width is a
hyper-parameter as in the paper, 64 by default, else drawn. The algorithms of the paper run on the
features: 10 draws × 5 trials of 500 steps with DomainBed's preset (two hidden layers), or with
`one-layer` (one, as the paper prints). A second line of WRI has the weights that we recommend,
overlap weights of a classifier that sees the label, with the numbers of the preset `coloured`.

The paper's featurizer is a ResNet-50 that ERM trained as a whole on the training domains; its
algorithms ran on features computed beforehand, like ours. It does not name its selection; its
numbers are shown beside both. Leave-one-out is not offered: it would need featurizers that have
seen neither of two domains. All runs are kept in stores in the output folder, and an interrupted
table continues. Sets that are not on this machine are named and left out. A quick run has 12
pictures per class and domain, 2 draws and 2 trials.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from wri.datasets import Environment
from wri.datasets.download import given_words
from wri.datasets.image_sets import IMAGE_SETS, find_image_set, find_images, load_images
from wri.errors import MissingDataError
from wri.features import extract
from wri.features.extraction import as_environments
from wri.paper.experiments import ExperimentTask
from wri.paper.experiments.picture_numbers import AVERAGES, DOMAINS, OVER_ALL, PER_DOMAIN
from wri.paper.features.featurizer import Featurizer
from wri.paper.results.result import Printed, Result, ResultCell
from wri.progress import Progress, part
from wri.report.intervals import paired_interval
from wri.report.style import ALGORITHM_NAMES
from wri.sweep import (
    SELECTIONS,
    Outcome,
    SelectedCheckpoint,
    Store,
    Sweep,
    SweepData,
    SweepSpec,
    choose,
    gather,
    open_backend,
    run_sweep,
    seed_hash,
)

ALGORITHMS = {
    "table4": ("erm", "irm", "vrex", "wri"),
    "tableE4": ("erm", "irm", "groupdro", "mixup", "mldg", "coral", "vrex", "wri"),
}
SHOWN = ("oracle", "training-domain")
WIDTHS = (64, 32)  # the default first
RECOMMENDED = "WRI, weights that see the label"
AVERAGE = "average"
OF_CLASS = 12  # pictures of a class in a domain, for a quick look


class PictureTableSize(NamedTuple):
    draws: int
    trials: int
    steps: int
    layer_steps: int  # of the feature layer


FULL, QUICK = PictureTableSize(10, 5, 500, 500), PictureTableSize(2, 2, 60, 60)


@dataclass(frozen=True, kw_only=True)
class AlgorithmLine:
    """Line of the tables: an algorithm with a preset."""

    algorithm: str
    preset: str

    @property
    def label(self) -> str:
        return RECOMMENDED if self.preset == "coloured" else ALGORITHM_NAMES[self.algorithm]


def run(task: ExperimentTask) -> list[Result]:
    present, absent = find_sets(task)
    if not present:
        given = task.options["data"]
        names = [each.partition(" ")[0] for each in absent]
        raise MissingDataError(
            f"{', '.join(names)}: not found below {given or given_words()}; "
            f"`wri data {names[0]}` says how to get it"
        )
    wanted = {name for output in task.outputs for name in ALGORITHMS[output]}
    lines = [
        AlgorithmLine(algorithm=name, preset=task.options["preset"])
        for name in ALGORITHMS["tableE4"]
        if name in wanted
    ]
    lines.append(AlgorithmLine(algorithm="wri", preset="coloured"))
    scores: dict[str, Scores] = {}
    notes = []
    for n, name in enumerate(present):
        data, said = load_set(task, name, part(task.progress, 2 * n, 2 * len(present)))
        began = perf_counter()
        outcomes = sweep(task, data, lines, part(task.progress, 2 * n + 1, 2 * len(present)))
        scores[name] = score(data, outcomes, lines, trials_of(task))
        notes += [*said, f"{name}: training {perf_counter() - began:.0f} s."]
    return [
        Result(
            experiment=output,
            rows=table_rows(output, scores),
            notes=[*notes, *differences(output, scores), *absent],
            repetitions="trials",
        )
        for output in task.outputs
    ]


def find_sets(task: ExperimentTask) -> tuple[list[str], list[str]]:
    """Return the names of the sets that are here, and the remedies for the others."""
    asked = task.options["datasets"]
    names = [find_image_set(each.strip()).name for each in asked.split(",")] if asked else None
    present, absent = [], []
    for published in IMAGE_SETS.values():
        if names is not None and published.name not in names:
            continue
        if folder_of(task, published.name) is not None:
            present.append(published.name)
        else:
            absent.append(f"{published.name} is not here: {published.remedy}")
    return present, absent


def folder_of(task: ExperimentTask, name: str) -> Path | None:
    """Return the folder of a set: below --data if given, else below WRI_DATA."""
    if task.options["data"] is None:
        return find_images(name)
    folders = [Path(task.options["data"]) / each for each in find_image_set(name).folders]
    return next((folder for folder in folders if folder.is_dir()), None)


def load_set(task: ExperimentTask, name: str, progress: Progress) -> tuple[SweepData, list[str]]:
    """Return a set with the backbone's features, and notes on them."""
    start = perf_counter()
    folder = load_images(name, folder_of(task, name))
    if not task.full:
        folder = folder.first(OF_CLASS)
    found = extract(folder, task.options["backbone"], progress=progress)
    seconds = perf_counter() - start
    said = (
        f"{name}: {len(found.x)} pictures, backbone {found.backbone} (digest {found.digest[:12]}), "
        f"{found.x.shape[1]} features in {seconds:.0f} s (less if they were kept)."
    )
    broken = [f"{path} was left out: {reason}." for path, reason in found.broken.items()]
    environments = as_environments(folder, found)
    return gather(name, environments, classes=len(folder.classes)), [said, *broken]


def size_of(task: ExperimentTask) -> PictureTableSize:
    return FULL if task.full else QUICK


def trials_of(task: ExperimentTask) -> range:
    return range(task.seed, task.seed + size_of(task).trials)


def width_of(draw: int, trial: int) -> int:
    """Return the width by DomainBed's rule for hyper-parameters: the default in the first draw."""
    if draw == 0:
        return WIDTHS[0]
    random = np.random.RandomState(seed_hash(seed_hash(draw, trial), "featurizer_width"))
    return int(random.choice(WIDTHS))


def sweep(
    task: ExperimentTask, data: SweepData, lines: Sequence[AlgorithmLine], progress: Progress
) -> list[Outcome]:
    """Train all runs on a set; the results have the set's name."""
    size = "full" if task.full else "quick"
    with ExitStack() as opened:
        backend = opened.enter_context(open_backend(task.options["backend"]))
        stores = {
            preset: opened.enter_context(
                Store(task.folder / f"pictures-{data.name}-{preset}-{size}.db", write=True)
            )
            for preset in dict.fromkeys(line.preset for line in lines)
        }
        places = [
            (trial, held_out, width)
            for trial in trials_of(task)
            for held_out in range(len(data.names))
            for width in WIDTHS
            if draws_of(task, trial, width)
        ]
        for n, place in enumerate(places):
            features = featurized(data, *place, steps=size_of(task).layer_steps)
            for preset, store in stores.items():
                algorithms = tuple(line.algorithm for line in lines if line.preset == preset)
                spec = plan(task, algorithms, preset, place)
                run_sweep(Sweep(spec, [features]), store, backend=backend)
            progress(n + 1, len(places))
        found = {line: stores[line.preset].outcomes() for line in lines}
    return [
        replace(each, dataset=data.name, algorithm=line.label)
        for line, outcomes in found.items()
        for each in outcomes
        if each.algorithm == line.algorithm
    ]


def draws_of(task: ExperimentTask, trial: int, width: int) -> tuple[int, ...]:
    """Return the draws of a trial that have a width."""
    return tuple(n for n in range(size_of(task).draws) if width_of(n, trial) == width)


def plan(
    task: ExperimentTask, algorithms: tuple[str, ...], preset: str, place: tuple[int, int, int]
) -> SweepSpec:
    """Return the runs of one trial, held-out domain and width."""
    trial, held_out, width = place
    size = size_of(task)
    return SweepSpec(
        algorithms,
        draws=size.draws,
        only_draws=draws_of(task, trial, width),
        steps=size.steps,
        selections=SHOWN,
        test_envs=(held_out,),
        preset=preset,
        first_trial=trial,
        measures=("accuracy",),
    )


def featurized(data: SweepData, trial: int, held_out: int, width: int, *, steps: int) -> SweepData:
    """Return the set behind a feature layer that has seen training rows of the other domains."""
    splits, bank = data.splits(trial), data.bank
    train = [splits[f"env{e}_in"] for e in range(len(data.names)) if e != held_out]
    head = Featurizer(width=width, steps=steps).fit_head(
        [(bank.features[rows], bank.targets[rows]) for rows in train],
        seed_hash(data.name, held_out, width, trial),
        classes=int(bank.targets.max()) + 1,
    )
    environments = [
        Environment(name, head.transform(bank.features[rows]), bank.targets[rows])
        for name, rows in zip(data.names, data.rows, strict=True)
    ]
    name = f"{data.name}, {data.names[held_out]} held out, {width} features, trial {trial}"
    return gather(name, environments, classes=bank.n_classes)


Scores = Mapping[tuple[str, str], np.ndarray]
"""Selection and line to accuracies in %, `[trial, domain]`."""


def score(
    data: SweepData,
    outcomes: Sequence[Outcome],
    lines: Sequence[AlgorithmLine],
    trials: Sequence[int],
) -> Scores:
    found = {}
    for selection in SHOWN:
        for line in lines:
            values = np.full((len(trials), len(data.names)), np.nan)
            for k, trial in enumerate(trials):
                for e in range(len(data.names)):
                    choice = choose(
                        selection,
                        outcomes,
                        data.info,
                        algorithm=line.label,
                        held_out=e,
                        trial_seed=trial,
                    )
                    if isinstance(choice, SelectedCheckpoint):
                        values[k, e] = 100 * choice.score
            found[selection, line.label] = values
    return found


def table_rows(output: str, scores: Mapping[str, Scores]) -> list[ResultCell]:
    """Return averages of the sets, and below them the domains of each set."""
    keys = {ALGORITHM_NAMES[name]: name for name in ALGORITHMS[output]} | {RECOMMENDED: ""}
    rows = []
    for selection in SHOWN:
        table = f"Averages, {selection}: {SELECTIONS[selection].description}"
        for label, key in keys.items():
            means = {name: found[selection, label].mean(1) for name, found in scores.items()}
            for name, values in means.items():
                rows.append(cell(label, name, values, AVERAGES[name].get(key), table))
            if len(scores) == len(AVERAGES):
                over_all = np.mean([*means.values()], axis=0)
                rows.append(ResultCell.of(label, AVERAGE, over_all, OVER_ALL.get(key), table=table))
    for name, found in scores.items():
        for selection in SHOWN:
            table = f"{name}, {selection}: {SELECTIONS[selection].description}"
            for label, key in keys.items():
                printed = PER_DOMAIN[name].get(key, (None,) * len(DOMAINS[name]))
                values = found[selection, label]
                for e, domain in enumerate(DOMAINS[name]):
                    rows.append(cell(label, domain, values[:, e], printed[e], table))
                rows.append(cell(label, AVERAGE, values.mean(1), AVERAGES[name].get(key), table))
    return rows


def cell(
    label: str, column: str, values: np.ndarray, printed: Printed | None, table: str
) -> ResultCell:
    mean, spread = printed or (None, None)
    return ResultCell.of(label, column, values, mean, spread, table)


def differences(output: str, scores: Mapping[str, Scores]) -> list[str]:
    """Return each line minus ERM on the average over the domains, paired over trials."""
    labels = [ALGORITHM_NAMES[name] for name in ALGORITHMS[output] if name != "erm"]
    said = []
    for name, found in scores.items():
        for selection in SHOWN:
            base = found[selection, "ERM"].mean(1)
            parts = [
                f"{label} {paired_interval([found[selection, label].mean(1)], [base])}"
                for label in (*labels, RECOMMENDED)
            ]
            said.append(
                f"{name}, {selection}, minus ERM: {'; '.join(parts)} (mean over domains, paired "
                f"95 % interval over {len(base)} trials)."
            )
    return said
