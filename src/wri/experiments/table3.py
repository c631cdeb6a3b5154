"""Table 3: mirrored digits told from common ones, by WRI's density and the others' confidence.

ERM, IRM, VREx and WRI learn from features of CMNIST's two training environments, with the preset's
default hyper-parameters. Common rows are the unaltered digits of the test environment, or with
`negatives` "same" only those of the digits that are mirrored; strange rows are its mirrored digits
(figure E.6), seen through the same fitted extractor. Scores, higher = more common:

    confidence   log max_c softmax(f(x))_c
    density      log of the mean over e of d_e(x), or with `combine` "maximum" max_e log d_e(x)

The paper leaves `negatives` and `combine` open. Whose densities d_e are, the preset says:

    paper, published   the bounded networks that WRI's training leaves behind
    coloured           Gaussian mixtures of the training environments, fitted by likelihood alone:
                       WRI's weights come from a classifier of environments, which knows no density

Such mixtures owe nothing to WRI and would serve any predictor. A second table therefore fits them
on the last hidden layer Φ(x) of each of the four: what a density brings in the place of confidence,
and what the predictor does.

A mixture is fitted on rows that train, 10,000 of an environment at most. The number of its
components is the one of `COMPONENTS` (no larger ones are tried, for time) under which the rows of
the training environments that the first trial holds back are likeliest; all trials use it. No row
of the test environment takes part.
Full: 5 trials of 500 steps, quick: 2 of 250, each with DomainBed's split.
"""

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import NamedTuple, cast

import numpy as np
import torch

from wri.datasets import mirror
from wri.densities import Mixture
from wri.errors import InputError
from wri.experiments.coloured import (
    ALGORITHMS,
    DATA_SEED,
    PRESETS,
    TEST,
    TRAINING,
    choose_extractor,
    digits,
    load_features,
)
from wri.experiments.task import Task
from wri.features import Extractor, fitted_features
from wri.objectives.wri import WRI
from wri.ood import Densities, auroc, combine, common_scaling, detection_rates
from wri.ood.evidence import Combination
from wri.progress import Progress, part
from wri.report.intervals import paired_interval
from wri.report.result import Result, Row
from wri.sweep import Data, SweepSpec
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
    "No mixture comes from the WRI penalty. The one on x is fitted on the features alone and would "
    "serve any predictor: WRI's line sets a density of the features against confidence, and not "
    "WRI against the others. The lines on Φ(x) tell how much of that evidence each predictor's own "
    "representation keeps."
)

COMPONENTS = {"x": (3, 10, 30, 60), "phi": (1, 3, 10, 30)}
MOST_ROWS = 10_000  # of an environment, for a mixture
TOLERANCE = 1e-2  # of a log-likelihood of tens

OfRows = Callable[[np.ndarray], np.ndarray]  # [n, D] -> [n], a score, or [n, F], a view
Lines = dict[str, np.ndarray]
"""Line of a table to its values, `[trial, column]`."""


class Size(NamedTuple):
    trials: int
    steps: int


FULL, QUICK = Size(5, 500), Size(2, 250)


class Shown(NamedTuple):
    """Features of what is told apart."""

    common: np.ndarray  # [n, D]
    strange: np.ndarray  # [m, D]


class Predictor(NamedTuple):
    """One run, trained."""

    run: Run
    record: Record

    def confidence(self, x: np.ndarray) -> np.ndarray:  # [n, D] -> [n]
        """Logarithm of the largest softmax output; in double precision few are tied at 1."""
        outputs = self.record.network.outputs(_double(self.record.parameters), _double(x))[0]
        return outputs.log_softmax(-1).max(-1).values.numpy()

    def represent(self, x: np.ndarray) -> np.ndarray:  # [n, D] -> [n, F]
        """Φ(x)."""
        return self.record.network.represent(_double(self.record.parameters), _double(x))[0].numpy()

    def own_density(self, by: Combination, x: np.ndarray) -> np.ndarray:  # [n, D] -> [n]
        """By the networks that WRI's training leaves behind."""
        density, flat = cast(WRI, self.run.objective).density, _double(self.record.state[0])
        bounds = {name: _double(self.run.hyper[name]) for name in ("min_density", "max_density")}
        logs = density.log_density(flat, _double(x), len(TRAINING), bounds)
        return combine(logs[0].numpy().T, by)


Trained = dict[str, dict[int, Predictor]]
"""Algorithm and trial to what was trained."""


def run(task: Task) -> list[Result]:
    start = perf_counter()
    preset, by, negatives = (task.options[k] for k in ("preset", "combine", "negatives"))
    size = FULL if task.full else QUICK
    extractor = choose_extractor(task, "ae")
    stage = partial(part, task.progress, parts=4 if preset == "coloured" else 2)
    data = load_features("cmnist", task.full, extractor, stage(0))
    shown = load_shown(data, task.full, extractor, negatives)
    prepared = perf_counter()
    trials = range(task.seed, task.seed + size.trials)
    trained, notes = survivors(train_all(data, PRESETS[preset], trials, size.steps, stage(1)))
    notes = [
        f"Preset {preset}, features {extractor!r}, densities combined by their {by}; "
        f"{len(shown.common)} common rows ({negatives} digits), {len(shown.strange)} strange ones.",
        accuracies(trained, data),
        *notes,
        *never_in_force(trained, size.steps),
    ]
    lines = {
        ALGORITHMS[name]: over_trials([one.confidence for one in each.values()], shown)
        for name, each in trained.items()
    }
    lines[CONFIDENCE_OF_WRI] = lines["WRI"]
    tables = {AS_PRINTED: lines}
    if preset == "coloured":
        rows = [seen(data, trial) for trial in trained["wri"]]
        views = [as_it_is] * len(rows)
        found = fit_trials(rows, views, ladder("x", task.full), stage(2))
        lines["WRI"] = density_lines(found, views, by, shown)
        notes.append(f"Density on x: mixtures of {found[0].form.components} components.")
        tables[ON_PHI], numbers = on_phi(
            rows, trained, ladder("phi", task.full), by, shown, stage(3)
        )
        notes += [f"Density on Φ(x): mixtures of {numbers} components.", WHOSE_MERIT]
    else:
        scores = [partial(one.own_density, by) for one in trained["wri"].values()]
        lines["WRI"] = over_trials(scores, shown)
    notes += [against(table, each) for table, each in tables.items()]
    notes.append(
        f"Features {prepared - start:.0f} s, or as long as it takes to read them; the rest "
        f"{perf_counter() - prepared:.0f} s."
    )
    cells = [row for table, each in tables.items() for row in table_rows(table, each)]
    return [
        Result(
            experiment=task.name,
            rows=cells,
            figures=[],
            seconds=perf_counter() - start,
            notes=notes,
            repetitions="trials",
        )
    ]


def load_shown(data: Data, full: bool, extractor: Extractor, negatives: str) -> Shown:
    """The test environment's digits as they are, and mirrored."""
    environments = digits("cmnist", full)
    test = environments[TEST]
    mirrored = mirror(test).digits
    features = fitted_features(environments, extractor, TRAINING, DATA_SEED)
    common = data.rows[TEST][are_negatives(test.digits, mirrored.digits, negatives)]
    return Shown(data.bank.features[common], features.transform(mirrored.images))


def are_negatives(unaltered: np.ndarray, mirrored: np.ndarray, negatives: str) -> np.ndarray:
    """Which unaltered digits count as common: "all", or the "same" digits as are mirrored."""
    if negatives == "all":
        return np.ones(len(unaltered), bool)
    return np.isin(unaltered, mirrored)


def train_all(data: Data, preset: str, trials: range, steps: int, progress: Progress) -> Trained:
    """A run for each algorithm and trial: those of a sweep with one draw, the defaults."""
    spec = SweepSpec(
        tuple(ALGORITHMS),
        trials=len(trials),
        steps=steps,
        checkpoint_every=steps,
        test_envs=(TEST,),
        preset=preset,
        first_trial=trials[0],
    )
    splits = {trial: data.splits(trial) for trial in trials}
    planned = spec.plan([data])
    runs = [each.run(data, splits[each.trial_seed]) for each in planned]
    records = train(runs, checkpoint_every=steps, progress=progress)
    trained: Trained = {name: {} for name in ALGORITHMS}
    for each, one, record in zip(planned, runs, records, strict=True):
        trained[each.algorithm][each.trial_seed] = Predictor(one, record)
    return trained


def survivors(trained: Trained) -> tuple[Trained, list[str]]:
    """The trials in which no run diverged, so that comparisons stay paired, and what is missing."""
    lost = {
        trial: ALGORITHMS[name]
        for name, each in trained.items()
        for trial, one in each.items()
        if one.record.diverged_at is not None
    }
    kept = {name: {t: one for t, one in e.items() if t not in lost} for name, e in trained.items()}
    if len(kept["wri"]) < 2:
        raise InputError(
            f"runs diverged in {len(lost)} of {len(trained['wri'])} trials, and two are needed; "
            "take another seed or preset"
        )
    return kept, [f"Trial {trial} is left out: {name} diverged." for trial, name in lost.items()]


class Seen(NamedTuple):
    """Rows of the training environments in one trial, `[n_e, D]` each."""

    train: list[np.ndarray]
    held_back: list[np.ndarray]


def seen(data: Data, trial: int) -> Seen:
    splits, x = data.splits(trial), data.bank.features
    return Seen(*([x[splits[f"env{e}_{kind}"]] for e in TRAINING] for kind in ("in", "out")))


def as_it_is(x: np.ndarray) -> np.ndarray:
    return x


def ladder(what: str, full: bool) -> tuple[int, ...]:
    """Numbers of components to choose from; a quick look leaves out the largest."""
    return COMPONENTS[what] if full else COMPONENTS[what][:-1]


def fit_densities(environments: Sequence[np.ndarray], view: OfRows, components: int) -> Densities:
    """Mixtures of what a view makes of the rows of each environment."""
    rows = [view(own[:MOST_ROWS]).astype(np.float32) for own in environments]  # EM is faster
    distinct = min(len(np.unique(own, axis=0)) for own in rows)  # one where Φ is dead
    form = Mixture(min(components, distinct), tolerance=TOLERANCE)
    return Densities.fit(rows, form, common_scaling(rows))


def mean_likelihood(
    densities: Densities, view: OfRows, environments: Sequence[np.ndarray]
) -> float:
    """Mean log density of the environments' rows under their own mixtures."""
    own = [densities.logs(view(rows))[:, e].mean() for e, rows in enumerate(environments)]
    return float(np.mean(own))


def fit_trials(
    trials: Sequence[Seen], views: Sequence[OfRows], components: Sequence[int], progress: Progress
) -> list[Densities]:
    """One for each trial; the first trial's held-back rows choose the number of components."""
    total = len(components) + len(trials) - 1
    tried = []
    for n, number in enumerate(components, 1):
        tried.append(fit_densities(trials[0].train, views[0], number))
        progress(n, total)
    held_back = trials[0].held_back
    found = [max(tried, key=lambda each: mean_likelihood(each, views[0], held_back))]
    for n in range(1, len(trials)):
        found.append(fit_densities(trials[n].train, views[n], found[0].form.components))
        progress(len(components) + n, total)
    return found


def density_lines(
    found: Sequence[Densities], views: Sequence[OfRows], by: Combination, shown: Shown
) -> np.ndarray:  # [trial, column]
    """Rates and area of each trial's densities, seen through its view."""

    def score(densities: Densities, view: OfRows, x: np.ndarray) -> np.ndarray:
        return combine(densities.logs(view(x)), by)

    pairs = zip(found, views, strict=True)
    return over_trials([partial(score, *pair) for pair in pairs], shown)


def on_phi(
    trials: Sequence[Seen],
    trained: Trained,
    components: Sequence[int],
    by: Combination,
    shown: Shown,
    progress: Progress,
) -> tuple[Lines, str]:
    """By densities of every algorithm's own representation; and their numbers of components."""
    lines, numbers = {}, []
    for n, (name, each) in enumerate(trained.items()):
        views = [one.represent for one in each.values()]
        found = fit_trials(trials, views, components, part(progress, n, len(trained)))
        lines[ALGORITHMS[name]] = density_lines(found, views, by, shown)
        numbers.append(f"{found[0].form.components} ({ALGORITHMS[name]})")
    return lines, ", ".join(numbers)


def over_trials(scores: Sequence[OfRows], shown: Shown) -> np.ndarray:  # [trial, column]
    """Rates in % and the area."""
    return np.array([measured(score(shown.common), score(shown.strange)) for score in scores])


def measured(common: np.ndarray, strange: np.ndarray) -> list[float]:
    return [*(100 * detection_rates(common, strange, FALSE_RATES)), auroc(common, strange)]


def table_rows(table: str, lines: Lines) -> list[Row]:
    rows = []
    for line, values in lines.items():
        printed = PRINTED.get(line) if table == AS_PRINTED else None
        for n, column in enumerate(COLUMNS):
            paper, spread = printed[n] if printed else (None, None)
            rows.append(Row.of(line, column, values[:, n], paper, spread, table))
    return rows


def against(table: str, lines: Lines) -> str:
    """Paired intervals of WRI's AUROC minus the others'."""
    ours, parts = lines["WRI"][:, -1], []
    for line, values in lines.items():
        if line != "WRI":
            found = paired_interval([ours], [values[:, -1]])
            parts.append(f"{line} {found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})")
    return (
        f"AUROC, {table}: WRI minus {'; '.join(parts)} (mean and paired 95 % interval over "
        f"{len(ours)} trials)."
    )


def accuracies(trained: Trained, data: Data) -> str:
    """What kind of predictors these are."""
    splits = [*(f"env{e}_out" for e in TRAINING), f"env{TEST}_in"]
    parts = []
    for name, each in trained.items():
        accuracy = [one.record.measures["accuracy"] for one in each.values()]
        last = np.mean([[own[split][-1] for split in splits] for own in accuracy], axis=0)
        parts.append(f"{ALGORITHMS[name]} {' / '.join(f'{100 * mean:.0f}' for mean in last)}")
    return f"Accuracy (%) in {' / '.join(data.names)} at the last step: {', '.join(parts)}."


def never_in_force(trained: Trained, steps: int) -> list[str]:
    late = [
        ALGORITHMS[name]
        for name, each in trained.items()
        if all(one.run.hyper.get("anneal_steps", 0) >= steps for one in each.values())
    ]
    if not late:
        return []
    return [f"The preset anneals {' and '.join(late)} so long that λ never comes into force."]


def _double(values: np.ndarray | float) -> torch.Tensor:  # […] -> [1, …]
    """With the axis of runs, of which there is one."""
    return torch.as_tensor(values, dtype=torch.float64)[None]
