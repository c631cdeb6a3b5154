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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import torch

from wri.densities import Mixture
from wri.errors import InputError
from wri.objectives import make_objective
from wri.objectives.hyperparameters import complete
from wri.objectives.wri import WRI
from wri.ood import Densities, auroc, combine, common_scaling, detection_rates
from wri.ood.evidence import Combination
from wri.paper.experiments import ExperimentTask, coloured
from wri.paper.experiments.coloured import ALGORITHMS, PRESETS, TEST, TRAINING
from wri.paper.features import Extractor, fitted_features
from wri.paper.result import Result, ResultCell, compare_paired, make_line, read_printed
from wri.paper.simulations import mirror
from wri.progress import Progress, part
from wri.sweep import SweepData, SweepSpec
from wri.training import Record, Run, train

FALSE_RATES = (0.2, 0.4, 0.6, 0.8)
COLUMNS = (*(f"tpr@fpr={rate:.0%}" for rate in FALSE_RATES), "AUROC")
AS_PRINTED = "density for WRI, confidence for the others"
ON_PHI = "density on each algorithm's own Φ(x)"
CONFIDENCE_OF_WRI = "WRI's confidence"
FULL, QUICK = (10, 500), (2, 250)  # draws of everything, steps
COMPONENTS = {"x": (3, 10, 30, 60), "phi": (1, 3, 10, 30)}  # a quick run leaves out the largest
MOST_ROWS = 10_000  # per environment, for a mixture
TOLERANCE = 1e-2  # of a log-likelihood of tens

WHOSE_MERIT = (
    "No mixture comes from the WRI penalty. The one on x is fitted on the features alone and could "
    "be used with any predictor: WRI's line compares a density of the features with confidence, "
    "and not WRI with the others. The lines on Φ(x) show how much of that evidence each "
    "predictor's own representation keeps."
)

OfRows = Callable[[np.ndarray], np.ndarray]  # [n, D] -> [n], a score, or [n, F], a view
Values = dict[str, list[float]]
"""Line of a table to its values in one draw, by column."""
Lines = dict[str, np.ndarray]
"""Line of a table to its values, `[draw, column]`."""


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


@dataclass(frozen=True, eq=False, kw_only=True)
class DrawResult:
    """Results of one draw of everything."""

    sizes: tuple[int, int]  # numbers of common and of strange rows
    accuracy: Values  # of each algorithm in the environments, %
    tables: dict[str, Values] = field(default_factory=dict)  # by title
    components: dict[str, int] = field(default_factory=dict)  # by what mixtures are fitted on
    diverged: list[str] = field(default_factory=list)  # algorithms; then there are no tables


def run(task: ExperimentTask) -> list[Result]:
    count, steps = FULL if task.full else QUICK
    extractor = coloured.choose_extractor(task, "ae")
    found = {
        task.seed + n: measure(task, extractor, task.seed + n, part(task.progress, n, count))
        for n in range(count)
    }
    kept = [*survivors(found).values()]
    tables = {
        title: {line: np.array([each.tables[title][line] for each in kept]) for line in lines}
        for title, lines in kept[0].tables.items()
    }
    notes = [
        describe(task, extractor, found),
        accuracies(kept),
        *left_out(found),
        *never_in_force(PRESETS[task.options["preset"]], steps),
        *components(kept),
        *(against(title, lines) for title, lines in tables.items()),
    ]
    rows = [row for title, lines in tables.items() for row in table_rows(title, lines)]
    return [task.make_result(rows, notes, repetitions="draws")]


def measure(
    task: ExperimentTask, extractor: Extractor, draw: int, progress: Progress
) -> DrawResult:
    """Measure one draw: features, the four predictors, and their detection of strange rows."""
    preset, by, negatives = (task.options[k] for k in ("preset", "combine", "negatives"))
    stage = partial(part, progress, parts=4 if preset == "coloured" else 2)
    data = coloured.load_features("cmnist", task.full, extractor, stage(0), draw)
    common, strange = load_shown(data, task.full, extractor, negatives, draw)

    def measured(score: OfRows) -> list[float]:
        """Return rates in % and the area."""
        scores = score(common), score(strange)
        return [*(100 * detection_rates(*scores, FALSE_RATES)), auroc(*scores)]

    trained = train_all(data, PRESETS[preset], draw, (FULL if task.full else QUICK)[1], stage(1))
    splits = [*(f"env{e}_out" for e in TRAINING), f"env{TEST}_in"]
    accuracy = {
        label: [100 * one.record.measures["accuracy"][split][-1] for split in splits]
        for label, one in trained.items()
    }
    found = DrawResult(
        sizes=(len(common), len(strange)),
        accuracy=accuracy,
        diverged=[label for label, one in trained.items() if one.record.diverged_at is not None],
    )
    if found.diverged:
        return found
    lines = {label: measured(one.confidence) for label, one in trained.items()}
    lines[CONFIDENCE_OF_WRI] = lines["WRI"]
    found.tables[AS_PRINTED] = lines
    if preset != "coloured":
        lines["WRI"] = measured(partial(trained["WRI"].own_density, by))
        return found
    rows = split_training(data, draw)

    def measured_by_mixtures(view: OfRows, name: str, where: str, report: Progress) -> list[float]:
        ladder = COMPONENTS[where] if task.full else COMPONENTS[where][:-1]
        density = fit_best(*rows, view, ladder, report)
        found.components[name] = density.form.components
        return measured(lambda x: combine(density.logs(view(x)), by))

    lines["WRI"] = measured_by_mixtures(as_it_is, "x", "x", stage(2))
    found.tables[ON_PHI] = {
        label: measured_by_mixtures(
            one.represent, f"Φ(x) of {label}", "phi", part(stage(3), n, len(trained))
        )
        for n, (label, one) in enumerate(trained.items())
    }
    return found


def load_shown(
    data: SweepData, full: bool, extractor: Extractor, negatives: str, draw: int
) -> tuple[np.ndarray, np.ndarray]:  # [n, D] common, [m, D] strange
    """Return features of the test environment's digits, unaltered and mirrored."""
    environments = coloured.digits("cmnist", full, draw)
    test = environments[TEST]
    mirrored = mirror(test).digits
    features = fitted_features(environments, extractor, TRAINING, draw)
    common = data.rows[TEST][are_negatives(test.digits, mirrored.digits, negatives)]
    return data.bank.features[common], features.transform(mirrored.images)


def are_negatives(unaltered: np.ndarray, mirrored: np.ndarray, negatives: str) -> np.ndarray:
    """Return which unaltered digits count as common: "all", or the "same" digits as mirrored."""
    return np.isin(unaltered, unaltered if negatives == "all" else mirrored)


def train_all(
    data: SweepData, preset: str, draw: int, steps: int, progress: Progress
) -> dict[str, TrainedRun]:
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
        ALGORITHMS[each.algorithm]: TrainedRun(one, record)
        for each, one, record in zip(planned, runs, records, strict=True)
    }


def split_training(data: SweepData, draw: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return rows of the training environments, `[n_e, D]` each: for training, and held back."""
    splits, x = data.splits(draw), data.bank.features
    train, held_back = ([x[splits[f"env{e}_{kind}"]] for e in TRAINING] for kind in ("in", "out"))
    return train, held_back


def as_it_is(x: np.ndarray) -> np.ndarray:
    return x


def fit_densities(environments: Sequence[np.ndarray], view: OfRows, components: int) -> Densities:
    """Fit mixtures to a view of the rows of each environment."""
    rows = [view(own[:MOST_ROWS]).astype(np.float32) for own in environments]  # EM is faster
    distinct = min(len(np.unique(own, axis=0)) for own in rows)  # one where Φ is dead
    form = Mixture(min(components, distinct), tolerance=TOLERANCE)
    return Densities.fit(rows, form, common_scaling(rows))


def fit_best(
    train: Sequence[np.ndarray],
    held_back: Sequence[np.ndarray],
    view: OfRows,
    components: Sequence[int],
    progress: Progress,
) -> Densities:
    """Fit mixtures with the number of components that held-back rows choose."""

    def likelihood(densities: Densities) -> float:
        own = [densities.logs(view(rows))[:, e].mean() for e, rows in enumerate(held_back)]
        return float(np.mean(own))

    tried = []
    for n, number in enumerate(components, 1):
        tried.append(fit_densities(train, view, number))
        progress(n, len(components))
    return max(tried, key=likelihood)


def survivors(found: Mapping[int, DrawResult]) -> dict[int, DrawResult]:
    """Return the draws in which no run diverged, so that comparisons stay paired."""
    kept = {draw: each for draw, each in found.items() if not each.diverged}
    if len(kept) < 2:
        raise InputError(
            f"runs diverged in {len(found) - len(kept)} of {len(found)} draws, and two are needed; "
            "use another seed or preset"
        )
    return kept


def left_out(found: Mapping[int, DrawResult]) -> list[str]:
    return [
        f"Draw {draw} is left out: {' and '.join(each.diverged)} diverged."
        for draw, each in found.items()
        if each.diverged
    ]


def table_rows(table: str, lines: Lines) -> list[ResultCell]:
    rows, printed = [], read_printed("table3") if table == AS_PRINTED else {}
    for line, values in lines.items():
        shown = dict(zip(COLUMNS, values.T, strict=True)) | {"worst AUROC": values[:, -1].min()}
        rows += make_line(line, shown, table, printed.get(line))
    return rows


def against(table: str, lines: Lines) -> str:
    """Return paired intervals of WRI's AUROC minus the others'."""
    areas = {line: [values[:, -1]] for line, values in lines.items()}
    ours = areas.pop("WRI")
    return (
        f"AUROC, {table}: WRI minus {compare_paired(ours, areas, 3)} (mean and paired 95 % "
        f"interval over {len(ours[0])} draws)."
    )


def describe(task: ExperimentTask, extractor: Extractor, found: Mapping[int, DrawResult]) -> str:
    first, *_, last = found
    common, strange = np.mean([each.sizes for each in found.values()], axis=0)
    preset, by, negatives = (task.options[k] for k in ("preset", "combine", "negatives"))
    return (
        f"Preset {preset}, features {extractor!r}, draws {first} to {last}, densities combined by "
        f"their {by}; {common:.0f} common rows ({negatives} digits) and {strange:.0f} strange ones "
        "on average."
    )


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
