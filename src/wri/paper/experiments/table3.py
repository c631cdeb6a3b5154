"""Table 3: detection of mirrored digits by WRI's density and by the confidence of the others.

ERM, IRM, VREx and WRI learn from features of CMNIST's two training environments, with the preset's
default hyper-parameters. Common rows are the unaltered digits of the test environment, or with
`negatives` "same" only those of the digits that are mirrored; strange rows are its mirrored digits
(figure E.6), seen through the same fitted extractor. Scores, higher = more common:

    confidence   log max_c softmax(f(x))_c
    density      log of the mean over e of d_e(x), or with `combine` "maximum" max_e log d_e(x)

The paper does not specify `negatives` and `combine`. The densities d_e depend on the preset:

    paper, published   the bounded networks from WRI's training
    coloured           Gaussian mixtures of the training environments, fitted by likelihood only:
                       WRI's weights come from a classifier of environments, which has no density

Such mixtures do not depend on WRI and could be used with any predictor. A second table therefore
fits them on the last hidden layer Φ(x) of each of the four: it shows the effect of a density in
place of confidence, and the effect of the predictor.

A mixture is fitted on training rows, at most 10,000 per environment. The number of its components
is the one of `COMPONENTS` (no larger ones are tried, to save time) with the largest likelihood of
the rows of the training environments that the draw holds back. No row of the test environment is
used.

A repetition is a draw of everything: rows and colours, extractor, split, initial weights and
mixtures. `--seed N` is the number of the first. Full: 10 draws of 500 steps, quick: 2 of 250, each
with DomainBed's split.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import torch

from wri.errors import InputError
from wri.objectives import make_objective
from wri.objectives.hyperparameters import complete
from wri.objectives.wri import WRI
from wri.ood import auroc, combine, detection_rates
from wri.ood.evidence import Combination
from wri.paper.experiments import ExperimentTask
from wri.paper.experiments.coloured import (
    ALGORITHMS,
    PRESETS,
    TEST,
    TRAINING,
    choose_extractor,
    digits,
    load_features,
)
from wri.paper.experiments.mixtures import OfRows, as_it_is, fit_best, ladder, mixed, split_training
from wri.paper.features import Extractor, fitted_features
from wri.paper.result import Result, ResultCell, make_line
from wri.paper.simulations import mirror
from wri.progress import Progress, part
from wri.report.intervals import paired_interval
from wri.sweep import SweepData, SweepSpec
from wri.training import Record, Run, train

FALSE_RATES = (0.2, 0.4, 0.6, 0.8)
COLUMNS = (*(f"tpr@fpr={rate:.0%}" for rate in FALSE_RATES), "AUROC")
PRINTED = {
    "ERM": ((25.4, 3.6), (45.6, 2.8), (64.7, 1.7), (82.2, 1.2), (0.539, 0.018)),
    "IRM": ((29.8, 3.2), (46.8, 2.8), (66.4, 1.9), (84.8, 0.9), (0.565, 0.017)),
    "VREx": ((25.3, 2.5), (43.5, 2.3), (61.6, 1.5), (80.8, 1.1), (0.525, 0.014)),
    "WRI": ((36.7, 6.7), (54.1, 5.8), (68.1, 4.5), (85.0, 1.5), (0.595, 0.039)),
}
AS_PRINTED = "density for WRI, confidence for the others"
ON_PHI = "density on each algorithm's own Φ(x)"
CONFIDENCE_OF_WRI = "WRI's confidence"

WHOSE_MERIT = (
    "No mixture comes from the WRI penalty. The one on x is fitted on the features alone and could "
    "be used with any predictor: WRI's line compares a density of the features with confidence, "
    "and not WRI with the others. The lines on Φ(x) show how much of that evidence each "
    "predictor's own representation keeps."
)

Values = dict[str, list[float]]
"""Line of a table to its values in one draw, by column."""

Lines = dict[str, np.ndarray]
"""Line of a table to its values, `[draw, column]`."""


class Table3Size(NamedTuple):
    draws: int  # of everything
    steps: int


FULL, QUICK = Table3Size(10, 500), Table3Size(2, 250)


class NoveltyFeatures(NamedTuple):
    """Features of common and strange rows."""

    common: np.ndarray  # [n, D]
    strange: np.ndarray  # [m, D]


class TrainedRun(NamedTuple):
    """One trained run."""

    run: Run
    record: Record

    def confidence(self, x: np.ndarray) -> np.ndarray:  # [n, D] -> [n]
        """Return the log of the largest softmax output; in double precision few are tied at 1."""
        outputs = self.record.network.outputs(_double(self.record.parameters), _double(x))[0]
        return outputs.log_softmax(-1).max(-1).values.numpy()

    def represent(self, x: np.ndarray) -> np.ndarray:  # [n, D] -> [n, F]
        """Return Φ(x)."""
        return self.record.network.represent(_double(self.record.parameters), _double(x))[0].numpy()

    def own_density(self, by: Combination, x: np.ndarray) -> np.ndarray:  # [n, D] -> [n]
        """Return scores by the networks from WRI's training."""
        density, flat = cast(WRI, self.run.objective).density, _double(self.record.state[0])
        bounds = {name: _double(self.run.hyper[name]) for name in ("min_density", "max_density")}
        logs = density.log_density(flat, _double(x), len(TRAINING), bounds)
        return combine(logs[0].numpy().T, by)


Trained = dict[str, TrainedRun]
"""By algorithm."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DrawResult:
    """Results of one draw of everything."""

    shown: NoveltyFeatures
    accuracy: Values  # of each algorithm in the environments, %
    tables: dict[str, Values] = field(default_factory=dict)  # by title
    components: dict[str, int] = field(default_factory=dict)  # by what mixtures are fitted on
    diverged: list[str] = field(default_factory=list)  # algorithms; then there are no tables


def run(task: ExperimentTask) -> list[Result]:
    size = FULL if task.full else QUICK
    extractor = choose_extractor(task, "ae")
    draws = range(task.seed, task.seed + size.draws)
    found = {
        draw: measure(task, extractor, draw, part(task.progress, n, size.draws))
        for n, draw in enumerate(draws)
    }
    kept = survivors(found)
    tables = gather_tables([*kept.values()])
    return [
        Result(
            experiment=task.name,
            rows=[row for title, lines in tables.items() for row in table_rows(title, lines)],
            notes=[
                describe(task, extractor, found),
                accuracies([*kept.values()]),
                *left_out(found),
                *never_in_force(PRESETS[task.options["preset"]], size.steps),
                *components([*kept.values()]),
                *(against(title, lines) for title, lines in tables.items()),
            ],
            repetitions="draws",
        )
    ]


def measure(
    task: ExperimentTask, extractor: Extractor, draw: int, progress: Progress
) -> DrawResult:
    """Measure one draw: features, the four predictors, and their detection of strange rows."""
    preset, by, negatives = (task.options[k] for k in ("preset", "combine", "negatives"))
    size = FULL if task.full else QUICK
    stage = partial(part, progress, parts=4 if preset == "coloured" else 2)
    data = load_features("cmnist", task.full, extractor, stage(0), draw)
    shown = load_shown(data, task.full, extractor, negatives, draw)
    trained = train_all(data, PRESETS[preset], draw, size.steps, stage(1))
    diverged = [ALGORITHMS[k] for k, one in trained.items() if one.record.diverged_at is not None]
    accuracy = {ALGORITHMS[name]: last_accuracies(one) for name, one in trained.items()}
    if diverged:
        return DrawResult(shown=shown, accuracy=accuracy, diverged=diverged)
    lines = {ALGORITHMS[k]: measured(one.confidence, shown) for k, one in trained.items()}
    lines[CONFIDENCE_OF_WRI] = lines["WRI"]
    tables = {AS_PRINTED: lines}
    numbers: dict[str, int] = {}
    if preset == "coloured":
        rows = split_training(data, draw)
        density = fit_best(rows, as_it_is, ladder("x", task.full), stage(2))
        numbers["x"] = density.form.components
        lines["WRI"] = measured(partial(mixed, density, as_it_is, by), shown)
        tables[ON_PHI] = {}
        for n, (name, one) in enumerate(trained.items()):
            steps = part(stage(3), n, len(trained))
            density = fit_best(rows, one.represent, ladder("phi", task.full), steps)
            numbers[f"Φ(x) of {ALGORITHMS[name]}"] = density.form.components
            score = partial(mixed, density, one.represent, by)
            tables[ON_PHI][ALGORITHMS[name]] = measured(score, shown)
    else:
        lines["WRI"] = measured(partial(trained["wri"].own_density, by), shown)
    return DrawResult(shown=shown, accuracy=accuracy, tables=tables, components=numbers)


def load_shown(
    data: SweepData, full: bool, extractor: Extractor, negatives: str, draw: int
) -> NoveltyFeatures:
    """Return the test environment's digits, unaltered and mirrored."""
    environments = digits("cmnist", full, draw)
    test = environments[TEST]
    mirrored = mirror(test).digits
    features = fitted_features(environments, extractor, TRAINING, draw)
    common = data.rows[TEST][are_negatives(test.digits, mirrored.digits, negatives)]
    return NoveltyFeatures(data.bank.features[common], features.transform(mirrored.images))


def are_negatives(unaltered: np.ndarray, mirrored: np.ndarray, negatives: str) -> np.ndarray:
    """Return which unaltered digits count as common: "all", or the "same" digits as mirrored."""
    if negatives == "all":
        return np.ones(len(unaltered), bool)
    return np.isin(unaltered, mirrored)


def train_all(data: SweepData, preset: str, draw: int, steps: int, progress: Progress) -> Trained:
    """Train one run per algorithm: those of a sweep with the default numbers."""
    spec = SweepSpec(
        tuple(ALGORITHMS),
        steps=steps,
        checkpoint_every=steps,
        test_envs=(TEST,),
        preset=preset,
        first_trial=draw,
    )
    splits = data.splits(draw)
    planned = spec.plan([data])
    runs = [each.run(data, splits) for each in planned]
    records = train(runs, checkpoint_every=steps, progress=progress)
    return {
        each.algorithm: TrainedRun(one, record)
        for each, one, record in zip(planned, runs, records, strict=True)
    }


def survivors(found: Mapping[int, DrawResult]) -> dict[int, DrawResult]:
    """Return the draws in which no run diverged, so that comparisons stay paired."""
    kept = {draw: each for draw, each in found.items() if not each.diverged}
    if len(kept) < 2:
        raise InputError(
            f"runs diverged in {len(found) - len(kept)} of {len(found)} draws, and two are needed; "
            "take another seed or preset"
        )
    return kept


def left_out(found: Mapping[int, DrawResult]) -> list[str]:
    return [
        f"Draw {draw} is left out: {' and '.join(each.diverged)} diverged."
        for draw, each in found.items()
        if each.diverged
    ]


def measured(score: OfRows, shown: NoveltyFeatures) -> list[float]:
    """Return rates in % and the area."""
    common, strange = score(shown.common), score(shown.strange)
    return [*(100 * detection_rates(common, strange, FALSE_RATES)), auroc(common, strange)]


def gather_tables(found: Sequence[DrawResult]) -> dict[str, Lines]:
    return {
        title: {line: np.array([each.tables[title][line] for each in found]) for line in lines}
        for title, lines in found[0].tables.items()
    }


def table_rows(table: str, lines: Lines) -> list[ResultCell]:
    rows = []
    for line, values in lines.items():
        shown = dict(zip(COLUMNS, values.T, strict=True)) | {"worst AUROC": values[:, -1].min()}
        as_printed = table == AS_PRINTED and line in PRINTED
        paper = dict(zip(COLUMNS, PRINTED[line], strict=True)) if as_printed else {}
        rows += make_line(line, shown, table, paper)
    return rows


def against(table: str, lines: Lines) -> str:
    """Return paired intervals of WRI's AUROC minus the others'."""
    ours, parts = lines["WRI"][:, -1], []
    for line, values in lines.items():
        if line != "WRI":
            found = paired_interval([ours], [values[:, -1]])
            parts.append(f"{line} {found.describe(3)}")
    return (
        f"AUROC, {table}: WRI minus {'; '.join(parts)} (mean and paired 95 % interval over "
        f"{len(ours)} draws)."
    )


def describe(task: ExperimentTask, extractor: Extractor, found: Mapping[int, DrawResult]) -> str:
    first, *_, last = found
    sizes = [[len(rows) for rows in each.shown] for each in found.values()]
    common, strange = np.mean(sizes, axis=0)
    preset, by, negatives = (task.options[k] for k in ("preset", "combine", "negatives"))
    return (
        f"Preset {preset}, features {extractor!r}, draws {first} to {last}, densities combined by "
        f"their {by}; {common:.0f} common rows ({negatives} digits) and {strange:.0f} strange ones "
        "on average."
    )


def last_accuracies(one: TrainedRun) -> list[float]:
    splits = [*(f"env{e}_out" for e in TRAINING), f"env{TEST}_in"]
    return [100 * one.record.measures["accuracy"][split][-1] for split in splits]


def accuracies(found: Sequence[DrawResult]) -> str:
    """Return the accuracies of the predictors."""
    parts = []
    for label in found[0].accuracy:
        means = np.mean([each.accuracy[label] for each in found], axis=0)
        parts.append(f"{label} {' / '.join(f'{mean:.0f}' for mean in means)}")
    return f"Accuracy (%) in +90% / +80% / -90% at the last step: {', '.join(parts)}."


def components(found: Sequence[DrawResult]) -> list[str]:
    """Return the numbers of components that the draws chose."""
    parts = []
    for what in found[0].components:
        numbers = sorted({each.components[what] for each in found})
        parts.append(f"on {what} {' or '.join(map(str, numbers))}")
    return [f"Components of the mixtures: {', '.join(parts)}.", WHOSE_MERIT] if parts else []


def never_in_force(preset: str, steps: int) -> list[str]:
    late = []
    for name, label in ALGORITHMS.items():
        numbers = complete(make_objective(name, preset).hyperparameters(), {}, preset)
        if numbers.get("anneal_steps", 0) >= steps:
            late.append(label)
    if not late:
        return []
    return [f"The preset anneals {' and '.join(late)} so long that the penalty never starts."]


def _double(values: np.ndarray | float) -> torch.Tensor:  # […] -> [1, …]
    """Return the array with an axis of one run."""
    return torch.as_tensor(values, dtype=torch.float64)[None]
