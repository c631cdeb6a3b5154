"""A scikit-learn pipeline that ends in one of our estimators and keeps what these offer.

    X ─► environment column aside ─► preprocessing ─► X' ─► the estimator: fit, predict, verdict, …
             └──────────────────── groups ────────────────────┘

A `ColumnTransformer` would drop the environment column or encode it as a feature. Here it is taken
from the table before the preprocessing, which never sees it.
"""

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn import get_config
from sklearn.pipeline import Pipeline, _name_estimators
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from wri.errors import InputError
from wri.estimators.common import EnvironmentEstimator
from wri.estimators.environments import read_environments, without_column
from wri.estimators.folders import SavedInFolders
from wri.estimators.model_folder import require
from wri.estimators.model_record import check_entries
from wri.estimators.transformer_records import decode_steps, encode_steps

if TYPE_CHECKING:
    from wri.diagnosis.new_site import NewSite
    from wri.estimators.verdicts import Assessment

METADATA = ("groups", "sample_weight")
"""What the last step's `fit` takes besides rows and targets."""


def make_pipeline(*steps: Any, memory: Any = None, verbose: bool = False) -> "EnvironmentPipeline":
    """A pipeline of transformers and, last, one of wri's estimators.

    Parameters
    ----------
    *steps
        Transformers of scikit-learn, or any others, and then the estimator. Steps are named by
        their classes in lower case.
    memory
        Where fitted transformers are kept, as in scikit-learn; nowhere by default.
    verbose
        Whether to print the time that fitting each transformer took.

    Returns
    -------
    pipeline
        It has the estimator's methods (`verdict`, `rarity`, `score_new_site`, `save`, …), all for
        tables as they are before the preprocessing.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.compose import make_column_transformer
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> from wri import WRIClassifier, make_pipeline
    >>> rows = pd.DataFrame({"age": range(40), "ward": ["a", "b"] * 20, "site": [1, 1, 2, 2] * 10})
    >>> encode = make_column_transformer((OneHotEncoder(), ["ward"]), remainder="passthrough")
    >>> model = make_pipeline(encode, WRIClassifier(environment="site", steps=20))
    >>> model.fit(rows, rows["age"] % 7 > 3).verdict(rows[["age", "ward"]])[:1]
    array(['supported'], dtype=object)
    """
    if not steps or not isinstance(steps[-1], EnvironmentEstimator):
        last = type(steps[-1]).__name__ if steps else "nothing"
        raise InputError(
            f"the last step must be one of wri's estimators, not {last}; for others use "
            "sklearn.pipeline.make_pipeline"
        )
    return EnvironmentPipeline(_name_estimators(steps), memory=memory, verbose=verbose)


def _last_has(method: str) -> Any:
    def check(pipeline: "EnvironmentPipeline") -> bool:
        getattr(pipeline.steps[-1][1], method)
        return True

    return check


class EnvironmentPipeline(SavedInFolders, Pipeline):  # type: ignore[misc]
    """A `sklearn.pipeline.Pipeline` whose last step is one of wri's estimators.

    Parameters and attributes as there. `groups` and `sample_weight` of `fit` reach the last step,
    and so does the column that its `environment` names, which no other step sees. Sparse matrices
    are made dense for it. `pipeline[-1]` is the estimator with all its attributes.
    """

    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: Iterable[Any] | None = None,
        sample_weight: Any = None,
        **params: Any,
    ) -> Self:
        """Fit the transformers one after the other, then the estimator.

        Parameters
        ----------
        X
            Table, with the environment column if the last step names one.
        y
            Targets.
        groups, sample_weight
            For the last step; see there. With metadata routing on, `sample_weight` also reaches
            transformers that request it.
        **params
            Parameters of other steps: `step__name=value`, or by routing where that is on.
        """
        name, last = self.steps[-1]
        if not isinstance(last, EnvironmentEstimator):
            raise InputError(f"the last step must be one of wri's estimators, not {name!r}")
        for key in METADATA:  # the long form, as in scikit-learn's pipeline
            if f"{name}__{key}" in params:
                given = params.pop(f"{name}__{key}")
                groups, sample_weight = (
                    (given, sample_weight) if key == "groups" else (groups, given)
                )
        if last.environment is not None:
            found = read_environments(X, len(X), groups, last.environment)
            groups, X = found.labels[found.number], without_column(X, last.environment)
        if len(self.steps) > 1:
            head = Pipeline(self.steps[:-1], memory=self.memory, verbose=self.verbose)
            routed = self._routed_to(head, groups=groups, sample_weight=sample_weight)
            X = _dense(head.fit_transform(X, y, **routed, **params))
            self.steps[:-1] = head.steps  # with memory, other objects than before
        elif params:
            raise InputError(f"fit has no parameter {', '.join(map(repr, params))}")
        last.fit(X, y, groups=groups, sample_weight=sample_weight)
        return self

    def _routed_to(self, head: Pipeline, **given: Any) -> dict[str, Any]:
        """What transformers request of the last step's metadata, where routing is on."""
        if not get_config()["enable_metadata_routing"]:
            return {}
        present = {key: value for key, value in given.items() if value is not None}
        asked = head.get_metadata_routing().consumes("fit_transform", present)
        return {key: present[key] for key in asked}

    def predict(self, X: Any) -> np.ndarray:
        """The estimator's prediction for every row, with or without the environment column."""
        return self._last().predict(self._preprocess(X))

    @available_if(_last_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities `[n_rows, n_classes]`, columns as in `classes_`."""
        return self._last().predict_proba(self._preprocess(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of a classifier, R² of a regressor."""
        return self._last().score(self._preprocess(X), y, sample_weight)

    def assess(self, X: Any) -> "Assessment":
        """Prediction, probabilities, rarity, verdict and nearest environment from one pass."""
        return self._last().assess(self._preprocess(X))

    def score_samples(self, X: Any) -> np.ndarray:
        """Log density of every row in the mixture of the training environments."""
        return self._last().score_samples(self._preprocess(X))

    def score_environments(self, X: Any) -> np.ndarray:
        """Log density of every row in each training environment, `[n_rows, n_environments_]`."""
        return self._last().score_environments(self._preprocess(X))

    def rarity(self, X: Any) -> np.ndarray:
        """Percentage of the training environments' held-out rows that score at most as high."""
        return self._last().rarity(self._preprocess(X))

    def verdict(self, X: Any) -> np.ndarray:
        """ "supported", "rare" or "outside" for every row."""
        return self._last().verdict(self._preprocess(X))

    def nearest_environment(self, X: Any) -> np.ndarray:
        """Label of the training environment in which every row is most common."""
        return self._last().nearest_environment(self._preprocess(X))

    def score_new_site(self, X: Any, **options: Any) -> "NewSite":
        """What to expect at a site whose outcomes are not known yet; see the estimator's method."""
        site = self._last().score_new_site(self._preprocess(X), **options)
        names = self[:-1].get_feature_names_out() if len(self.steps) > 1 else site.columns
        return replace(site, columns=tuple(map(str, names)))

    def _last(self) -> Any:
        last = self.steps[-1][1]
        check_is_fitted(last)
        return last

    def _preprocess(self, X: Any) -> Any:
        """A table as the last step takes it."""
        X = without_column(X, self._last().environment)
        if len(self.steps) > 1:
            X = _dense(Pipeline(self.steps[:-1]).transform(X))
        return X


def _dense(X: Any) -> Any:
    return X.toarray() if issparse(X) else X


def last_step(model: Any) -> Any:
    """The estimator of a pipeline, or the estimator itself."""
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def split_preprocessing(model: SavedInFolders) -> Any:
    """The estimator of a pipeline, its preprocessing as JSON in an attribute that is saved."""
    if not isinstance(model, EnvironmentPipeline):
        return model
    last = copy.copy(model[-1])
    last.preprocessing_ = {
        "name": model.steps[-1][0],
        "steps": encode_steps(model.steps[:-1]),
    }
    return last


def join_preprocessing(record: dict[str, Any] | None, model: EnvironmentEstimator) -> Any:
    """The pipeline of a record and its estimator; the estimator itself where there is no record."""
    if record is None:
        return model
    check_entries(record, {"name": (str,), "steps": (list,)}, "preprocessing")
    try:
        steps = decode_steps(record["steps"]) if record["steps"] else []
        fitted = any(not isinstance(step, str) for _, step in steps)
        n = model.n_features_in_
        width = len(Pipeline(steps).get_feature_names_out()) if fitted else n
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # scikit-learn and pandas raise anything for made-up values
        raise ValueError(f"preprocessing is odd ({error!r:.80})") from error
    require(width == n, f"preprocessing gives {width} columns, and the estimator takes {n}")
    return EnvironmentPipeline([*steps, (record["name"], model)])
