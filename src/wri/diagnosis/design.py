"""General position of a user's own rows: do the environments rule out predictors of some columns?

    f(x) = a · E[y | x_other] + w_spuᵀ x_spu,   gap_ij = R_ij(f) − R_ji(f)

The result is the smallest gap over all a and w_spu ≠ 0 (`position`), from rows weighted by overlap,
p_j / (p_i + p_j) of the other columns. These enter through one column, their least-squares
prediction of y. If each had its own weight, k environments would rule out nothing unless
C(k, 2) > d: with 10 columns some odd weights bring all gaps of any 4 environments to zero.

Moments of n rows differ by chance. Chance is measured under the null: y and the spurious columns do
not depend on the environment given the others. Labels are permuted so that the null holds and all
else stays: two rows exchange their labels e and e' with the odds

    p_e'(a) p_e(b) : p_e(a) p_e'(b)       (Berrett, Wang, Barber and Samworth, 2020)

of their other columns. Environments then keep their numbers of rows, their shift and their weights.
Plain permutations would remove the shift and with it the loss of effective rows. The probability to
exceed the largest gap of 20 such permutations by chance is 1/21. Rows are assumed independent, and
beyond 40,000 of them a random sample is used.

The result tells what equal weighted risks would rule out. Training at a finite λ reaches part of
it; `models` shows how much: the increase of the loss when the columns are shuffled within
environments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from wri.diagnosis.inputs import (
    Diagnosis,
    NumericTable,
    find_columns,
    holds_classes,
    listed,
    numbers,
    read_sites,
    read_target,
    short,
    standardised,
)
from wri.diagnosis.losses import loss_unit
from wri.diagnosis.position import (
    EXACT,
    GeneralPosition,
    WeightedMoments,
    empirical_moments,
    general_position,
    smallest_spurious_gap,
)
from wri.diagnosis.stress import stress_test
from wri.diagnosis.weights import environment_logs, row_weights
from wri.errors import InputError
from wri.number_text import write_loss, write_percent
from wri.report import style
from wri.rows import Scaling

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 40_000
"""Largest number of rows; more are sampled."""
SWEEPS = 50
"""Exchanges of each row's label, enough to forget the start."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DesignPosition(Diagnosis):
    """Result of `design_position`: whether environments rule out predictors of some columns.

    Attributes
    ----------
    position : GeneralPosition
        Gaps of these environments; its tolerance is the largest gap by chance.
    spurious : tuple of str
        Columns assumed spurious.
    others : tuple of str
        All other columns.
    chance : ndarray of shape (permutations,)
        Smallest gaps with permuted labels.
    needed : int
        With fewer environments some predictor has equal risks for any rows.
    importance : dict of str to float
        Increase of each model's loss with the columns shuffled.
    unit : str
        Unit of the losses.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import design_position
    >>> random = np.random.default_rng(0)
    >>> site = np.repeat([0, 1, 2, 3], 100)
    >>> cause = random.normal(size=400)
    >>> y = cause + random.normal(size=400)
    >>> marker = np.array([2.0, 1.0, -1.0, -2.0])[site] * y + random.normal(size=400)
    >>> X = np.stack([cause, marker], 1)
    >>> found = design_position(X, y, site, spurious=1, permutations=5)
    >>> found.spurious, found.excludes_spurious
    (('column 1',), True)
    """

    position: GeneralPosition  # its tolerance is the largest gap by chance
    spurious: tuple[str, ...]
    others: tuple[str, ...]
    chance: np.ndarray  # [permutations], the smallest gaps with permuted labels
    needed: int  # with fewer environments some predictor has equal risks whatever the rows
    importance: dict[str, float]  # by model: rise of the loss with the columns shuffled
    unit: str  # of the losses

    @property
    def excludes_spurious(self) -> bool:
        """Whether equal weighted risks mean that the columns are ignored."""
        return self.position.excludes_spurious

    @property
    def meaning(self) -> str:
        """The result and what to do, in plain words."""
        number, names = self.position.environments, listed(self.spurious)
        them = "them" if self.spurious[1:] else "it"
        gap, chance = (
            write_percent(each, 2) for each in (self.position.spurious_gap, self.chance.max())
        )
        size = f"{gap} of the risk of predicting the mean"
        if self.excludes_spurious:
            found = (
                f"These {number} sites are enough to rule out linear predictors that use {names}: "
                f"each such predictor has a gap of weighted risks of at least {size}. Chance "
                f"explains up to {chance} (5 % level). A linear predictor with exactly equal "
                f"weighted risks ignores {them}. A larger λ brings training closer to that."
            )
        elif number < self.needed:
            found = (
                f"These {number} sites are too few to rule out predictors that use {names}: some "
                f"linear predictor has equal weighted risks for any rows. Use at least "
                f"{self.needed} sites, or assume fewer columns to be spurious."
            )
        else:
            found = (
                f"These {number} sites do not rule out predictors that use {names}: some of them "
                f"show a gap of weighted risks of only {size}, and chance explains up to {chance}. "
                f"Add sites at which the target relates to {them} differently, add rows, or assume "
                "fewer columns to be spurious."
            )
        each = [f"{name} {write_loss(rise, self.unit)}" for name, rise in self.importance.items()]
        are = "are" if self.spurious[1:] else "is"
        shuffled = f" If {names} {are} shuffled within sites, the loss rises by: {', '.join(each)}."
        return f"{found}{shuffled if each else ''}"

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw the gap of these environments above the gaps by chance.

        Parameters
        ----------
        ax : Axes or None, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        figure : Figure
            Figure of the axes.
        """
        gap, most = self.position.spurious_gap, self.position.tolerance
        colour = style.VERMILLION if self.excludes_spurious else style.GREY
        with style.figure(6.2, 1.9) as drawn:
            axes = drawn.subplots() if ax is None else ax
            axes.axvline(most, color=style.GREY, linestyle="--", linewidth=0.8)
            axes.plot(self.chance, np.zeros(len(self.chance)), "|", color=style.BLUE, markersize=14)
            axes.plot([gap], [1], "D", color=colour, markersize=7, clip_on=False)
            axes.set_yticks([0, 1], ["by chance (labels permuted)", "these sites"])
            axes.set_ylim(-0.6, 1.6)
            right = max(1.1 * gap, 1.1 * most, 0.01)
            axes.set_xlim(-0.02 * right, right)
            axes.set_xlabel("smallest relative gap of a predictor that uses the columns")
            verdict = "ruled out" if self.excludes_spurious else "not ruled out"
            title = f"{short(listed(self.spurious, 3), 60)}: {verdict}"
            axes.set_title(title, loc="left", parse_math=False)
        return style.figure_of(axes)


def design_position(
    X: Any,
    y: Any,
    groups: Any,
    spurious: Sequence[str | int] | str | int,
    permutations: int = 20,
    seed: int = 0,
    models: Mapping[str, Any] | None = None,
) -> DesignPosition:
    """Test whether environments rule out linear predictors that use some columns.

    Parameters
    ----------
    X : DataFrame or array-like of shape (n_rows, n_features)
        Numbers without missing values.
    y : array-like of shape (n_rows,)
        Target of each row, numbers or two classes.
    groups : array-like of shape (n_rows,)
        Environment of each row, any labels.
    spurious : str, int or sequence of these
        Columns assumed spurious, by name or number, for instance
        `changing_features(...).flagged`.
    permutations : int, default=20
        Number of permutations; fewer than 20 do not give a level of 5 %.
    seed : int, default=0
        Seed of permutations and samples.
    models : mapping of str to model or None, default=None
        Fitted models by name whose increase of loss is measured with the columns shuffled.

    Returns
    -------
    result : DesignPosition
        Result with `meaning` and `plot()`.

    Raises
    ------
    InputError
        If a column is unknown, constant or depends on others.

    References
    ----------
    T. B. Berrett, Y. Wang, R. F. Barber and R. J. Samworth, "The conditional permutation test for
    independence while controlling for confounders", JRSS B 82, 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import design_position
    >>> random = np.random.default_rng(0)
    >>> site = np.repeat([0, 1, 2, 3], 100)
    >>> cause = random.normal(size=400)
    >>> y = cause + random.normal(size=400)
    >>> marker = np.array([2.0, 1.0, -1.0, -2.0])[site] * y + random.normal(size=400)
    >>> X = np.stack([cause, marker], 1)
    >>> design_position(X, y, site, spurious=1, permutations=5).excludes_spurious
    True
    """
    if permutations < 1:
        raise InputError(f"permutations must be at least 1, not {permutations}")
    sites = read_sites(X, groups)
    chosen = find_columns(spurious, sites.names, "spurious")
    importance = _shuffle(models, X, y, sites, chosen, seed) if models else {}
    sites, y = _sample(sites, read_target(y, len(sites.x)), seed)
    target = _centred_target(y)
    others = [k for k in range(len(sites.names)) if k not in chosen]
    z, number = standardised(sites.x), sites.environments.number
    logs = np.zeros((len(z), len(sites.environments.labels)))
    if others:
        logs = environment_logs(z[:, others], sites.environments, seed=seed)
    used = _predict_target(z[:, others], target)  # [n, 1 or 0]
    columns = np.concatenate([used, z[:, chosen]], 1)  # [n, 1 + d_spu]
    last = range(used.shape[1], columns.shape[1])

    def moments(labels: np.ndarray) -> WeightedMoments:
        return empirical_moments(columns, target, labels, row_weights(logs, labels, "overlap"))

    random = np.random.default_rng(seed)
    each = [moments(_exchanged(number, logs, random)) for _ in range(permutations)]
    permuted = WeightedMoments(*(np.stack(parts) for parts in zip(*each, strict=True)))
    chance, _ = smallest_spurious_gap(permuted, last, seed=seed)
    most = max(float(chance.max()), EXACT)
    return DesignPosition(
        position=general_position(moments(number), last, seed=seed, tolerance=most),
        spurious=tuple(sites.names[k] for k in chosen),
        others=tuple(sites.names[k] for k in others),
        chance=chance,
        needed=_needed(columns.shape[1], uniform=not others),
        importance=importance,
        unit=loss_unit(next(iter(models.values()))) if models else "",
    )


def _sample(sites: NumericTable, y: np.ndarray, seed: int) -> tuple[NumericTable, np.ndarray]:
    """Draw a random share of each environment's rows if there are many."""
    if len(y) <= MOST_ROWS:
        return sites, y
    random, share = np.random.default_rng(seed), MOST_ROWS / len(y)
    each = [random.permutation(own)[: int(share * len(own)) + 2] for own in sites.environments.rows]
    rows = np.sort(np.concatenate(each))
    return NumericTable(sites.x[rows], sites.names, sites.environments.take(rows)), y[rows]


def _shuffle(
    models: Mapping[str, Any], X: Any, y: Any, sites: NumericTable, chosen: list[int], seed: int
) -> dict[str, float]:
    """Return the increase of each model's loss with the columns shuffled within environments."""
    names, groups = [sites.names[k] for k in chosen], sites.environments.number
    losses = stress_test(models, X, y, groups, names, draws=1, seed=seed).losses  # [M, 3, E]
    return dict(zip(models, (losses[:, 1] - losses[:, 0]).mean(1).tolist(), strict=True))


def _predict_target(z: np.ndarray, target: np.ndarray) -> np.ndarray:  # [n, 1]
    """Return the least-squares prediction of y, or no column, [n, 0], if nothing is predicted."""
    prediction = z @ np.linalg.lstsq(z, target, rcond=None)[0]
    return prediction[:, None][:, : int(prediction.std() > 1e-9)]


def _needed(unknowns: int, uniform: bool) -> int:
    """Return the smallest k with more equations than unknowns; one density for all gives k − 1."""
    return next(k for k in range(2, unknowns + 3) if (k - 1 if uniform else comb(k, 2)) > unknowns)


def _exchanged(number: np.ndarray, logs: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Permute labels so that they depend only on what `logs` see."""
    labels, half = number.copy(), len(number) // 2
    for _ in range(SWEEPS):
        a, b = random.permutation(len(labels))[: 2 * half].reshape(2, half)
        of_a, of_b = labels[a], labels[b]
        odds = logs[a, of_b] - logs[a, of_a] + logs[b, of_a] - logs[b, of_b]
        swap = np.log(random.random(half)) < -np.logaddexp(0, -odds)
        labels[a], labels[b] = np.where(swap, of_b, of_a), np.where(swap, of_a, of_b)
    return labels


def _centred_target(y: np.ndarray) -> np.ndarray:  # [n]
    if holds_classes(y, None):
        y, classes = pd.factorize(y, sort=True)
        if len(classes) > 2:
            raise InputError(
                f"y holds {len(classes)} classes; ask about one against the rest, for example "
                f"y == {classes[0]!r}"
            )
    return Scaling.of(numbers(y)).apply(numbers(y))
