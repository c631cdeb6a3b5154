"""Pictures instead of tables: a backbone makes features of them, an estimator learns from these.

    pictures ─► backbone, fixed ─► X ─► WRIClassifier or another: predict, rarity, verdict

What is saved is the estimator's folder, which names the backbone with its digest; another backbone
is refused.
"""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from wri.datasets import ImageFolder
from wri.errors import InputError, shorten
from wri.estimators.bar import progress_bar
from wri.estimators.classifiers import Classifier
from wri.estimators.derived import ESTIMATORS
from wri.estimators.saving import load, save
from wri.estimators.verdicts import Assessment
from wri.features.backbones import Backbone, as_backbone
from wri.features.extraction import PathLike, PictureFeatures, extract

if TYPE_CHECKING:
    from wri.diagnosis.new_site import NewSite

UNREADABLE = "unreadable"
"""The verdict on a file that is no picture."""

Pictures = ImageFolder | Iterable[PathLike]


class PictureClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of pictures from several domains, with a verdict on every picture.

    Parameters
    ----------
    estimator
        One of wri's classifiers, unfitted; `WRIClassifier()` when not given.
    backbone
        "efficientnet-lite0", "resnet18", "resnet50", or a `wri.features.Backbone` around a network
        of your own.
    workers
        Processes that read pictures and compute features; as many as there are cores, at most 8,
        when not given.
    verbose
        Whether to show a progress bar.

    Attributes
    ----------
    estimator_
        The fitted classifier of features.
    backbone_
        Name and digest of the backbone.
    broken_
        Files that `fit` could not read and left out, and why.
    classes_
        Labels.

    Notes
    -----
    `predict` and its kin give a row for every picture, in the order given. A file that is no
    picture is named in a warning; its row is None, NaN or the verdict "unreadable".

    Examples
    --------
    >>> from wri import PictureClassifier
    >>> from wri.datasets import ImageFolder
    >>> train, new = ImageFolder("PACS").hold_out("sketch")  # doctest: +SKIP
    >>> model = PictureClassifier().fit(train)  # doctest: +SKIP
    >>> model.score(new), model.verdict(new)  # doctest: +SKIP
    """

    def __init__(
        self,
        estimator: Classifier | None = None,
        *,
        backbone: Backbone | str = "efficientnet-lite0",
        workers: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.backbone = backbone
        self.workers = workers
        self.verbose = verbose

    def fit(
        self, pictures: Pictures, y: Any = None, groups: Iterable[Any] | None = None
    ) -> "PictureClassifier":
        """Make features and learn from them.

        Parameters
        ----------
        pictures
            A folder, whose folders are the labels and the environments, or paths.
        y, groups
            Label and environment of every picture, where paths are given.
        """
        estimator = ESTIMATORS["WRIClassifier"]() if self.estimator is None else self.estimator
        if not isinstance(estimator, Classifier):
            raise InputError(
                f"estimator must be one of wri's classifiers, not {type(estimator).__name__}"
            )
        if not isinstance(pictures, ImageFolder):
            pictures = list(pictures)
        labels, environments = _labels(pictures, y), _environments(pictures, groups)
        found = self._extract(pictures, as_backbone(self.backbone))
        self.backbone_ = {"name": found.backbone, "digest": found.digest}
        self.broken_ = dict(found.broken)
        chosen = None if environments is None else environments[found.kept]
        self.estimator_ = clone(estimator).fit(found.x, labels[found.kept], groups=chosen)
        self.estimator_.backbone_ = self.backbone_
        self.classes_ = self.estimator_.classes_
        return self

    def predict(self, pictures: Pictures) -> np.ndarray:
        """The most probable class of every picture; None for what is no picture."""
        return self._each(pictures, lambda model, x: model.predict(x).astype(object), None)

    def predict_proba(self, pictures: Pictures) -> np.ndarray:
        """Probabilities `[n, n_classes]`, columns as in `classes_`."""
        return self._each(pictures, lambda model, x: model.predict_proba(x))

    def score_samples(self, pictures: Pictures) -> np.ndarray:
        """Log density of every picture in the mixture of the training domains; higher = common."""
        return self._each(pictures, lambda model, x: model.score_samples(x))

    def rarity(self, pictures: Pictures) -> np.ndarray:
        """Percentage of the training domains' held-out pictures that score at most as high."""
        return self._each(pictures, lambda model, x: model.rarity(x))

    def verdict(self, pictures: Pictures) -> np.ndarray:
        """ "supported", "rare", "outside", or "unreadable" for what is no picture."""
        return self._each(pictures, lambda model, x: model.verdict(x), UNREADABLE)

    def nearest_environment(self, pictures: Pictures) -> np.ndarray:
        """The training domain in which every picture is most common."""

        def nearest(model: Any, x: np.ndarray) -> np.ndarray:
            return model.nearest_environment(x).astype(object)

        return self._each(pictures, nearest, None)

    def assess(self, pictures: Pictures) -> Assessment:
        """Prediction, probabilities, rarity, verdict and nearest domain of every picture."""
        pictures = pictures if isinstance(pictures, ImageFolder) else list(pictures)
        found = self._checked(pictures)
        judged = self.estimator_.assess(found.x)

        def fill(values: np.ndarray, otherwise: Any) -> np.ndarray:
            n = len(found.kept) + len(found.broken)
            kind = np.result_type(values, np.asarray(otherwise))
            every = np.full((n, *values.shape[1:]), otherwise, kind)
            every[found.kept] = values
            return every

        return Assessment(
            predictions=fill(judged.predictions.astype(object), None),
            probabilities=fill(judged.probabilities, np.nan),
            scores=fill(judged.scores, np.nan),
            rarity=fill(judged.rarity, np.nan),
            verdicts=fill(judged.verdicts, UNREADABLE),
            nearest=fill(judged.nearest.astype(object), None),
        )

    def score(self, pictures: Pictures, y: Any = None) -> float:
        """Share of the readable pictures whose class is predicted rightly."""
        pictures = pictures if isinstance(pictures, ImageFolder) else list(pictures)
        labels, found = _labels(pictures, y), self._checked(pictures)
        return float(np.mean(self.estimator_.predict(found.x) == labels[found.kept]))

    def score_new_site(self, pictures: Pictures, *, level: float = 0.95) -> "NewSite":
        """What to expect of pictures without labels; see the estimator's method."""
        return self.estimator_.score_new_site(self._checked(pictures).x, level=level)

    def save(self, folder: PathLike) -> None:
        """Write the fitted model to a folder, with the name and the digest of its backbone."""
        check_is_fitted(self, "estimator_")
        save(self.estimator_, folder)

    @classmethod
    def load(cls, folder: PathLike, backbone: Backbone | None = None) -> Self:
        """The model that `save` wrote.

        Parameters
        ----------
        folder
            From anybody: a damaged or hostile one is an error, and nothing in it is run.
        backbone
            The backbone, where it is one of your own; it must have the digest that was saved.
        """
        estimator: Any = load(folder, Classifier)
        saved = getattr(estimator, "backbone_", None)
        if saved is None:
            name = type(estimator).__name__
            raise InputError(
                f"{shorten(os.fspath(folder))} holds a model of tables, not of pictures; use "
                f"{name}.load"
            )
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
                    f"this model's backbone is {self.backbone_['name']!r}, one of your own; give "
                    "it as backbone="
                ) from error
            raise

    def _check_backbone(self, digest: str) -> None:
        if digest != self.backbone_["digest"]:
            raise InputError(
                f"this model learned from the backbone {self.backbone_['name']!r} with digest "
                f"{self.backbone_['digest'][:12]}…, and this one has {digest[:12]}…: other weights "
                "or another preprocessing; give the one it learned from, or fit again"
            )

    def _extract(self, pictures: Pictures, backbone: Backbone) -> PictureFeatures:
        with progress_bar("Features", self.verbose) as progress:
            return extract(pictures, backbone, self.workers, progress=progress)

    def _checked(self, pictures: Pictures) -> PictureFeatures:
        """Features by the backbone that was learned from, and by no other."""
        check_is_fitted(self, "estimator_")
        backbone = self._found_backbone()
        self._check_backbone(backbone.digest)
        return self._extract(pictures, backbone)

    def _each(
        self,
        pictures: Pictures,
        judge: Callable[[Any, np.ndarray], np.ndarray],
        otherwise: Any = np.nan,
    ) -> np.ndarray:
        """What `judge` says of every picture, and something else of files that are none."""
        pictures = pictures if isinstance(pictures, ImageFolder) else list(pictures)
        found = self._checked(pictures)
        judged = judge(self.estimator_, found.x)
        if not found.broken:
            return judged
        every = np.full((len(found.kept) + len(found.broken), *judged.shape[1:]), otherwise)
        every = every.astype(judged.dtype)
        every[found.kept] = judged
        return every


def _labels(pictures: ImageFolder | list[PathLike], y: Any) -> np.ndarray:
    if y is None:
        if not isinstance(pictures, ImageFolder):
            raise InputError("y is missing: paths have no labels; give y=, or an ImageFolder")
        return pictures.y
    return _as_many("y", np.asarray(y), pictures)


def _environments(
    pictures: ImageFolder | list[PathLike], groups: Iterable[Any] | None
) -> np.ndarray | None:
    if groups is None:
        return pictures.groups if isinstance(pictures, ImageFolder) else None
    return _as_many("groups", np.asarray(list(groups)), pictures)


def _as_many(name: str, given: np.ndarray, pictures: ImageFolder | list[PathLike]) -> np.ndarray:
    if given.shape != (len(pictures),):
        raise InputError(
            f"{name} has the shape {given.shape} for {len(pictures)} pictures; give one for each"
        )
    return given
