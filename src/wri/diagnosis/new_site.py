"""What to expect at a new site, from its rows without outcomes.

    R̂_new = 1/n Σ_i m(f_i),   m(f): mean loss of the k held-out training rows whose predictions are
                               nearest to f, every training environment counted alike

It is the risk at the new site if rows with the same prediction have the same outcomes there, which
is what an invariant predictor promises and nothing but outcomes can prove. Rows outside the
evidence are left out: no training row is like them. With W_j the weight of held-out row j in R̂_new
and s_j its share of the training risk, the variance of the change R̂_new − Σ s_j l_j is

    Σ_j (W_j − s_j)² (l_j − m_j)²  +  Var_i[m(f_i)] / n  +  Σ_j s_j² (m_j − m̄_e(j))²

chance in the outcomes, in who came to the new site, and in who was held out.
"""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.spatial import KDTree
from scipy.stats import binomtest, norm

from wri.errors import InputError
from wri.ood.evidence import Evidence, Known
from wri.report import style

FEWEST = 30  # held-out rows, and effective ones, that an expected loss needs
FEWEST_NEW = 10  # new rows that it needs
NEIGHBOURS = 10  # k at least; the root of the held-out rows where that is more
OFTEN = 2.0  # times the usual share of flagged rows; thresholds are estimates, too
LEVEL = 0.01
NEAR = float(norm.ppf(0.975))


@dataclass(frozen=True, kw_only=True)
class Change:
    """A mean loss at the training sites and at the new one, and a 95 % interval of the change."""

    training: float
    new: float
    low: float
    high: float
    effective_rows: float  # held-out rows that it rests on


@dataclass(frozen=True, eq=False, kw_only=True)
class NewSite:
    """A site without outcomes, seen by a model."""

    labels: np.ndarray  # [E], the training environments
    scores: np.ndarray  # [n, E], log density of every row in each
    rarity: np.ndarray  # [n], per cent, higher = more common
    verdicts: np.ndarray  # [n]
    usual: tuple[float, float]  # shares of training rows that are rare, and outside
    loss: Change | None  # of rows that are not outside; None where rows are too few
    measure: str  # what the loss is
    predictions: np.ndarray  # [C], mean at the new site: class probabilities, or a number
    training_predictions: np.ndarray | None  # [C], mean of held-out rows

    @property
    def rare(self) -> float:
        """Share of the rows that are rare, but not outside."""
        return float(np.mean(self.verdicts == "rare"))

    @property
    def outside(self) -> float:
        return float(np.mean(self.verdicts == "outside"))

    @property
    def flagged_often(self) -> bool:
        """Whether more than twice as many rows as usual are rare or outside, beyond chance."""
        n, flagged, usual = len(self.verdicts), self.rare + self.outside, sum(self.usual)
        chance = binomtest(round(flagged * n), n, usual, "greater").pvalue
        return bool(flagged > OFTEN * usual and chance < LEVEL)

    @property
    def nearest_shares(self) -> np.ndarray:  # [E]
        """Share of the rows that are most common in each training environment."""
        nearest = self.scores.argmax(1)
        return np.bincount(nearest, minlength=len(self.labels)) / len(nearest)

    @property
    def nearest(self) -> object:
        """The training environment in which most rows are most common."""
        return self.labels[self.nearest_shares.argmax()]

    @property
    def meaning(self) -> str:
        """What was found and what to do, in plain words."""
        n, (rare, outside) = len(self.verdicts), self.usual
        found = (
            f"Of {n} rows {self.rare:.1%} are rare and {self.outside:.1%} outside the evidence "
            f"({rare:.1%} and {outside:.1%} are usual); most like {self.nearest!s}."
        )
        if self.outside > 0.5:
            return f"{found} The model is guessing here: collect outcomes at this site first."
        if self.flagged_often:
            found += " That is more than chance: have a look before acting on the flagged rows."
        if self.loss is None:
            return (
                f"{found} What loss to expect cannot be said: it takes {FEWEST_NEW} rows that are "
                f"not outside, and {FEWEST} rows like them that were held out in training "
                "(validation_fraction, in environments of 25 rows or more)."
            )
        loss = self.loss
        return (
            f"{found} Expected {self.measure} {loss.new:.3g}, {loss.new - loss.training:+.2g} "
            f"({loss.low:+.2g} to {loss.high:+.2g}) against the training sites, if the same "
            "prediction means the same here; a sample of outcomes would check it."
        )

    def plot(self) -> Figure:
        """How rare the rows are, and which training environments they are like."""
        with style.figure(8, 2.8) as drawn:
            left, right = drawn.subplots(1, 2, width_ratios=(3, 2))
            self._draw_rarity(left)
            self._draw_nearest(right)
        return drawn

    def _draw_rarity(self, ax: Axes) -> None:
        edges = np.linspace(0, 100, 21)
        share = np.histogram(self.rarity, edges)[0] / len(self.rarity)
        ax.stairs(100 * share, edges, fill=True, color=style.SKY, label="this site")
        ax.axhline(5, color="black", ls="--", lw=1, label="training sites")
        ax.set(xlim=(0, 100), xlabel="rarity (%), common to the right", ylabel="rows (%)")
        ax.set_title(f"{self.rare:.1%} rare, {self.outside:.1%} outside", loc="left")
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)

    def _draw_nearest(self, ax: Axes) -> None:
        places = np.arange(len(self.labels))[::-1]
        ax.barh(places, 100 * self.nearest_shares, color=style.GREY)
        ax.set_yticks(places, [str(label) for label in self.labels])
        ax.set(xlabel="rows (%)", xlim=(0, 100))
        ax.set_title("most common at", loc="left")


def describe_new_site(
    evidence: Evidence,
    known: Known,
    labels: np.ndarray,
    z: np.ndarray,
    predictions: np.ndarray,
) -> NewSite:
    """Compare a site's rows with what a model knows; `model.score_new_site(X)` calls this.

    Parameters
    ----------
    evidence, known
        Densities and thresholds of the training environments, and their held-out rows.
    labels
        Names of the training environments, `[E]`.
    z, predictions
        What the evidence sees of the new rows, `[n, F]`, and what the model predicts, `[n, C]`.
    """
    if len(z) < 2:
        raise InputError(f"{len(z)} row says nothing about a site; use verdict for single rows")
    infinite = np.flatnonzero(~np.isfinite(predictions).all(1))
    if len(infinite):
        raise InputError(
            f"the prediction for row {infinite[0]} is not finite ({len(infinite)} such rows): its "
            "values are too large for the model; correct or drop them, verdict calls them outside"
        )
    judged = evidence.judge(z)
    flagged, outside = evidence.tail.share(np.array([evidence.rare, evidence.outside]))
    held_out = len(known.losses) > 0
    return NewSite(
        labels=labels,
        scores=judged.environments,
        rarity=judged.rarity,
        verdicts=judged.verdicts,
        usual=(float(flagged - outside), float(outside)),
        loss=expected_change(known, predictions[judged.verdicts != "outside"]),
        measure="log-loss" if predictions.shape[1] > 1 else "squared error",
        predictions=predictions.mean(0),
        training_predictions=known.shares @ known.predictions if held_out else None,
    )


def expected_change(known: Known, predictions: np.ndarray) -> Change | None:  # [n, C]
    """The mean loss of rows with these predictions, and how it differs from training's."""
    if len(predictions) < FEWEST_NEW or len(known.losses) < FEWEST:
        return None
    tree = KDTree(_free(known.predictions))
    k = max(NEIGHBOURS, round(len(known.losses) ** 0.5))

    def smooth(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean losses m [n], and the weight of every held-out row in their mean [n_known]."""
        near = tree.query(_free(at), k)[1]  # [n, k]
        share = known.shares[near] / known.shares[near].sum(1, keepdims=True)
        total = np.bincount(near.ravel(), share.ravel(), len(known.losses))
        return (share * known.losses[near]).sum(1), total / len(at)

    expected, weights = smooth(predictions)
    own, _ = smooth(known.predictions)
    before, after = float(known.shares @ known.losses), float(expected.mean())
    outcomes = np.square((weights - known.shares) * (known.losses - own)).sum() * k / (k - 1)
    came = expected.var(ddof=1) / len(expected)
    mass = np.bincount(known.environment, known.shares)
    centres = np.bincount(known.environment, known.shares * own) / np.where(mass > 0, mass, 1)
    held = np.square(known.shares * (own - centres[known.environment])).sum()
    half = NEAR * float(np.sqrt(outcomes + came + held))
    change, effective = after - before, float(1 / np.square(weights).sum())
    if effective < FEWEST:
        return None
    return Change(
        training=before, new=after, low=change - half, high=change + half, effective_rows=effective
    )


def _free(predictions: np.ndarray) -> np.ndarray:  # [n, C] -> [n, C − 1], or [n, 1]
    """Probabilities without the last, which follows from the others; or numbers."""
    return predictions if predictions.shape[1] == 1 else predictions[:, :-1]
