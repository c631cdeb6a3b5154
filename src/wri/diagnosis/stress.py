"""What models lose where the relation of some columns to the target breaks or turns round.

unchanged  the rows as they are
broken     within each site the columns' rows are permuted: they tell nothing of y any more
reversed   classes: each row gets the columns of a row of another class, drawn within its site;
           numbers: the columns of the row with the opposite rank of y within its site

The columns move together, so what they have to do with each other stays; what they have to do with
the other columns breaks where it did not come from y. All sites count alike.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wri.diagnosis.inputs import (
    REPEAT_ROWS,
    holds_classes,
    listed,
    numbers,
    read_target,
    refuse_weights,
)
from wri.diagnosis.losses import model_losses
from wri.errors import InputError, shorten
from wri.report import style
from wri.rows import Environments, number_environments

UNCHANGED, BROKEN, REVERSED = RELATIONS = ("unchanged", "broken", "reversed")
COLOURS = (style.BLACK, style.ORANGE, style.VERMILLION)
SAME = 1e-3  # of the mean loss: models that differ by less at every site are one predictor


def reverse_classes(y: np.ndarray, random: np.random.Generator) -> np.ndarray | None:  # [n] -> [n]
    """For every row a row of another class; None where there is none."""
    taken = np.empty(len(y), int)
    for own in pd.unique(y):
        here = y == own
        others = np.flatnonzero(~here)
        if not len(others):
            return None
        # every other row about equally often
        times = -(-int(here.sum()) // len(others))
        drawn = np.concatenate([random.permutation(others) for _ in range(times)])
        taken[here] = drawn[: here.sum()]
    return taken


def reverse_numbers(y: np.ndarray, random: np.random.Generator) -> np.ndarray | None:  # [n] -> [n]
    """For every row the one with the opposite rank of y, ties by lot; None where all are alike."""
    if y.min() == y.max():
        return None
    order = np.lexsort([random.random(len(y)), y])
    taken = np.empty(len(y), int)
    taken[order] = order[::-1]
    return taken


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StressTest:
    """Losses of models with the relation of some columns to y unchanged, broken and reversed."""

    models: tuple[str, ...]  # [M]
    columns: tuple[str, ...]
    labels: np.ndarray  # [E], the sites
    losses: np.ndarray  # [M, 3, E], mean over draws; NaN where a site cannot be reversed
    unit: str

    def table(self) -> pd.DataFrame:
        """A line per model and relation.

        Returns
        -------
        DataFrame
            `loss` (mean over sites, all alike) with `error`, its standard error between sites,
            `worst` and `worst_site`, and `change` against the unchanged relation with its
            `change_error`, paired by site.
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
        """What was found, in plain words."""
        means = np.nanmean(self.losses, 2)  # [M, 3]
        said = "; ".join(
            f"{name} {unchanged:.3g} as it is, {broken:.3g} broken, {turned:.3g} reversed"
            for name, (unchanged, broken, turned) in zip(self.models, means, strict=True)
        )
        kept = self._n_reversed
        found = (
            f"Loss if the relation of {listed(self.columns)} to y broke or turned round within "
            f"each of {len(self.labels)} sites (mean of the sites, {self.unit}): {said}."
        )
        if kept < len(self.labels):
            found += f" Reversed at {kept} of them: the others have one outcome only."
        return " ".join([found, *(self._against_first(m) for m in range(1, len(self.models)))])

    def __repr__(self) -> str:
        return self.meaning

    @property
    def _n_reversed(self) -> int:
        return int(np.isfinite(self.losses[0, 2]).sum())

    def _against_first(self, m: int) -> str:
        """What a model costs and saves in place of the first, paired by site."""
        if np.nanmax(np.abs(self.losses[m] - self.losses[0])) < SAME * np.nanmean(self.losses[0]):
            return f"{self.models[m]} is the same predictor as {self.models[0]} here."
        parts = []
        for r, relation in enumerate(RELATIONS):
            gap = self.losses[m, r] - self.losses[0, r]
            mean, error = _mean_error(gap[np.isfinite(gap)])
            word = "costs" if mean >= 0 else "saves"
            parts.append(f"{word} {abs(mean):.2g} ± {error:.1g} {relation}")
        return (
            f"Against {self.models[0]}, {self.models[m]} {', '.join(parts)} "
            "(± a standard error between sites)."
        )

    def plot(self, ax: Axes | None = None) -> Figure:
        """Every site a dot, the mean a bar, models below each other.

        Parameters
        ----------
        ax
            Where to draw; a new figure when not given.
        """
        if ax is not None:
            self._draw(ax)
            return ax.get_figure(root=True)  # type: ignore[return-value]
        with style.figure(6.5, min(9, 0.9 + 0.75 * len(self.models))) as drawn:
            self._draw(drawn.subplots())
        return drawn

    def _draw(self, ax: Axes) -> None:
        places = np.arange(len(self.models))[::-1]
        for r, (relation, colour) in enumerate(zip(RELATIONS, COLOURS, strict=True)):
            for m, place in enumerate(places):
                own = self.losses[m, r][np.isfinite(self.losses[m, r])]
                at = place + 0.25 * (1 - r)
                name = relation if m == 0 else None
                ax.scatter(own, np.full(len(own), at), s=12, alpha=0.5, color=colour, lw=0)
                ax.plot(own.mean(), at, "|", ms=13, mew=2.5, color=colour, label=name)
        ax.set_yticks(places, [shorten(name) for name in self.models])
        ax.set(ylim=(-0.5, len(places) - 0.5), xlabel=f"loss ({self.unit})")
        ax.set_xlim(left=0)
        ax.set_title(shorten(f"relation of {listed(self.columns, 3)} to y"), loc="left")
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
    """Losses of fitted models if the relation of some columns to y broke or turned round.

    Parameters
    ----------
    models
        A fitted scikit-learn classifier or regressor, a list of them, or a mapping from names. The
        first is the one that others are compared with.
    X, y, groups
        Rows that the models have not learned from, as `predict` takes them, and their sites.
    columns
        Names of columns of a DataFrame, or places in an array; several move together.
    draws
        How often rows are drawn anew; losses are means over the draws.
    classes
        Whether y holds classes; None asks y.
    seed, sample_weight
        Of the draws. Weights are refused: repeat rows; errors are between sites and stay.

    Returns
    -------
    StressTest
        `table()` is a DataFrame, `meaning` says what was found, `plot(ax=)` draws it.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from wri.datasets import hospitals, joined
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
    places, names = _find_columns(table, columns)
    drawn = _draw_rows(target, environments, holds_classes(target, classes), draws, seed)
    every, unit = _measure(named, table, y, places, environments, drawn)
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
    places: list[int],
    environments: Environments,
    drawn: Iterable[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, str]:
    """Mean losses `[draws, M, 3, E]` of sites under each relation, and their unit."""
    plain = [model_losses(model, table, y) for model in models.values()]
    unchanged = [_site_means(said.losses, environments) for said in plain]
    every = []
    for broken, turned in drawn:
        losses = np.empty((len(models), 3, len(environments.labels)))
        losses[:, 0] = unchanged
        for r, taken in enumerate((broken, turned), 1):
            moved = _moved(table, places, taken)
            for m, model in enumerate(models.values()):
                losses[m, r] = _site_means(model_losses(model, moved, y).losses, environments)
        losses[:, 2, _stuck(turned, environments)] = np.nan
        every.append(losses)
    return np.stack(every), plain[0].unit


def _name_models(models: Any) -> dict[str, Any]:
    """Models by name: given, or of their class, numbered where that comes twice."""
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        # a pipeline is a sequence of steps too, but one model
        single = hasattr(models, "predict") or not isinstance(models, Sequence)
        several = [models] if single else list(models)
        kinds = [type(model).__name__ for model in several]
        named = {
            kind if kinds.count(kind) == 1 else f"{kind} {1 + kinds[:place].count(kind)}": model
            for place, (kind, model) in enumerate(zip(kinds, several, strict=True))
        }
    if not named:
        raise InputError("models is empty; give at least one fitted model")
    return named


def _find_columns(table: Any, columns: Any) -> tuple[list[int], tuple[str, ...]]:
    """Places and names of the columns that move."""
    asked = [columns] if isinstance(columns, str | int | np.integer) else list(columns)
    if not asked:
        raise InputError("columns is empty; name the columns whose relation to y is in doubt")
    if table.ndim != 2:
        raise InputError(f"X must be a table [rows, columns], not of the shape {table.shape}")
    if isinstance(table, pd.DataFrame):
        unknown = [name for name in asked if name not in table.columns]
        if unknown:
            raise InputError(
                f"X has no column {shorten(unknown[0])!r}; it has "
                f"{shorten(', '.join(map(str, table.columns)))}"
            )
        return [int(table.columns.get_loc(name)) for name in asked], tuple(map(str, asked))
    width = table.shape[1]
    for place in asked:
        if not isinstance(place, int | np.integer) or not 0 <= place < width:
            raise InputError(
                f"columns of an array are places from 0 to {width - 1}, not {place!r:.40}"
            )
    return [int(place) for place in asked], tuple(f"column {place}" for place in asked)


def _draw_rows(
    y: np.ndarray, environments: Environments, classes: bool, draws: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # [n], [n]
    """Whose columns every row gets, broken and reversed; its own where a site has one outcome."""
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


def _stuck(turned: np.ndarray, environments: Environments) -> list[int]:
    """Sites whose rows kept their own columns."""
    return [e for e, rows in enumerate(environments.rows) if (turned[rows] == rows).all()]


def _moved(table: Any, places: list[int], rows: np.ndarray) -> Any:
    """The table with some columns taken from other rows, every column of its own type."""
    if not isinstance(table, pd.DataFrame):
        moved = table.copy()
        moved[:, places] = table[:, places][rows]
        return moved
    moved = table.copy(deep=False)
    for place in places:
        moved.isetitem(place, table.iloc[:, place].take(rows).set_axis(table.index))
    return moved


def _site_means(losses: np.ndarray, environments: Environments) -> np.ndarray:  # [n] -> [E]
    counts = np.bincount(environments.number)
    return np.bincount(environments.number, losses) / counts


def _mean_error(values: np.ndarray) -> tuple[float, float]:  # [E]
    """Mean and its standard error; NaN of a single site."""
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
    return float(values.mean()), float(error)
