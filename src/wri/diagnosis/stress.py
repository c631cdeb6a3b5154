"""Stress test: losses of models if the relation of some columns to the target breaks or reverses.

The relations unchanged, broken and reversed are the futures like, unrelated and reversed of
`wri.futures`. All sites have the same weight.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from wri.diagnosis.inputs import (
    REPEAT_ROWS,
    find_column,
    holds_classes,
    listed,
    move_columns,
    numbers,
    read_target,
    refuse_weights,
)
from wri.diagnosis.losses import model_losses
from wri.errors import InputError, shorten
from wri.futures import reverse_classes, reverse_numbers
from wri.number_text import write_number
from wri.report import style
from wri.report.intervals import standard_error
from wri.rows import Environments, number_environments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNCHANGED, BROKEN, REVERSED = RELATIONS = ("unchanged", "broken", "reversed")
COLOURS = (style.BLACK, style.ORANGE, style.VERMILLION)
FEWEST_FOR_ERRORS = 4  # sites; with fewer a cost or saving is not stated
SAME = 1e-3  # share of the mean loss: models that differ by less at all sites count as equal


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StressTest:
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
        for m, model in enumerate(self.models):
            for r, relation in enumerate(RELATIONS):
                own, there = self.losses[m, r], np.isfinite(self.losses[m, r])
                change, change_error = _mean_error((own - self.losses[m, 0])[there])
                loss, error = _mean_error(own[there])
                worst = np.nanargmax(own)
                lines.append(
                    {
                        "model": model,
                        "relation": relation,
                        "loss": loss,
                        "error": error,
                        "worst": own[worst],
                        "worst_site": self.labels[worst],
                        "change": change,
                        "change_error": change_error,
                    }
                )
        return pd.DataFrame(lines)

    @property
    def meaning(self) -> str:
        """The result in plain words."""
        means = np.nanmean(self.losses, 2)  # [M, 3]
        said = "; ".join(
            f"{name} {write_number(unchanged)} unchanged, {write_number(broken)} broken, "
            f"{write_number(turned)} reversed"
            for name, (unchanged, broken, turned) in zip(self.models, means, strict=True)
        )
        kept = self._n_reversed
        found = (
            f"Loss if the relation of {listed(self.columns)} to the target broke or reversed "
            f"within each of {len(self.labels)} sites (mean of the sites, {self.unit}): {said}."
        )
        if kept < len(self.labels):
            found += f" It was reversed at {kept} of them: the others have one outcome only."
        if len(self.labels) < FEWEST_FOR_ERRORS:
            return found
        return " ".join([found, *(self._against_first(m) for m in range(1, len(self.models)))])

    def __repr__(self) -> str:
        return self.meaning

    @property
    def _n_reversed(self) -> int:
        return int(np.isfinite(self.losses[0, 2]).sum())

    def _against_first(self, m: int) -> str:
        """Describe the cost and the saving of a model against the first, paired by site."""
        if np.nanmax(np.abs(self.losses[m] - self.losses[0])) < SAME * np.nanmean(self.losses[0]):
            return f"{self.models[m]} is the same predictor as {self.models[0]} here."
        parts = []
        for r, relation in enumerate(RELATIONS):
            gap = self.losses[m, r] - self.losses[0, r]
            mean, error = _mean_error(gap[np.isfinite(gap)])
            word = "costs" if mean >= 0 else "saves"
            parts.append(
                f"{word} {write_number(abs(mean), 2)} ± {write_number(error, 1)} {relation}"
            )
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
        if ax is not None:
            self._draw(ax)
            return ax.get_figure(root=True)  # type: ignore[return-value]
        with style.figure(style.NARROW, min(9, 1.1 + 0.75 * len(self.models))) as drawn:
            self._draw(drawn.subplots())
        return drawn

    def _draw(self, ax: "Axes") -> None:
        lines = np.arange(len(self.models))[::-1]
        for r, (relation, colour) in enumerate(zip(RELATIONS, COLOURS, strict=True)):
            for m, line in enumerate(lines):
                own = self.losses[m, r][np.isfinite(self.losses[m, r])]
                at = line + 0.25 * (1 - r)
                name = relation if m == 0 else None
                ax.scatter(own, np.full(len(own), at), s=12, alpha=0.5, color=colour, lw=0)
                ax.plot(own.mean(), at, "|", ms=13, mew=2.5, color=colour, label=name)
        ax.set_yticks(lines, [shorten(name) for name in self.models])
        ax.set(ylim=(-0.5, len(lines) - 0.5), xlabel=f"loss ({self.unit})")
        ax.set_xlim(left=0)
        ax.set_title(shorten(f"relation of {listed(self.columns, 3)} to the target"), loc="left")
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)


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
    sample_weight: Any = None,
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
    sample_weight : None, default=None
        Refused. To give rows weights, repeat them: errors are between sites and do not change.

    Returns
    -------
    result : StressTest
        Result with `table()`, `meaning` and `plot()`.

    Raises
    ------
    InputError
        If a column is unknown, `models` or `columns` is empty, or `sample_weight` is given.

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
    refuse_weights(sample_weight, REPEAT_ROWS)
    named = _name_models(models)
    if draws < 1:
        raise InputError(f"draws must be at least 1, not {draws}")
    target, environments = read_target(y, len(X)), number_environments(groups, "groups", len(X))
    table = X if isinstance(X, pd.DataFrame) else np.asarray(X)
    indices, names = _find_columns(table, columns)
    drawn = _draw_rows(target, environments, holds_classes(target, classes), draws, seed)
    every, unit = _measure(named, table, y, indices, environments, drawn)
    return StressTest(
        models=tuple(named),
        columns=names,
        labels=environments.labels,
        losses=every.mean(0),
        unit="log-loss, nats" if unit == "nats" else f"squared error, {unit}",
    )


def _measure(
    models: Mapping[str, Any],
    table: Any,
    y: Any,
    indices: list[int],
    environments: Environments,
    drawn: Iterable[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, str]:
    """Return mean losses `[draws, M, 3, E]` per site and relation, and their unit."""
    plain = [model_losses(model, table, y) for model in models.values()]
    unchanged = [_site_means(said.losses, environments) for said in plain]
    every = []
    for broken, turned in drawn:
        losses = np.empty((len(models), 3, len(environments.labels)))
        losses[:, 0] = unchanged
        for r, taken in enumerate((broken, turned), 1):
            moved = move_columns(table, indices, taken)
            for m, model in enumerate(models.values()):
                losses[m, r] = _site_means(model_losses(model, moved, y).losses, environments)
        losses[:, 2, _find_unreversed_sites(turned, environments)] = np.nan
        every.append(losses)
    return np.stack(every), plain[0].unit


def _name_models(models: Any) -> dict[str, Any]:
    """Name models: given names, or names of classes, numbered if a class repeats."""
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        # a pipeline is a sequence of steps too, but one model
        single = hasattr(models, "predict") or not isinstance(models, Sequence)
        several = [models] if single else list(models)
        kinds = [type(model).__name__ for model in several]
        named = {
            kind if kinds.count(kind) == 1 else f"{kind} {1 + kinds[:index].count(kind)}": model
            for index, (kind, model) in enumerate(zip(kinds, several, strict=True))
        }
    if not named:
        raise InputError("models is empty; give at least one fitted model")
    return named


def _find_columns(table: Any, columns: Any) -> tuple[list[int], tuple[str, ...]]:
    """Return numbers and names of the columns that move."""
    asked = [columns] if isinstance(columns, str | int | np.integer) else list(columns)
    if not asked:
        raise InputError("columns is empty; name the columns whose relation to y is in doubt")
    if table.ndim != 2:
        raise InputError(f"X must be a table [rows, columns], not of the shape {table.shape}")
    width = table.shape[1]
    is_frame = isinstance(table, pd.DataFrame)
    labels = list(table.columns) if is_frame else [f"column {k}" for k in range(width)]
    indices = []
    for column in asked:
        found = find_column(column, labels)
        if not found:
            have = (
                f"it has {shorten(', '.join(map(str, labels)))}, or numbers from 0 to {width - 1}"
            )
            raise InputError(f"X has no column {shorten(column)!r}; {have}")
        indices += found[:1]
    return indices, tuple(str(labels[k]) for k in indices)


def _draw_rows(
    y: np.ndarray, environments: Environments, classes: bool, draws: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # [n], [n]
    """Draw the row whose columns each row gets, broken and reversed; its own if y is constant."""
    random = np.random.default_rng(seed)
    y, turn = (y, reverse_classes) if classes else (numbers(y), reverse_numbers)
    for _ in range(draws):
        broken, turned = np.arange(len(y)), np.arange(len(y))
        for rows in environments.rows:
            broken[rows] = random.permutation(rows)
            taken = turn(y[rows], random)
            if taken is not None:
                turned[rows] = rows[taken]
        yield broken, turned


def _find_unreversed_sites(turned: np.ndarray, environments: Environments) -> list[int]:
    """Return the sites whose rows kept their own columns."""
    return [e for e, rows in enumerate(environments.rows) if (turned[rows] == rows).all()]


def _site_means(losses: np.ndarray, environments: Environments) -> np.ndarray:  # [n] -> [E]
    counts = np.bincount(environments.number)
    return np.bincount(environments.number, losses) / counts


def _mean_error(values: np.ndarray) -> tuple[float, float]:  # [E]
    """Return the mean and its standard error; NaN for a single site."""
    error = standard_error(values)
    return float(values.mean()), np.nan if error is None else error
