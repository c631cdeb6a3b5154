"""Mix-in class for the evidence behind predictions: scores, rarity and verdicts.

Densities and thresholds are fitted after the predictor, for every objective, on the predictor's
representation of the rows; see `wri.ood.evidence`. Higher scores are more common.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from wri.estimators.row_split import RowSplit
from wri.estimators.search import Problem
from wri.ood.evidence import Evidence, HeldOutRows, RowEvidence
from wri.ood.expected_loss import ExpectedLoss, LeftOutSites
from wri.ood.ranges import ColumnRanges
from wri.ood.unseen import UnseenCells
from wri.progress import progress_bar
from wri.rows import in_proportion, refuse_infinite
from wri.stacked import View
from wri.training import Bank, ModelSpec

if TYPE_CHECKING:
    from wri.diagnosis.new_site import NewSite


@dataclass(frozen=True, eq=False, kw_only=True)
class Assessment:
    """Prediction and evidence of each row.

    Attributes
    ----------
    predictions : ndarray of shape (n_rows,)
        Predicted classes or numbers.
    probabilities : ndarray of shape (n_rows, n_classes) or None
        Class probabilities; None for a regressor.
    scores : ndarray of shape (n_rows,)
        Log density; higher is more common.
    rarity : ndarray of shape (n_rows,)
        Percentage of held-out rows that score at most as high.
    verdicts : ndarray of shape (n_rows,)
        "supported", "rare" or "outside".
    reasons : ndarray of shape (n_rows,)
        Reasons of the verdict, separated by "; "; empty for supported rows.
    nearest : ndarray of shape (n_rows,)
        Training environment in which the row is most common.
    unseen : tuple of UnseenCells, default=()
        Cells of kinds that training never had, by column.
    """

    predictions: np.ndarray  # [n], classes or numbers
    probabilities: np.ndarray | None  # [n, C], of a classifier
    scores: np.ndarray  # [n], log density, higher = more common
    rarity: np.ndarray  # [n], percentage of held-out rows that score at most as high
    verdicts: np.ndarray  # [n], "supported", "rare" or "outside"
    reasons: np.ndarray  # [n], of the verdicts
    nearest: np.ndarray  # [n], the training environment in which the row is most common
    unseen: tuple[UnseenCells, ...] = ()


class EvidenceMixin(ABC):
    """Mix-in with scores, rarity and verdicts of an estimator with any predictor."""

    evidence_on: View
    evidence_on_: View
    known_: HeldOutRows
    left_out_: LeftOutSites | None
    ranges_: ColumnRanges
    rare: float
    outside: float
    site_spread: bool
    verbose: bool
    spec_: ModelSpec
    environments_: np.ndarray
    n_environments_: int

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log density of each row in the equal mixture of the training environments.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        scores : ndarray of shape (n_rows,)
            Log densities; higher is more common.
        """
        seen = self._seen(X)
        return self.evidence_.score(seen)

    def score_environments(self, X: Any) -> np.ndarray:
        """Return the log density of each row in each training environment.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        scores : ndarray of shape (n_rows, n_environments)
            Log densities; higher is more common.
        """
        seen = self._seen(X)
        return self.evidence_.score_environments(seen)

    def rarity(self, X: Any) -> np.ndarray:
        """Return the percentage of held-out training rows that score at most as high as each row.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        rarity : ndarray of shape (n_rows,)
            Percentages; higher is more common. 3 means that 3 % of the held-out rows were as rare
            or rarer. For a classifier, rows that it is unsure of are rare as well as far ones.
        """
        return self._judge(X).rarity

    def verdict(self, X: Any) -> np.ndarray:
        """Tell for each row whether training held rows like it.

        A classifier's row is rare if it is less sure of the class than of nearly all training rows,
        or if the row is far from them. Rare rows are more often wrong than supported ones at sites
        like those seen. A number is rare if it is far from those of training. A row is outside if
        it is farther than nearly any training row. What "far" means is said by `evidence_on`: by
        default, outputs more extreme than in training. `reason` tells which reason holds.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        verdicts : ndarray of shape (n_rows,)
            "supported", "rare" or "outside".
        """
        return self._judge(X).verdicts

    def reason(self, X: Any) -> np.ndarray:
        """Tell for each row why its verdict is not "supported".

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        reasons : ndarray of shape (n_rows,)
            "low confidence" or "far from training"; empty for supported rows.
        """
        return self._judge(X).reasons

    def nearest_environment(self, X: Any) -> np.ndarray:
        """Return the training environment in which each row is most common.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        environments : ndarray of shape (n_rows,)
            Labels out of `environments_`.
        """
        seen = self._seen(X)
        return self.environments_[self.evidence_.nearest(seen)]

    def assess(self, X: Any) -> Assessment:
        """Return prediction, probabilities, rarity, verdict and nearest environment of each row.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        assessment : Assessment
            The same numbers as from the single methods, computed in one pass.
        """
        prepared = self._prepared(X)
        outputs = self._finite_outputs(prepared)
        judged = self.evidence_.judge(self._represent(prepared, outputs), self._confidence(outputs))
        return Assessment(
            predictions=self._decide(outputs),
            probabilities=self._predictions(outputs) if hasattr(self, "classes_") else None,
            scores=judged.scores,
            rarity=judged.rarity,
            verdicts=judged.verdicts,
            reasons=judged.reasons,
            nearest=self.environments_[judged.environments.argmax(1)],
        )

    def score_new_site(self, X: Any, *, level: float = 0.95) -> "NewSite":
        """Estimate the loss and describe the rows of a site without known outcomes.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Rows of the site, like those in `fit`.
        level : float, default=0.95
            Level of the interval for the site's mean loss.

        Returns
        -------
        site : NewSite
            Expected mean loss with an interval that contains the spread between sites, shares of
            rare and outside rows, nearest training environment, columns beyond their range in
            training, and the mean prediction. `meaning` describes it in words, `plot()` draws it.
            The interval needs at least three training sites and `site_spread=True`.
        """
        from wri.diagnosis.new_site import describe_new_site  # it draws, and so loads Matplotlib

        x = self._prepared(X)
        outputs, beyond = self._outputs(x), self.ranges_.beyond(x)
        z = self._represent(x, outputs)
        del x  # as large as X
        names = getattr(self, "feature_names_in_", [f"column {d}" for d in range(beyond.shape[1])])
        return describe_new_site(
            self.evidence_,
            self.known_,
            self.left_out_,
            self.environments_,
            judged=self.evidence_.judge(z, self._confidence(outputs)),
            predictions=self._predictions(outputs),
            beyond=beyond,
            columns=tuple(map(str, names)),
            evidence_on=self.evidence_on_,
            level=level,
        )

    @abstractmethod
    def _take(self, run: Any, record: Any) -> None:
        """Keep the predictor that a run has trained."""

    @abstractmethod
    def _prepared(self, X: Any) -> np.ndarray:
        """Return the checked table in the form that the predictor takes."""

    @abstractmethod
    def _prepare(self, features: np.ndarray) -> np.ndarray:
        """Convert checked rows to the form that the predictor takes."""

    @abstractmethod
    def _filled(self, X: np.ndarray) -> np.ndarray:
        """Return rows without missing values."""

    @abstractmethod
    def _outputs(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        """Return the outputs of the predictor."""

    def _finite_outputs(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        """Return the outputs; refuse rows whose predictions are not finite."""
        outputs = self._outputs(prepared)
        with np.errstate(over="ignore", invalid="ignore"):
            predictions = self._predictions(outputs)
        refuse_infinite(predictions)
        return outputs

    @abstractmethod
    def _view(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, V]
        """Return the inputs in units of about one, without missing values."""

    @abstractmethod
    def _decide(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        """Return the most probable classes, or numbers in the unit of the target."""

    @abstractmethod
    def _predictions(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n, C]
        """Return class probabilities, or numbers in the unit of the target."""

    @abstractmethod
    def _losses(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        """Return log-losses, or squared errors in the unit of the target."""

    def _fit_evidence(
        self,
        X: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray | None,
        rows: RowSplit,
        without: Self,
    ) -> None:
        """Fit densities, thresholds and column ranges; keep the held-out rows.

        These are seen by an estimator that was trained without them.
        """
        self.evidence_on_ = self.evidence_on
        self.n_held_out_ = sum(len(own) for own in rows.held_out)
        prepared = self._prepare(X)
        outputs = self._outputs(prepared)
        z = self._represent(prepared, outputs)
        weights = np.ones(len(X)) if weights is None else weights
        other_z, other_outputs = z, outputs
        if without is not self:
            without.evidence_on_, others = self.evidence_on_, without._prepare(X)
            other_outputs = without._outputs(others)
            other_z = without._represent(others, other_outputs)
        sure = self._confidence(other_outputs)
        self.evidence_ = Evidence.fit(
            [z[own[in_proportion(weights[own])]] for own in rows.fitted],
            [other_z[own] for own in rows.calibrating],
            self.rare,
            self.outside,
            [weights[own] for own in rows.calibrating],
            None if sure is None else [sure[own] for own in rows.calibrating],
        )
        self.ranges_ = ColumnRanges.of(
            [self._filled(prepared[own]) for own in rows.calibrating],
            [weights[own] for own in rows.calibrating],
        )
        kept = np.concatenate(rows.held_out)
        self.known_ = HeldOutRows.of(
            without._predictions(other_outputs[kept]),
            without._losses(other_outputs[kept], targets[kept]),
            [weights[own] for own in rows.held_out],
        )

    def _leave_sites_out(self, problem: Problem) -> None:
        """Measure the loss at each environment when the specification is trained without it."""
        self.left_out_ = None
        possible = problem.can_leave_one_out and self.n_held_out_ > 0
        # an exact density is given for all environments at once
        density = self.spec_.objective.density
        exact = density is not None and density.learning == "fixed"
        if not (self.site_spread and possible) or exact:
            return
        bank, rows = problem.bank, problem.rows
        weights = np.ones(len(bank.targets)) if bank.weights is None else bank.weights
        found = np.empty((self.n_environments_, 2))
        with progress_bar("Leaving sites out", self.verbose) as progress:
            runs = problem.leave_out(self.spec_, progress)
        for fold, run, record in runs:
            if record.diverged_at is not None:
                return
            without = copy(self)  # the estimator trained without these sites
            without._take(run, record)
            others = [e for e in range(self.n_environments_) if e not in fold]
            known = without._known(bank, [rows.held_out[e] for e in others], weights)
            if not len(known.losses):
                return
            expected = ExpectedLoss.of(known)
            for site in fold:
                every = np.concatenate([rows.fitted[site], rows.held_out[site]])
                new = without._known(bank, [every], weights)
                near = expected.mean(expected.near(new.predictions), expected.losses)
                found[site] = new.shares @ new.losses, new.shares @ near
        self.left_out_ = LeftOutSites(*found.T)

    def _known(self, bank: Bank, rows: Sequence[np.ndarray], weights: np.ndarray) -> HeldOutRows:
        """Return predictions and losses of some rows of each environment."""
        every = np.concatenate(rows)
        outputs = self._outputs(self._prepare(bank.features[every]))
        losses = self._losses(outputs, bank.targets[every])
        return HeldOutRows.of(self._predictions(outputs), losses, [weights[own] for own in rows])

    def _seen(self, X: Any) -> np.ndarray:  # [n, F]
        """Return what the evidence sees of a table."""
        return self._represent(self._prepared(X))

    def _represent(
        self, prepared: np.ndarray, outputs: np.ndarray | None = None
    ) -> np.ndarray:  # [n, D] -> [n, F]
        """Return what the evidence sees of prepared rows, or of their known outputs."""
        if self.evidence_on_ == "outputs":
            return self._free_outputs(self._outputs(prepared) if outputs is None else outputs)
        return self._view(prepared)

    def _judge(self, X: Any) -> RowEvidence:
        """Return the evidence of a table's rows."""
        prepared = self._prepared(X)
        outputs = self._outputs(prepared)
        return self.evidence_.judge(self._represent(prepared, outputs), self._confidence(outputs))

    def _confidence(self, outputs: np.ndarray) -> np.ndarray | None:  # [n, C] -> [n]
        """Return the log-odds of the predicted classes; None for numbers."""
        return None

    def _free_outputs(self, outputs: np.ndarray) -> np.ndarray:
        """Drop the part of the outputs that the prediction does not depend on."""
        return outputs
