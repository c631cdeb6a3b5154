"""Tables 4 and E.4 and those of appendix E.5: pictures, each domain held out.

    pictures ─► backbone ─► feature layer of 32 or 64, ERM on the training domains ─► sweep

The sets are DomainBed's, or any folder ROOT/DOMAIN/CLASS. Features of the backbone are computed
once and kept. Per trial, held-out domain and width the sweep trains a feature layer on the training
rows (`sweep.data`, the backbone fixed), so repetitions draw split, feature layer and initial
weights; the pictures are the same. The width is a hyper-parameter as in the paper, 64 by default,
else drawn. The algorithms of the paper run on the
features: 10 draws × 5 trials of 500 steps with DomainBed's preset (two hidden layers), or with
`one-layer` (one, as the paper prints). A second line of WRI has the weights that we recommend,
overlap weights of a classifier that sees the label, with the numbers of the preset `coloured`.

The paper's featurizer is a ResNet-50 that ERM trained as a whole on the training domains; its
algorithms ran on features computed beforehand, like ours. It does not name its selection; its
numbers are shown beside both. All runs are kept in stores in the output folder, and an interrupted
table continues. Sets that are not on this machine are named and left out. A quick run has 12
pictures per class and domain, 2 draws and 2 trials.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from wri import sweep
from wri.cache import given_words
from wri.datasets import ImageFolder
from wri.datasets.image_sets import IMAGE_SETS, find_image_set, find_images, load_images
from wri.errors import MissingDataError
from wri.features import FeatureLayer, extract
from wri.features.extraction import as_environments
from wri.paper.experiments import ExperimentTask
from wri.paper.result import Printed, Result, ResultCell, make_line, read_printed
from wri.progress import Progress, part
from wri.report.intervals import paired_interval
from wri.report.style import ALGORITHM_NAMES
from wri.sweep.data import with_layer

ALGORITHMS = {
    "table4": ("erm", "irm", "vrex", "wri"),
    "tableE4": ("erm", "irm", "groupdro", "mixup", "mldg", "coral", "vrex", "wri"),
}
SHOWN = ("oracle", "training-domain")
WIDTHS = (64, 32)  # of the feature layer
RECOMMENDED = "WRI, weights that see the label"
AVERAGE = "average"
OF_CLASS = 12  # pictures of a class in a domain, for a quick look
DOMAINS = {each.name: each.domains for each in IMAGE_SETS.values()}


class PictureTableSize(NamedTuple):
    """Size of a table."""

    draws: int
    trials: int
    steps: int
    layer_steps: int  # of the feature layer


FULL, QUICK = PictureTableSize(10, 5, 500, 500), PictureTableSize(2, 2, 60, 60)

Lines = Mapping[str, tuple[str, str]]
"""Algorithm and preset of each line."""


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
    lines = {
        ALGORITHM_NAMES[name]: (name, task.options["preset"])
        for name in ALGORITHMS["tableE4"]
        if name in wanted
    }
    lines[RECOMMENDED] = ("wri", "coloured")
    scores: dict[str, SetScores] = {}
    notes = []
    for n, (name, root) in enumerate(present.items()):
        data, said = load_set(task, name, root, part(task.progress, 2 * n, 2 * len(present)))
        began = perf_counter()
        outcomes = train_set(task, data, lines, part(task.progress, 2 * n + 1, 2 * len(present)))
        scores[name] = score(data, outcomes, lines, task.seeds(FULL.trials, QUICK.trials))
        notes += [*said, f"{name}: training {perf_counter() - began:.0f} s."]
    return [
        task.make_result(
            table_rows(output, scores),
            [*notes, *differences(output, scores), *absent],
            output=output,
            repetitions="trials",
        )
        for output in task.outputs
    ]


def find_sets(task: ExperimentTask) -> tuple[dict[str, Path], list[str]]:
    """Return the sets that are here with their folders, and the remedies for the others."""
    asked, data = task.options["datasets"], task.options["data"]
    names = [find_image_set(each.strip()).name for each in asked.split(",")] if asked else DOMAINS
    present, absent = {}, []
    for published in IMAGE_SETS.values():
        if published.name not in names:
            continue
        if data is None:
            source = find_images(published.name)
            folder = source and source.path
        else:
            below = (Path(data) / each for each in published.folders)
            folder = next(filter(Path.is_dir, below), None)
        if folder is not None:
            present[published.name] = folder
        else:
            absent.append(f"{published.name} is not here: {published.remedy}")
    if not present and not asked and data is not None:
        root = Path(data).resolve()
        if root.is_dir() and any(path.is_dir() for path in root.iterdir()):
            return {name_of(root): root}, []
    return present, absent


def name_of(root: Path) -> str:
    """Return the name of a folder, or of the published set that it holds."""
    domains = ImageFolder(root).domains
    for published in IMAGE_SETS.values():
        if root.name in published.folders and domains == published.domains:
            return published.name
    return root.name


def load_set(
    task: ExperimentTask, name: str, root: Path, progress: Progress
) -> tuple[sweep.SweepData, list[str]]:
    """Return a set behind its feature layer, and notes on the backbone's features."""
    start = perf_counter()
    folder = ImageFolder(root)
    if folder.domains == DOMAINS.get(name):
        folder = load_images(name, root)
    if not task.full:
        folder = folder.first(OF_CLASS)
    found = extract(folder, task.options["backbone"], progress=progress)
    seconds = perf_counter() - start
    said = (
        f"{name}: {len(found.x)} pictures, backbone {found.backbone} (digest {found.digest[:12]}), "
        f"{found.x.shape[1]} features in {seconds:.0f} s (less if they were kept)."
    )
    broken = [f"{path} was left out: {reason}." for path, reason in found.broken.items()]
    data = sweep.gather(name, as_environments(folder, found), classes=len(folder.classes))
    layer = FeatureLayer(WIDTHS, (FULL if task.full else QUICK).layer_steps)
    return with_layer(data, layer), [said, *broken]


def train_set(
    task: ExperimentTask, data: sweep.SweepData, lines: Lines, progress: Progress
) -> list[sweep.Outcome]:
    """Train all runs on a set."""
    size, outcomes = FULL if task.full else QUICK, []
    presets = dict.fromkeys(preset for _, preset in lines.values())
    with sweep.open_backend(task.options["backend"]) as backend:
        for n, preset in enumerate(presets):
            label = {name: line for line, (name, own) in lines.items() if own == preset}
            spec = sweep.SweepSpec(
                tuple(label),
                draws=size.draws,
                trials=size.trials,
                steps=size.steps,
                selections=SHOWN,
                preset=preset,
                first_trial=task.seed,
                measures=("accuracy",),
            )
            name = f"pictures-{data.name}-{preset}-{'full' if task.full else 'quick'}.db"
            with sweep.Store(task.folder / name, write=True) as store:
                sweep.run_sweep(
                    sweep.Sweep(spec, data), store, part(progress, n, len(presets)), backend
                )
                outcomes += [
                    replace(each, algorithm=label[each.algorithm])
                    for each in store.outcomes()
                    if each.dataset == data.name and each.algorithm in label
                ]
    return outcomes


class SetScores(NamedTuple):
    """Accuracies on a set, with the paper's numbers if it prints them."""

    domains: tuple[str, ...]
    values: Mapping[tuple[str, str], np.ndarray]  # by selection and line, %, [trial, domain]
    printed: Mapping[str, Mapping[str, Printed]]  # by line and column


def score(
    data: sweep.SweepData, outcomes: Sequence[sweep.Outcome], lines: Lines, trials: Sequence[int]
) -> SetScores:
    found = {}
    for selection in SHOWN:
        for line in lines:
            values = np.full((len(trials), len(data.names)), np.nan)
            for k, e in np.ndindex(values.shape):
                choice = sweep.choose(
                    selection,
                    outcomes,
                    data.info,
                    algorithm=line,
                    held_out=e,
                    trial_seed=trials[k],
                )
                if isinstance(choice, sweep.SelectedCheckpoint):
                    values[k, e] = 100 * choice.score
            found[selection, line] = values
    printed = read_printed(data.name) if DOMAINS.get(data.name) == data.names else {}
    return SetScores(data.names, found, printed)


def table_rows(output: str, scores: Mapping[str, SetScores]) -> list[ResultCell]:
    """Return averages of the sets, and below them the domains of each set."""
    lines = (*(ALGORITHM_NAMES[name] for name in ALGORITHMS[output]), RECOMMENDED)
    rows = []
    for selection in SHOWN:
        table = f"Averages, {selection}: {sweep.SELECTIONS[selection].description}"
        for line in lines:
            means = {name: each.values[selection, line].mean(1) for name, each in scores.items()}
            if scores.keys() == DOMAINS.keys():
                means[AVERAGE] = np.mean([*means.values()], axis=0)
            printed = {
                name: each.printed[line][AVERAGE]
                for name, each in scores.items()
                if line in each.printed
            }
            rows += make_line(line, means, table, printed | read_printed("table4").get(line, {}))
    for name, found in scores.items():
        for selection in SHOWN:
            table = f"{name}, {selection}: {sweep.SELECTIONS[selection].description}"
            for line in lines:
                values = found.values[selection, line]
                shown = dict(zip(found.domains, values.T, strict=True)) | {AVERAGE: values.mean(1)}
                rows += make_line(line, shown, table, found.printed.get(line))
    return rows


def differences(output: str, scores: Mapping[str, SetScores]) -> list[str]:
    """Return each line minus ERM on the average over the domains, paired over trials."""
    labels = [ALGORITHM_NAMES[name] for name in ALGORITHMS[output] if name != "erm"]
    said = []
    for name, found in scores.items():
        for selection in SHOWN:
            base = found.values[selection, "ERM"].mean(1)
            parts = [
                f"{label} {paired_interval([found.values[selection, label].mean(1)], [base])}"
                for label in (*labels, RECOMMENDED)
            ]
            said.append(
                f"{name}, {selection}, minus ERM: {'; '.join(parts)} (mean over domains, paired "
                f"95 % interval over {len(base)} trials)."
            )
    return said
