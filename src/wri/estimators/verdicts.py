"""The part of an estimator that says how much evidence there is for a row's prediction.

Densities and thresholds are fitted after the predictor, whatever its objective, on what the
predictor makes of the rows; see `wri.ood.evidence`. One sign: higher is more common.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from wri.estimators.search import Rows
from wri.ood.evidence import Evidence, Known
from wri.rows import Scaling
from wri.stacked import Network, Seen
from wri.training.sampler import in_proportion

if TYPE_CHECKING:
    from wri.diagnosis.new_site import NewSite


class EvidenceMixin(ABC):
    """Scores, rarity and verdicts for an estimator that standardises and has a network."""

    evidence_on: Seen
    evidence_on_: Seen
    known_: Known
    rare: float
    outside: float
    environments_: np.ndarray
    input_scaling_: Scaling
    network_: Network
    parameters_: np.ndarray

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
        """ "supported", "rare" or "outside" for every row: is there evidence for its prediction?"""
        seen = self._seen(X)
        return self.evidence_.verdict(seen)

    def nearest_environment(self, X: Any) -> np.ndarray:
        """Label of the training environment in which every row is most common."""
        seen = self._seen(X)
        return self.environments_[self.evidence_.nearest(seen)]

    def score_new_site(self, X: Any) -> "NewSite":
        """What to expect at a site whose outcomes are not known yet.

        Parameters
        ----------
        X
            Rows of the site, like those in `fit`.

        Returns
        -------
        site
            The nearest training environment, shares of rows that are rare or outside, and the loss
            and the mean prediction to expect; `meaning` says it in words, `plot()` in a picture.
        """
        from wri.diagnosis.new_site import describe_new_site  # it draws, and so loads Matplotlib

        standardised = self._standardised(X)
        outputs = self._outputs(standardised)
        z, predictions = self._represent(standardised, outputs), self._predictions(outputs)
        return describe_new_site(self.evidence_, self.known_, self.environments_, z, predictions)

    @abstractmethod
    def _standardised(self, X: Any) -> np.ndarray:
        """A table as the network takes it."""

    @abstractmethod
    def _outputs(self, standardised: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        """What the network gives."""

    @abstractmethod
    def _predictions(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n, C]
        """Class probabilities, or numbers in the target's unit."""

    @abstractmethod
    def _losses(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        """Log-losses, or squared errors in the target's unit."""

    def _fit_evidence(
        self, X: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, rows: Rows
    ) -> None:
        self.evidence_on_ = self.evidence_on
        self.n_held_out_ = sum(len(own) for own in rows.held_out)
        standardised = self.input_scaling_.apply(X)
        outputs = self._outputs(standardised)
        z = self._represent(standardised, outputs)
        weights = np.ones(len(X)) if weights is None else weights
        self.evidence_ = Evidence.fit(
            [z[own[in_proportion(weights[own])]] for own in rows.fitted],
            [z[own] for own in rows.calibrating],
            self.rare,
            self.outside,
            [weights[own] for own in rows.calibrating],
        )
        kept = np.concatenate(rows.held_out)
        self.known_ = Known.of(
            self._predictions(outputs[kept]),
            self._losses(outputs[kept], targets[kept]),
            [weights[own] for own in rows.held_out],
        )

    def _seen(self, X: Any) -> np.ndarray:  # [n, F]
        """What the evidence sees of a table."""
        return self._represent(self._standardised(X))

    def _represent(
        self, standardised: np.ndarray, outputs: np.ndarray | None = None
    ) -> np.ndarray:  # [n, D] -> [n, F]
        """The same of standardised rows, and of their outputs where these are known already."""
        if self.evidence_on_ == "outputs":
            return self._free_outputs(self._outputs(standardised) if outputs is None else outputs)
        flat, rows = torch.as_tensor(self.parameters_)[None], torch.as_tensor(standardised)[None]
        return self.network_.views(flat, rows).seen(self.evidence_on_)[0].numpy()

    def _free_outputs(self, outputs: np.ndarray) -> np.ndarray:
        """Outputs without what the prediction does not depend on."""
        return outputs
