"""Stress test: losses of models if the relation of some columns to the target breaks or reverses.

The relations unchanged, broken and reversed are the futures like, unrelated and reversed of
`wri.futures`. All sites have the same weight.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from wri.diagnosis.inputs import (
    Diagnosis,
    find_columns,
    holds_classes,
    listed,
    move_columns,
    numbers,
    read_target,
)
from wri.diagnosis.losses import loss_unit, model_losses
from wri.errors import InputError, shorten
from wri.futures import REVERSED, source_rows
from wri.number_text import write_number
from wri.report import style
from wri.rows import Environments, number_environments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RELATIONS = ("unchanged", "broken", "reversed")
COLOURS = (style.BLACK, style.ORANGE, style.VERMILLION)
FEWEST_FOR_ERRORS = 4  # sites; with fewer a cost or saving is not stated
SAME = 1e-3  # share of the mean loss: models that differ by less at all sites count as equal


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StressTest(Diagnosis):
    """Result of `stress_test`: losses with a relation unchanged, broken and reversed.

    Attributes
    ----------
    models : tuple of str
        Names of the M models.
    columns : tuple of str
        Columns whose relation to y is changed.
    labels : ndarray of shape (E,)
        Labels of the sites.
    losses : ndarray of shape (M, 3, E)
        Mean losses over draws; NaN if a site cannot be reversed.
    unit : str
        Unit of the losses.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import StressTest
    >>> losses = np.array([[[0.4, 0.5], [0.6, 0.7], [0.9, 1.0]]])
    >>> test = StressTest(
    ...     models=("ERM",),
    ...     columns=("marker",),
    ...     labels=np.array(["a", "b"]),
    ...     losses=losses,
    ...     unit="nats",
    ... )
    >>> test.table()["loss"].round(2).tolist()
    [0.45, 0.65, 0.95]
    """

    models: tuple[str, ...]  # [M]
    columns: tuple[str, ...]
    labels: np.ndarray  # [E], the sites
    losses: np.ndarray  # [M, 3, E], mean over draws; NaN where a site cannot be reversed
    unit: str

    def table(self) -> pd.DataFrame:
        """Return a table with one line per model and relation.

        Returns
        -------
        table : DataFrame
            `loss` (mean over sites) with `error`, its standard error between sites, `worst` and
            `worst_site`, and `change` from the unchanged relation with `change_error`, paired by
            site.
        """
        lines = []
        for (m, model), (r, relation) in product(enumerate(self.models), enumerate(RELATIONS)):
            own = self.losses[m, r]
            loss, error = _mean_error(own)
            change, change_error = _mean_error(own - self.losses[m, 0])
            worst = np.nanargmax(own)
            numbers = (loss, error, own[worst], self.labels[worst], change, change_error)
            lines.append((model, relation, *numbers))
        names = "model relation loss error worst worst_site change change_error"
        return pd.DataFrame(lines, columns=names.split())

    @property
    def meaning(self) -> str:
        """The result in plain words."""
        means = np.nanmean(self.losses, 2)  # [M, 3]
        said = "; ".join(
            f"{name} {write_number(unchanged)} unchanged, {write_number(broken)} broken, "
            f"{write_number(turned)} reversed"
            for name, (unchanged, broken, turned) in zip(self.models, means, strict=True)
        )
        found = (
            f"Loss if the relation of {listed(self.columns)} to the target broke or reversed "
            f"at each of {len(self.labels)} sites (mean over the sites, {self.unit}): {said}."
        )
        kept = int(np.isfinite(self.losses[0, 2]).sum())
        if kept < len(self.labels):
            found += f" It was reversed at {kept} of them: the others have one outcome only."
        if len(self.labels) < FEWEST_FOR_ERRORS:
            return found
        return " ".join([found, *(self._against_first(m) for m in range(1, len(self.models)))])

    def _against_first(self, m: int) -> str:
        """Describe the cost and the saving of a model against the first, paired by site."""
        gaps = self.losses[m] - self.losses[0]  # [3, E]
        if np.nanmax(np.abs(gaps)) < SAME * np.nanmean(self.losses[0]):
            return f"{self.models[m]} is the same predictor as {self.models[0]} here."
        parts = []
        for gap, relation in zip(gaps, RELATIONS, strict=True):
            mean, error = _mean_error(gap)
            word, size = "costs" if mean >= 0 else "saves", write_number(abs(mean), 2)
            parts.append(f"{word} {size} ± {write_number(error, 1)} {relation}")
        return (
            f"Against {self.models[0]}, {self.models[m]} {', '.join(parts)} "
            "(± a standard error between sites)."
        )

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw each site as a dot and the mean as a bar, one model per line.

        Parameters
        ----------
        ax : Axes or None, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        figure : Figure
            Figure of the axes.
        """
        with style.figure(style.NARROW, min(9, 1.1 + 0.75 * len(self.models))) as drawn:
            axes = drawn.subplots() if ax is None else ax
            for r, (relation, colour) in enumerate(zip(RELATIONS, COLOURS, strict=True)):
                heights = np.arange(len(self.models)) + 0.25 * (r - 1)  # [M]
                own = self.losses[:, r]  # [M, E]
                spread = np.repeat(heights, own.shape[1])
                axes.scatter(own.ravel(), spread, s=12, alpha=0.5, color=colour, lw=0)
                means = np.nanmean(own, 1)
                axes.plot(means, heights, "|", ms=13, mew=2.5, color=colour, label=relation)
            style.name_lines(axes, [shorten(name) for name in self.models])
            axes.set_xlabel(f"loss ({self.unit})")
            axes.set_xlim(left=0)
            title = shorten(f"relation of {listed(self.columns, 3)} to the target")
            axes.set_title(title, loc="left")
            axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
        return style.figure_of(axes)


def stress_test(
    models: Any,
    X: Any,
    y: Any,
    groups: Iterable[Any],
    columns: Any,
    *,
    draws: int = 10,
    classes: bool | None = None,
    seed: int = 0,
) -> StressTest:
    """Measure losses of fitted models if the relation of some columns to y breaks or reverses.

    Parameters
    ----------
    models : fitted estimator, list or mapping of these
        Classifiers or regressors. Others are compared with the first.
    X : DataFrame or array-like of shape (n_rows, n_features)
        Rows that the models were not trained on, as their `predict` takes them.
    y : array-like of shape (n_rows,)
        Classes or numbers.
    groups : iterable of shape (n_rows,)
        Site of each row, any hashable labels.
    columns : str, int or sequence of these
        Columns by name or number, for instance `changing_features(...).flagged`; several move
        together.
    draws : int, default=10
        Number of random draws; losses are means over draws.
    classes : bool or None, default=None
        Whether y holds classes. None decides by the values of y.
    seed : int, default=0
        Seed of the draws.

    Returns
    -------
    result : StressTest
        Result with `table()`, `meaning` and `plot()`.

    Raises
    ------
    InputError
        If a column is unknown, or `models` or `columns` is empty.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from wri.datasets import hospitals, joined
    >>> from wri.diagnosis import stress_test
    >>> X, y, site = joined(hospitals(200, seed=0))
    >>> found = stress_test(LogisticRegression().fit(X, y), X, y, site, columns=[1])
    >>> list(found.table()["relation"])
    ['unchanged', 'broken', 'reversed']
    """
    named = _name_models(models)
    if draws < 1:
        raise InputError(f"draws must be at least 1, not {draws}")
    target, environments = read_target(y, len(X)), number_environments(groups, "groups", len(X))
    table: Any = X if isinstance(X, pd.DataFrame) else np.asarray(X)
    if table.ndim != 2:
        raise InputError(f"X must be a table [rows, columns], not of the shape {table.shape}")
    numbered = [f"column {k}" for k in range(table.shape[1])]
    labels = list(getattr(table, "columns", numbered))
    indices = find_columns(columns, labels, "columns")
    by_class = holds_classes(target, classes)
    target = target if by_class else numbers(target)
    losses = np.zeros((len(named), 3, len(environments.labels)))
    for m, model in enumerate(named.values()):
        losses[m, 0] = _site_means(model_losses(model, table, y).losses, environments)
    random = np.random.default_rng(seed)
    for _ in range(draws):
        broken, turned = np.arange(len(target)), np.arange(len(target))  # whose columns a row gets
        for rows in environments.rows:
            broken[rows] = random.permutation(rows)
            taken = source_rows(target[rows], REVERSED, by_class, random)
            turned[rows] = rows if taken is None else rows[taken]
        for r, rows in enumerate((broken, turned), 1):
            moved = move_columns(table, indices, rows)
            for m, model in enumerate(named.values()):
                own = _site_means(model_losses(model, moved, y).losses, environments)
                losses[m, r] += own / draws
    stuck = [e for e, rows in enumerate(environments.rows) if (turned[rows] == rows).all()]
    losses[:, 2, stuck] = np.nan
    unit = loss_unit(next(iter(named.values())))
    return StressTest(
        models=tuple(named),
        columns=tuple(str(labels[k]) for k in indices),
        labels=environments.labels,
        losses=losses,
        unit="log-loss, nats" if unit == "nats" else f"squared error, {unit}",
    )


def _name_models(models: Any) -> dict[str, Any]:
    """Name models: given names, or names of classes, numbered if a class repeats."""
    if not isinstance(models, Mapping):
        # a pipeline is a sequence of steps too, but one model
        single = hasattr(models, "predict") or not isinstance(models, Sequence)
        models = [models] if single else models
        kinds = [type(model).__name__ for model in models]
        names = [
            f"{kind} {k}" if kinds.count(kind) > 1 else kind for k, kind in enumerate(kinds, 1)
        ]
        models = dict(zip(names, models, strict=True))
    if not models:
        raise InputError("models is empty; give at least one fitted model")
    return {str(name): model for name, model in models.items()}


def _site_means(losses: np.ndarray, environments: Environments) -> np.ndarray:  # [n] -> [E]
    return np.bincount(environments.number, losses) / np.bincount(environments.number)


def _mean_error(values: np.ndarray) -> tuple[float, float]:  # [E]
    """Return the mean of the sites without NaN and its standard error; NaN for a single site."""
    found = pd.Series(values)
    return float(found.mean()), float(found.sem())
