"""What to expect at a new site, from its rows without outcomes.

    R̂_new = Σ w l / Σ w,   w = p_new(z) / p_train(z)

over training rows that were held out, with their losses l and what the evidence sees of them, z.
It is the risk at the new site if rows that look alike to the evidence have like outcomes there,
which is what an invariant predictor promises and nothing but outcomes can prove. Where the new site
has rows that the training sites do not have, no weight helps: these are the rare and outside ones.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binomtest, norm

from wri.diagnosis.weight_quality import effective_sample_size
from wri.errors import InputError
from wri.ood.evidence import Densities, Evidence, Known
from wri.report import style

FEWEST = 30  # effective rows that an expected loss needs
OFTEN = 2.0  # times the usual share of flagged rows; thresholds are estimates, too
LEVEL = 0.01
NEAR = norm.ppf(0.975)


class Change(NamedTuple):
    """A mean at the training sites and at the new one, with a 95 % interval of the difference."""

    training: float
    new: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class NewSite:
    """A site without outcomes, seen by a model."""

    labels: np.ndarray  # [E], the training environments
    scores: np.ndarray  # [n, E], log density of every row in each
    rarity: np.ndarray  # [n], per cent, higher = more common
    verdicts: np.ndarray  # [n]
    usual: tuple[float, float]  # shares of training rows that are rare, and outside
    loss: Change  # log-loss, or squared error
    effective_rows: float  # held-out rows that the expected loss rests on
    predictions: np.ndarray  # [C], mean at the new site: class probabilities, or a number
    training_predictions: np.ndarray  # [C], mean at the training sites

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
        """The training environment in which the rows, taken together, are most likely."""
        return self.labels[self.scores.mean(0).argmax()]

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
        loss, enough = self.loss, self.effective_rows >= FEWEST
        if not enough:
            return (
                f"{found} Too few held-out rows are like these ({self.effective_rows:.0f} "
                "effective ones) to say what loss to expect: collect outcomes at this site."
            )
        expected = (
            f"Expected loss {loss.new:.3g}, {loss.new - loss.training:+.2g} ({loss.low:+.2g} to "
            f"{loss.high:+.2g}) against the training sites, if like rows have like outcomes here"
        )
        if self.flagged_often:
            return (
                f"{found} That is more than chance: do not act on the flagged rows' predictions "
                f"without a look. For the others: {expected[0].lower()}{expected[1:]}."
            )
        return f"{found} {expected}; a sample of outcomes would check it."

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
        raise InputError(f"a site of {len(z)} row says nothing about the site; use verdict")
    shares = known.shares
    weights = _ratio(Densities.fit([z]).mixed(known.z) - evidence.score(known.z))
    tilted = shares * weights / (shares @ weights)
    before, after = float(shares @ known.losses), float(tilted @ known.losses)
    # the difference, linearised in each row's share
    parts = tilted * (known.losses - after) - shares * (known.losses - before)
    half = NEAR * float(np.sqrt(np.square(parts).sum()))
    flagged, outside = evidence.tail.share(np.array([evidence.rare, evidence.outside]))
    return NewSite(
        labels,
        evidence.score_environments(z),
        evidence.rarity(z),
        evidence.verdict(z),
        (float(flagged - outside), float(outside)),
        Change(before, after, after - before - half, after - before + half),
        float(effective_sample_size(tilted)),
        predictions.mean(0),
        shares @ known.predictions,
    )


def _ratio(logs: np.ndarray) -> np.ndarray:
    return np.exp(logs - logs.max())
