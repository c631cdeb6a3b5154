"""Expected loss and description of a new site, from its rows without outcomes.

    L̂ = 1/n Σ_i m(f_i) + mean_e r_e,        r_e = L_e − L̂_e

m(f): mean loss of held-out training rows with predictions like f (`wri.ood.held_out`). L_e is
the mean loss of training site e for a model trained without it, and L̂_e the loss that m of that
model, from the other sites, expects there: each training site is treated as new once. The next site
has the same spread of r_e:

    L̂ ± t_{E−1} · sqrt(s²·(1 + 1/E) + v/n),     s² = Var_e r_e,   v = Var[l] by m at the new rows

The lower end is at least zero. The interval assumes that the new site is drawn like the training
sites, not that the same prediction means the same there. All rows count, at the training sites and
at the new one, also those called outside.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import betabinom, binomtest

from wri.diagnosis.inputs import Diagnosis, listed, short_labels
from wri.errors import InputError
from wri.moved import OldName
from wri.number_text import write_number, write_percent, write_share
from wri.ood.evidence import FAR, UNSURE, RowEvidence
from wri.ood.held_out import USUAL_BEYOND, ExpectedLoss, HeldOutRows, LeftOutSites, UnseenCells
from wri.report import style
from wri.report.intervals import half_width
from wri.rows import refuse_infinite

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEWEST = 30  # held-out rows, and effective ones, that an expected loss needs
FEWEST_NEW = 10  # new rows that it needs
OFTEN = 2.0  # multiple of the usual share of flagged rows; thresholds are estimates too
OFTEN_BEYOND = 0.05  # share of rows beyond a column's range from which it is reported
CHANCE = 0.01
MOST_SITES = 20  # largest number of training environments in a figure
MOST_UNSEEN = 6  # columns with unseen cells that are named
FAR_MEANS = {
    "outputs": "the prediction is more extreme than for nearly all training rows",
    "phi": "the representation is unlike that of nearly all training rows",
    "x": "the columns are unlike those of nearly all training rows",
}


@dataclass(frozen=True, kw_only=True)
class SiteLoss:
    """Expected mean loss at a new site."""

    training: float  # mean loss of held-out rows, training sites counted alike
    new: float
    low: float | None  # of the interval; None where sites are too few, or were not left out
    high: float | None
    level: float


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NewSite(Diagnosis):
    """Result of `score_new_site`: a site without outcomes, as a model sees it.

    Attributes
    ----------
    labels : ndarray of shape (E,)
        Labels of the training environments.
    scores : ndarray of shape (n_rows, E)
        Log density of each row in each environment.
    typicality : ndarray of shape (n_rows,)
        Percentages; higher is more common.
    verdicts : ndarray of shape (n_rows,)
        "supported", "rare" or "outside".
    reasons : ndarray of shape (n_rows,)
        Reasons of the verdicts; empty for supported rows.
    usual : tuple of float
        Shares of training rows that are rare, and outside.
    loss : SiteLoss or None
        Expected mean loss with its interval; None if there are too few rows.
    measure : str
        Name of the loss.
    predictions : ndarray of shape (C,)
        Mean prediction at the new site: class probabilities, or one number.
    evidence_on : str
        What the verdicts see of a row.
    columns : tuple of str
        Names of the D columns.
    beyond : ndarray of shape (D,)
        Share of rows beyond the range of each column in training.
    beyond_supported : float
        Share of the rows beyond a flagged column's range that are supported.
    known : int
        Effective number of training rows that gave the ranges.
    unseen : tuple of UnseenCells, default=()
        Unknown categories, and gaps in columns that had none in training.
    """

    labels: np.ndarray  # [E], the training environments
    scores: np.ndarray  # [n, E], log density of every row in each
    typicality: np.ndarray  # [n], per cent, higher = more common
    verdicts: np.ndarray  # [n]
    reasons: np.ndarray  # [n]
    usual: tuple[float, float]  # shares of training rows that are rare, and outside
    loss: SiteLoss | None  # None where rows are too few
    measure: str  # what the loss is
    predictions: np.ndarray  # [C], mean at the new site: class probabilities, or a number
    evidence_on: str  # what verdicts see
    columns: tuple[str, ...]  # [D]
    beyond: np.ndarray  # [D], share of the rows beyond the column's range in training
    beyond_supported: float  # share of rows beyond a flagged column's range that are supported
    known: int  # rows that gave the ranges
    unseen: tuple[UnseenCells, ...] = ()

    rarity = OldName("typicality")

    @property
    def rare(self) -> float:
        """Share of the rows that are rare, but not outside."""
        return float(np.mean(self.verdicts == "rare"))

    @property
    def outside(self) -> float:
        """Share of the rows that are outside."""
        return float(np.mean(self.verdicts == "outside"))

    @property
    def flagged_often(self) -> bool:
        """Whether rare or outside rows are more than twice as frequent as usual, beyond chance."""
        n, flagged, usual = len(self.verdicts), self.rare + self.outside, sum(self.usual)
        chance = binomtest(round(flagged * n), n, usual, "greater").pvalue
        return bool(flagged > OFTEN * usual and chance < CHANCE)

    @property
    def flagged_columns(self) -> tuple[str, ...]:
        """Columns with many rows beyond their range in training, the most first."""
        found = flag_columns(self.beyond, len(self.verdicts), self.known)
        return tuple(self.columns[d] for d in found)

    @property
    def nearest_shares(self) -> np.ndarray:  # [E]
        """Share of the rows that are most common in each training environment."""
        nearest = self.scores.argmax(1)
        return np.bincount(nearest, minlength=len(self.labels)) / len(nearest)

    @property
    def nearest(self) -> object:
        """Training environment in which most rows are most common."""
        return self.labels[self.nearest_shares.argmax()]

    @property
    def meaning(self) -> str:
        """The result, its assumptions and what to do, in plain words; the interval first."""
        parts = (self._describe_loss, self._describe_rows, self._describe_columns)
        return " ".join(filter(None, (part() for part in (*parts, self._describe_unseen))))

    def _describe_loss(self) -> str:
        if self.outside > 0.5:
            return (
                f"{write_share(self.outside)} of the rows are outside the evidence: the model is "
                "guessing here, and no loss can be promised. Collect outcomes at this site first."
            )
        loss, sites = self.loss, len(self.labels)
        if loss is None:
            return (
                f"No loss can be estimated: this needs {FEWEST_NEW} rows, and {FEWEST} similar "
                "rows that were held out in training (validation_fraction, in environments of at "
                "least 25 rows)."
            )
        found = f"Expected {self.measure} {write_number(loss.new)}"
        training = write_number(loss.training)
        if loss.low is None or loss.high is None:
            reason = "this needs at least three training sites"
            if sites > 2:
                reason = (
                    "sites were not left out in training (site_spread=False, an exact density, "
                    "or training without one diverged)"
                )
            return (
                f"{found}, if a prediction has the same loss here as similar ones at the training "
                f"sites (mean loss there: {training}). There is no interval for a new site: "
                f"{reason}."
            )
        return (
            f"{found}, {write_percent(loss.level)} interval {write_number(loss.low)} to "
            f"{write_number(loss.high)}, for a site drawn like the {sites} training sites "
            f"({training} there). Each of them was left out once. The interval does not cover a "
            "site of another kind. A sample of outcomes can check this."
        )

    def _describe_rows(self) -> str:
        rare, outside, far = *self.usual, FAR_MEANS[self.evidence_on]
        if len(self.predictions) > 1:  # classes
            unsure, distant = (
                sum(reason in each.split("; ") for each in self.reasons) for reason in (UNSURE, FAR)
            )
            far = (
                "the class is less certain than for nearly all training rows "
                f"({_count_rows(unsure)}), or {far} ({_count_rows(distant)})"
            )
        found = (
            f"Of {len(self.verdicts)} rows, {write_share(self.rare)} are rare and "
            f"{write_share(self.outside)} outside the evidence ({write_share(rare)} and "
            f"{write_share(outside)} are usual). Rare means that {far}. Most rows are like "
            f"{self.nearest}."
        )
        if self.flagged_often and self.outside <= 0.5:
            found += (
                " That is more than chance: this site differs from the training sites. Look at "
                "the flagged rows."
            )
        return found

    def _describe_columns(self) -> str:
        names = self.flagged_columns
        if not names:
            return ""
        found = (
            f"Columns differ from training: up to {write_percent(self.beyond.max(), 2)} of the "
            f"rows lie beyond the range of the training sites in {listed(names)} "
            f"({write_percent(USUAL_BEYOND)} is usual)."
        )
        if self.evidence_on != "x" and self.beyond_supported > 0.5:
            found += (
                " Verdicts do not see this shift, because the predictions are ordinary: "
                f"{write_percent(self.beyond_supported, 2)} of these rows are supported. The "
                "interval does not cover it."
            )
        return found

    def _describe_unseen(self) -> str:
        if not self.unseen:
            return ""
        told = "; ".join(cells.counted.sentence for cells in self.unseen[:MOST_UNSEEN])
        more = len(self.unseen) - MOST_UNSEEN
        others = f"; and {more} more columns" if more > 0 else ""
        return (
            f"Some cells never occurred in training: {told}{others}. The model reads an unknown "
            "category as none of the known ones, and a missing number as the median. So these rows "
            "are not supported."
        )

    def plot(self, most: int = MOST_SITES, ax: "Axes | None" = None) -> "Figure":
        """Draw the typicality of the rows and their nearest training environments.

        Parameters
        ----------
        most : int, default=20
            Number of training environments shown, those nearest to most rows first.
        ax : Axes or None, default=None
            Axes to draw the typicality alone on. None makes a figure with both, at most 9 inches
            high.

        Returns
        -------
        figure : Figure
            Figure of the axes.
        """
        shown = np.argsort(-self.nearest_shares, kind="stable")[:most]
        bars = 0.9 + 0.21 * len(shown)
        with style.figure(style.NARROW, min(9, 2.2 + bars)) as drawn:
            top, bottom = (ax, None) if ax else drawn.subplots(2, 1, height_ratios=(2.2, bars))
            edges = np.linspace(0, 100, 21)
            share = 100 * np.histogram(self.typicality, edges)[0] / len(self.typicality)
            top.stairs(share, edges, fill=True, color=style.SKY, label="this site")
            top.axhline(5, color="black", ls="--", lw=1, label="training sites")
            top.set(xlim=(0, 100), xlabel="typicality (%), common to the right", ylabel="rows (%)")
            top.set_ylim(0, 1.3 * max(5, share.max()))  # space for the legend above the bars
            top.set_title(f"{self.rare:.1%} rare, {self.outside:.1%} outside", loc="left")
            top.legend(loc="upper right", ncols=2, borderaxespad=0.1)
            if bottom is not None:
                self._draw_nearest(bottom, shown)
        return style.figure_of(top)

    def _draw_nearest(self, ax: "Axes", shown: np.ndarray) -> None:
        names, shares = short_labels(self.labels), 100 * self.nearest_shares
        ax.barh(np.arange(len(shown)), shares[shown], color=style.GREY)
        style.name_lines(ax, [names[k] for k in shown])
        ax.set(xlabel="rows (%)", xlim=(0, max(10, 1.05 * shares.max())))
        rest = np.setdiff1d(np.arange(len(names)), shown)
        hidden = f"\n{len(rest)} others together {shares[rest].sum():.0f} %" if len(rest) else ""
        ax.set_title(f"most common at{hidden}", loc="left")


def _count_rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def flag_columns(beyond: np.ndarray, n: int, known: int) -> np.ndarray:  # [D] -> indices
    """Return columns with more rows beyond their range than usual and than by chance.

    If `known` rows gave a range that leaves out `left` of their gaps, the share of new rows of the
    same kind beyond it has the distribution Beta(left, known + 1 − left), whatever the column's.
    """
    often = np.argsort(-beyond, kind="stable")[: (beyond > OFTEN_BEYOND).sum()]
    left = max(2.0, USUAL_BEYOND * (known + 1))  # below the smallest row and above the largest
    chance = betabinom(n, left, known + 1 - left).sf(np.round(beyond[often] * n) - 1)
    return often[chance < CHANCE / len(beyond)]


def describe_new_site(
    model: Any,  # a fitted estimator
    judged: RowEvidence,
    predictions: np.ndarray,  # [n, C]
    beyond: np.ndarray,  # [n, D], which values lie beyond their column's range in training
    columns: tuple[str, ...],  # [D]
    level: float,
) -> NewSite:
    """Compare a site's rows with the training; `model.score_new_site(X)` calls this."""
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, not {level}")
    if len(predictions) < 2:
        raise InputError(
            f"{len(predictions)} row is not enough to describe a site; judge it by its verdict"
        )
    refuse_infinite(predictions)
    shares = beyond.mean(0)
    known = model.ranges_.rows
    strange = beyond[:, flag_columns(shares, len(beyond), known)].any(1)
    supported = float((judged.verdicts[strange] == "supported").sum())
    return NewSite(
        labels=model.environments_,
        scores=judged.environments,
        typicality=judged.typicality,
        verdicts=judged.verdicts,
        reasons=judged.reasons,
        usual=model.evidence_.usual,
        loss=expect_loss(model.held_out_, model.left_out_, predictions, level),
        measure="log-loss" if predictions.shape[1] > 1 else "squared error",
        predictions=predictions.mean(0),
        evidence_on=model.evidence_on_,
        columns=columns,
        beyond=shares,
        beyond_supported=supported / max(1, strange.sum()),
        known=known,
    )


def expect_loss(
    known: HeldOutRows, left_out: LeftOutSites | None, predictions: np.ndarray, level: float = 0.95
) -> SiteLoss | None:  # [n, C]
    """Return the expected mean loss of rows with these predictions, with its interval."""
    if len(predictions) < FEWEST_NEW or len(known.losses) < FEWEST:
        return None
    curve = ExpectedLoss.of(known)
    near = curve.near(predictions)
    if 1 / np.square(curve.weights(near)).sum() < FEWEST:  # effective rows
        return None
    expected = curve.mean(near, curve.losses)  # [n]
    new, low, high = float(expected.mean()), None, None
    if left_out is not None:
        within = curve.mean(near, np.square(curve.losses)) - np.square(expected)
        chance = (float(within.clip(0).mean()) + float(expected.var())) / len(expected)
        strayed = left_out.losses - left_out.expected  # [E], r_e
        sites = len(strayed)
        new = max(0.0, new + float(strayed.mean()))
        spread = float(strayed.var(ddof=1)) * (1 + 1 / sites)
        half = half_width((spread + chance) ** 0.5, sites - 1, level)
        low, high = max(0.0, new - half), new + half
    training = float(known.shares @ known.losses)
    return SiteLoss(training=training, new=new, low=low, high=high, level=level)
