"""The part of an estimator that says how much evidence there is for a row's prediction.

Densities and thresholds are fitted after the predictor, whatever its objective, on what the
predictor makes of the rows; see `wri.ood.evidence`. One sign: higher is more common.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wri.densities import Exact
from wri.estimators.bar import progress_bar
from wri.estimators.search import Problem, RowSplit
from wri.ood.evidence import Evidence, HeldOutRows
from wri.ood.expected_loss import ExpectedLoss, LeftOutSites
from wri.ood.ranges import ColumnRanges
from wri.stacked import Seen
from wri.training import Bank, ModelSpec
from wri.training.sampler import in_proportion

if TYPE_CHECKING:
    from wri.diagnosis.new_site import NewSite


@dataclass(frozen=True, eq=False, kw_only=True)
class Assessment:
    """Everything that a model says of single rows."""

    predictions: np.ndarray  # [n], classes or numbers
    probabilities: np.ndarray | None  # [n, C], of a classifier
    scores: np.ndarray  # [n], log density, higher = more common
    rarity: np.ndarray  # [n], percentage of held-out rows that score at most as high
    verdicts: np.ndarray  # [n], "supported", "rare" or "outside"
    nearest: np.ndarray  # [n], the training environment in which the row is most common


class EvidenceMixin(ABC):
    """Scores, rarity and verdicts for an estimator, whatever its predictor."""

    evidence_on: Seen
    evidence_on_: Seen
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
        """Log density of every row in the mixture of the training environments, equal shares.

        Parameters
        ----------
        X
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        scores
            `[n_rows]`, higher = more common.
        """
        seen = self._seen(X)
        return self.evidence_.score(seen)

    def score_environments(self, X: Any) -> np.ndarray:
        """Log density of every row in each training environment, `[n_rows, n_environments_]`."""
        seen = self._seen(X)
        return self.evidence_.score_environments(seen)

    def rarity(self, X: Any) -> np.ndarray:
        """Percentage of the training environments' held-out rows that score at most as high.

        Higher = more common: 3 says that three rows in a hundred were as rare or rarer.
        """
        seen = self._seen(X)
        return self.evidence_.rarity(seen)

    def verdict(self, X: Any) -> np.ndarray:
        """ "supported", "rare" or "outside" for every row: were there such rows in training?

        By default the evidence sees the predictor's outputs, and a rare row is one whose prediction
        is more extreme than nearly all in training. For classifiers that is a confident row, which
        at sites like those seen loses *less* than others: rare says that training holds little to
        judge the prediction by, not that it is likely to be wrong. `evidence_on="x"` calls strange
        combinations of columns rare.
        """
        seen = self._seen(X)
        return self.evidence_.verdict(seen)

    def nearest_environment(self, X: Any) -> np.ndarray:
        """Label of the training environment in which every row is most common."""
        seen = self._seen(X)
        return self.environments_[self.evidence_.nearest(seen)]

    def assess(self, X: Any) -> Assessment:
        """Prediction, probabilities, rarity, verdict and nearest environment from one pass.

        Parameters
        ----------
        X
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        assessment
            The same numbers as from the single methods, at a fraction of their cost.
        """
        prepared = self._prepared(X)
        outputs = self._outputs(prepared)
        judged = self.evidence_.judge(self._represent(prepared, outputs))
        return Assessment(
            predictions=self._decide(outputs),
            probabilities=self._predictions(outputs) if hasattr(self, "classes_") else None,
            scores=judged.scores,
            rarity=judged.rarity,
            verdicts=judged.verdicts,
            nearest=self.environments_[judged.environments.argmax(1)],
        )

    def score_new_site(self, X: Any, *, level: float = 0.95) -> "NewSite":
        """What to expect at a site whose outcomes are not known yet.

        Parameters
        ----------
        X
            Rows of the site, like those in `fit`.
        level
            Of the interval for the site's mean loss.

        Returns
        -------
        site
            The mean loss to expect with an interval that contains the spread between sites, shares
            of rows that are rare or outside, the nearest training environment, columns beyond their
            range in training, and the mean prediction; `meaning` says it in words, `plot()` in a
            picture. The interval needs three training sites or more and `site_spread=True`.
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
            z=z,
            predictions=self._predictions(outputs),
            beyond=beyond,
            columns=tuple(map(str, names)),
            evidence_on=self.evidence_on_,
            level=level,
        )

    @abstractmethod
    def _take(self, run: Any, record: Any) -> None:
        """Become the predictor that a run has trained."""

    @abstractmethod
    def _prepared(self, X: Any) -> np.ndarray:
        """A table as the predictor takes it, after its checks."""

    @abstractmethod
    def _prepare(self, features: np.ndarray) -> np.ndarray:
        """Checked rows as the predictor takes them."""

    @abstractmethod
    def _filled(self, X: np.ndarray) -> np.ndarray:
        """Rows without gaps."""

    @abstractmethod
    def _outputs(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        """What the predictor gives."""

    @abstractmethod
    def _view(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, V]
        """The inputs in units of about one, without gaps."""

    @abstractmethod
    def _decide(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        """The most probable classes, or numbers in the target's unit."""

    @abstractmethod
    def _predictions(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n, C]
        """Class probabilities, or numbers in the target's unit."""

    @abstractmethod
    def _losses(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        """Log-losses, or squared errors in the target's unit."""

    def _fit_evidence(
        self, X: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, rows: RowSplit
    ) -> None:
        self.evidence_on_ = self.evidence_on
        self.n_held_out_ = sum(len(own) for own in rows.held_out)
        prepared = self._prepare(X)
        outputs = self._outputs(prepared)
        z = self._represent(prepared, outputs)
        weights = np.ones(len(X)) if weights is None else weights
        self.evidence_ = Evidence.fit(
            [z[own[in_proportion(weights[own])]] for own in rows.fitted],
            [z[own] for own in rows.calibrating],
            self.rare,
            self.outside,
            [weights[own] for own in rows.calibrating],
        )
        self.ranges_ = ColumnRanges.of(
            [self._filled(prepared[own]) for own in rows.calibrating],
            [weights[own] for own in rows.calibrating],
        )
        kept = np.concatenate(rows.held_out)
        self.known_ = HeldOutRows.of(
            self._predictions(outputs[kept]),
            self._losses(outputs[kept], targets[kept]),
            [weights[own] for own in rows.held_out],
        )

    def _leave_sites_out(self, problem: Problem) -> None:
        """Keep what the specification loses at each environment when trained without it."""
        self.left_out_ = None
        possible = problem.can_leave_one_out and self.n_held_out_ > 0
        # an exact density is given for all environments at once
        exact = isinstance(getattr(self.spec_.objective, "density", None), Exact)
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
            without = copy(self)  # the same estimator, as it would be without these sites
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
        """Predictions and losses of some rows of each environment."""
        every = np.concatenate(rows)
        outputs = self._outputs(self._prepare(bank.features[every]))
        losses = self._losses(outputs, bank.targets[every])
        return HeldOutRows.of(self._predictions(outputs), losses, [weights[own] for own in rows])

    def _seen(self, X: Any) -> np.ndarray:  # [n, F]
        """What the evidence sees of a table."""
        return self._represent(self._prepared(X))

    def _represent(
        self, prepared: np.ndarray, outputs: np.ndarray | None = None
    ) -> np.ndarray:  # [n, D] -> [n, F]
        """The same of prepared rows, and of their outputs where these are known already."""
        if self.evidence_on_ == "outputs":
            return self._free_outputs(self._outputs(prepared) if outputs is None else outputs)
        return self._view(prepared)

    def _free_outputs(self, outputs: np.ndarray) -> np.ndarray:
        """Outputs without what the prediction does not depend on."""
        return outputs
