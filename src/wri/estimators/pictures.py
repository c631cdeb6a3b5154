"""Classifier of pictures: a fixed backbone makes features, an estimator learns from them.

    pictures ─► backbone, fixed ─► X ─► WRIClassifier or another: predict, typicality, verdict

The saved folder is the estimator's; it names the backbone with its digest. A model refuses any
other backbone.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from wri.datasets import ImageFolder
from wri.errors import InputError, shorten
from wri.estimators import ESTIMATORS
from wri.estimators.base import Classifier
from wri.estimators.table_model import Assessment
from wri.features.backbones import Backbone, as_backbone
from wri.features.extraction import PathLike, PictureFeatures, extract
from wri.moved import OldName
from wri.progress import progress_bar

if TYPE_CHECKING:
    from wri.diagnosis.new_site import NewSite

UNREADABLE = "unreadable"
"""Verdict on a file that cannot be read as a picture."""
OTHERWISE: Mapping[str, Any] = {
    **dict.fromkeys(("predictions", "nearest"), None),
    **dict.fromkeys(("probabilities", "environments", "scores", "typicality"), np.nan),
    **dict.fromkeys(("verdicts", "reasons"), UNREADABLE),
}
"""Parts of an assessment, and their values for such a file."""

Pictures = ImageFolder | Iterable[PathLike]


@dataclass(eq=False, repr=False)
class PictureClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of pictures from several domains, with a verdict on each picture.

    Parameters
    ----------
    estimator : Classifier or None, default=None
        Unfitted classifier of wri. None: `WRIClassifier()`.
    backbone : str or Backbone, default="efficientnet-lite0"
        "efficientnet-lite0", "resnet18", "resnet50", or a `wri.features.Backbone` with a network of
        your own.
    workers : int or None, default=None
        Processes that read pictures and compute features. None: the number of cores, at most 8.
    verbose : bool, default=False
        Whether to show progress, of the estimator's training too: a bar, or a line every half
        minute if standard error is no terminal.

    Attributes
    ----------
    estimator_ : Classifier
        Fitted classifier of the features.
    backbone_ : dict
        Name and digest of the backbone.
    broken_ : dict
        Files that `fit` could not read and left out, with the reason.
    classes_ : ndarray of shape (n_classes,)
        Labels.

    Notes
    -----
    `predict` and the other methods return one row per picture, in the given order. A file that
    cannot be read as a picture is named in a warning; its row is None, NaN or the verdict
    "unreadable".

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> from torch import nn
    >>> from wri import ERMClassifier, PictureClassifier
    >>> from wri.datasets import ImageFolder
    >>> from wri.features import Backbone, Preprocessing
    >>> small = Backbone("pixels", nn.Flatten(), Preprocessing(side=2, crop=1.0))
    >>> with TemporaryDirectory() as folder:
    ...     for number in range(30):
    ...         colour = ("red", "blue")[number % 2]
    ...         home = Path(folder, ("day", "night", "dusk")[number % 3], colour)
    ...         home.mkdir(parents=True, exist_ok=True)
    ...         Image.new("RGB", (4, 4), colour).save(home / f"{number}.png")
    ...     pictures = ImageFolder(folder)
    ...     estimator = ERMClassifier(steps=30, site_spread=False)
    ...     model = PictureClassifier(estimator, backbone=small, workers=1).fit(pictures)
    ...     accuracy = model.score(pictures)
    >>> accuracy
    1.0
    """

    estimator: Classifier | None = None
    _: KW_ONLY
    backbone: Backbone | str = "efficientnet-lite0"
    workers: int | None = None
    verbose: bool = False

    def fit(
        self, pictures: Pictures, y: Any = None, groups: Iterable[Any] | None = None
    ) -> "PictureClassifier":
        """Compute features and train the estimator on them.

        Parameters
        ----------
        pictures : ImageFolder or iterable of path-like
            A folder whose subfolders are the environments and the labels, or paths.
        y : array-like of shape (n_pictures,), default=None
            Label of each picture; needed with paths.
        groups : iterable of shape (n_pictures,) or None, default=None
            Environment of each picture; needed with paths.

        Returns
        -------
        self : PictureClassifier
            The fitted classifier.
        """
        estimator = ESTIMATORS["WRIClassifier"]() if self.estimator is None else self.estimator
        if not isinstance(estimator, Classifier):
            raise InputError(
                f"estimator must be one of wri's classifiers, not {type(estimator).__name__}"
            )
        pictures = _listed(pictures)
        labels, environments = _labels(pictures, y), None
        if groups is not None:
            environments = _check_length("groups", np.asarray(list(groups)), pictures)
        elif isinstance(pictures, ImageFolder):
            environments = pictures.groups
        found = self._extract(pictures, as_backbone(self.backbone))
        self.backbone_ = {"name": found.backbone, "digest": found.digest}
        self.broken_ = dict(found.broken)
        chosen = None if environments is None else environments[found.kept]
        unfitted = clone(estimator).set_params(verbose=estimator.verbose or self.verbose)
        self.estimator_ = unfitted.fit(found.x, labels[found.kept], groups=chosen)
        self.estimator_.backbone_ = self.backbone_
        self.classes_ = self.estimator_.classes_
        return self

    def predict(self, pictures: Pictures) -> np.ndarray:
        """Predict the most probable class of each picture.

        Parameters
        ----------
        pictures : ImageFolder or iterable of path-like
            Pictures.

        Returns
        -------
        classes : ndarray of shape (n_pictures,)
            Labels; None for a file that is not a picture.
        """
        return self.assess(pictures).predictions

    def predict_proba(self, pictures: Pictures) -> np.ndarray:
        """Predict the probability of each class.

        Parameters
        ----------
        pictures : ImageFolder or iterable of path-like
            Pictures.

        Returns
        -------
        probabilities : ndarray of shape (n_pictures, n_classes)
            Columns in the order of `classes_`; NaN for a file that is not a picture.
        """
        return np.asarray(self.assess(pictures).probabilities)

    def score_samples(self, pictures: Pictures) -> np.ndarray:
        """Return the log density of each picture in the equal mixture of the training domains.

        Parameters
        ----------
        pictures : ImageFolder or iterable of path-like
            Pictures.

        Returns
        -------
        scores : ndarray of shape (n_pictures,)
            Log densities; higher is more common.
        """
        return self.assess(pictures).scores

    def typicality(self, pictures: Pictures) -> np.ndarray:
        """Return the percentage of held-out training pictures that score at most as high.

        Parameters
        ----------
        pictures : ImageFolder or iterable of path-like
            Pictures.

        Returns
        -------
        typicality : ndarray of shape (n_pictures,)
            Percentages; higher is more common.
        """
        return self.assess(pictures).typicality

    rarity = OldName("typicality")

    def verdict(self, pictures: Pictures) -> np.ndarray:
        """Tell for each picture whether training held pictures like it.

        Parameters
        ----------
        pictures : ImageFolder or iterable of path-like
            Pictures.

        Returns
        -------
        verdicts : ndarray of shape (n_pictures,)
            "supported", "rare", "outside", or "unreadable" for a file that is not a picture.
        """
        return self.assess(pictures).verdicts

    def reason(self, pictures: Pictures) -> np.ndarray:
        """Tell for each picture why its verdict is not "supported".

        Parameters
        ----------
        pictures : ImageFolder or iterable of path-like
            Pictures.

        Returns
        -------
        reasons : ndarray of shape (n_pictures,)
            "low confidence", "far from training", or "unreadable"; empty for supported pictures.
        """
        return self.assess(pictures).reasons

    def nearest_environment(self, pictures: Pictures) -> np.ndarray:
        """Return the training domain in which each picture is most common.

        Parameters
        ----------
        pictures : ImageFolder or iterable of path-like
            Pictures.

        Returns
        -------
        domains : ndarray of shape (n_pictures,)
            Labels of training domains; None for a file that is not a picture.
        """
        return self.assess(pictures).nearest

    def assess(self, pictures: Pictures) -> Assessment:
        """Return predictions with probabilities, typicality, verdicts and nearest domains.

        Parameters
        ----------
        pictures : ImageFolder or iterable of path-like
            Pictures.

        Returns
        -------
        assessment : Assessment
            Arrays with one entry per picture.
        """
        found = self._checked(pictures)
        judged = self.estimator_.assess(found.x)
        filled: dict[str, Any] = {
            name: _fill(found, getattr(judged, name), otherwise)
            for name, otherwise in OTHERWISE.items()
        }
        return Assessment(**filled)

    def score(self, pictures: Pictures, y: Any = None) -> float:
        """Return the share of readable pictures whose class is predicted correctly.

        Parameters
        ----------
        pictures : ImageFolder or iterable of path-like
            Pictures.
        y : array-like of shape (n_pictures,), default=None
            Label of each picture; needed with paths.

        Returns
        -------
        accuracy : float
            Share from 0 to 1.
        """
        pictures = _listed(pictures)
        labels, found = _labels(pictures, y), self._checked(pictures)
        return float(np.mean(self.estimator_.predict(found.x) == labels[found.kept]))

    def score_new_site(self, pictures: Pictures, *, level: float = 0.95) -> "NewSite":
        """Estimate the loss and describe pictures without known labels.

        Parameters
        ----------
        pictures : ImageFolder or iterable of path-like
            Pictures of the new domain.
        level : float, default=0.95
            Level of the interval for the mean loss.

        Returns
        -------
        site : NewSite
            Expected mean loss and description of the pictures.
        """
        return self.estimator_.score_new_site(self._checked(pictures).x, level=level)

    def save(self, folder: PathLike) -> None:
        """Save the fitted model to a folder, with the name and the digest of its backbone.

        Parameters
        ----------
        folder : path-like
            A new or empty folder, or the folder of a saved model, which is replaced.
        """
        check_is_fitted(self, "estimator_")
        self.estimator_.save(folder)

    @classmethod
    def load(cls, folder: PathLike, backbone: Backbone | None = None) -> Self:
        """Load a saved model.

        Parameters
        ----------
        folder : path-like
            Folder that `save` wrote. A damaged or hostile folder is an error, and nothing in it is
            run.
        backbone : Backbone or None, default=None
            The backbone, if it is one of your own; it must have the saved digest.

        Returns
        -------
        model : PictureClassifier
            The fitted classifier.

        Raises
        ------
        InputError
            If the folder holds no saved model of pictures, or the backbone differs.
        """
        estimator: Any = import_module("wri.saving").load(folder, Classifier)
        if not hasattr(estimator, "backbone_"):
            name = type(estimator).__name__
            raise InputError(
                f"{shorten(os.fspath(folder))} holds a model of tables, not of pictures; use "
                f"{name}.load"
            )
        return cls._of_estimator(estimator, backbone)

    @classmethod
    def _of_estimator(cls, estimator: Any, backbone: Backbone | None) -> Self:
        """Make the fitted classifier of a loaded estimator, whose backbone must be this one."""
        saved = estimator.backbone_
        model = cls(clone(estimator), backbone=backbone or saved["name"])
        model.estimator_, model.backbone_, model.broken_ = estimator, saved, {}
        model.classes_ = estimator.classes_
        model._check_backbone(model._found_backbone().digest)
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def _found_backbone(self) -> Backbone:
        try:
            return as_backbone(self.backbone)
        except InputError as error:
            if self.__sklearn_is_fitted__() and "backbone must be one of" in str(error):
                raise InputError(
                    f"this model was trained with the backbone {self.backbone_['name']!r}, which "
                    "is not part of wri; give it as backbone="
                ) from error
            raise

    def _check_backbone(self, digest: str) -> None:
        if digest != self.backbone_["digest"]:
            raise InputError(
                f"this model was trained with the backbone {self.backbone_['name']!r} of digest "
                f"{self.backbone_['digest'][:12]}…; the given one has {digest[:12]}…, so weights "
                "or preprocessing differ: give the one from training, or fit again"
            )

    def _extract(self, pictures: Pictures, backbone: Backbone) -> PictureFeatures:
        with progress_bar("Features", self.verbose) as progress:
            return extract(pictures, backbone, self.workers, progress=progress)

    def _checked(self, pictures: Pictures) -> PictureFeatures:
        """Compute features with the backbone of the training, after checking its digest."""
        check_is_fitted(self, "estimator_")
        backbone = self._found_backbone()
        self._check_backbone(backbone.digest)
        return self._extract(_listed(pictures), backbone)


def _fill(found: PictureFeatures, values: np.ndarray, otherwise: Any) -> np.ndarray:
    """Put the values of readable pictures in their places, and `otherwise` in the others."""
    kind = np.result_type(values, np.asarray(otherwise))
    count = len(found.kept) + len(found.broken)
    every = np.full((count, *values.shape[1:]), otherwise, kind)
    every[found.kept] = values
    return every


def _listed(pictures: Pictures) -> ImageFolder | list[PathLike]:
    return pictures if isinstance(pictures, ImageFolder) else list(pictures)


def _labels(pictures: ImageFolder | list[PathLike], y: Any) -> np.ndarray:
    if y is not None:
        return _check_length("y", np.asarray(y), pictures)
    if not isinstance(pictures, ImageFolder):
        raise InputError("y is missing: paths have no labels; give y=, or an ImageFolder")
    return pictures.y


def _check_length(
    name: str, given: np.ndarray, pictures: ImageFolder | list[PathLike]
) -> np.ndarray:
    if given.shape != (len(pictures),):
        raise InputError(
            f"{name} has the shape {given.shape}, but there are {len(pictures)} pictures; "
            "give one for each"
        )
    return given
