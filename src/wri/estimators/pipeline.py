"""scikit-learn pipeline that ends in one of wri's estimators.

    X ─► environment column aside ─► preprocessing ─► X' ─► the estimator: fit, predict, verdict, …
             └──────────────────── groups ────────────────────┘

A `ColumnTransformer` would drop the environment column or encode it as a feature. Here the column
is taken from the table before the preprocessing, which never sees it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn import get_config
from sklearn.pipeline import Pipeline, _name_estimators
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from wri.datasets.columns import ColumnReader
from wri.errors import InputError
from wri.estimators.base import EnvironmentEstimator
from wri.estimators.inputs import read_environments, without_column
from wri.estimators.table_model import TableModel
from wri.ood.evidence import RowEvidence
from wri.ood.held_out import UnseenCells, flag_unseen

if TYPE_CHECKING:
    from wri.diagnosis.new_site import NewSite
    from wri.estimators.table_model import Assessment


def make_pipeline(*steps: Any, memory: Any = None, verbose: bool = False) -> "EnvironmentPipeline":
    """Make a pipeline of transformers that ends in one of wri's estimators.

    Parameters
    ----------
    *steps : transformers, then an estimator
        Transformers of scikit-learn or others, and last the estimator. Steps are named by their
        classes in lower case.
    memory : str, joblib.Memory or None, default=None
        Where fitted transformers are cached, as in scikit-learn. None: nowhere.
    verbose : bool, default=False
        Whether to print the time for fitting each transformer.

    Returns
    -------
    pipeline : EnvironmentPipeline
        Pipeline with the estimator's methods (`verdict`, `typicality`, `score_new_site`, `save`,
        …). All take tables before the preprocessing.

    Raises
    ------
    InputError
        If the last step is not one of wri's estimators.

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
    """Make a check of whether the last step has a method."""

    def check(pipeline: "EnvironmentPipeline") -> bool:
        getattr(pipeline.steps[-1][1], method)
        return True

    return check


class EnvironmentPipeline(TableModel, Pipeline):  # type: ignore[misc]
    """Pipeline of scikit-learn whose last step is one of wri's estimators.

    `groups` and `sample_weight` of `fit` reach the last step, and so does the column that its
    `environment` names, which no other step sees. Sparse matrices are made dense for it.

    Parameters
    ----------
    steps : list of (str, object)
        Named transformers, and last the estimator.
    transform_input : list of str or None, default=None
        Metadata that the transformers before transform too, as in scikit-learn.
    memory : str, joblib.Memory or None, default=None
        Where fitted transformers are cached, as in scikit-learn. None: nowhere.
    verbose : bool, default=False
        Whether to print the time for fitting each transformer.

    Attributes
    ----------
    named_steps : Bunch
        Steps by name. `pipeline[-1]` is the estimator with all its attributes.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from wri import ERMRegressor
    >>> from wri.estimators import EnvironmentPipeline
    >>> X = np.arange(60.0)[:, None]
    >>> steps = [("scale", StandardScaler()), ("erm", ERMRegressor(steps=20, site_spread=False))]
    >>> pipeline = EnvironmentPipeline(steps).fit(X, X[:, 0], groups=np.arange(60) % 3)
    >>> pipeline.predict(X).shape
    (60,)
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
        X : DataFrame or array-like of shape (n_rows, n_columns)
            Table, with the environment column if the last step names one.
        y : array-like of shape (n_rows,), default=None
            Targets.
        groups : iterable of shape (n_rows,) or None, default=None
            Environment of each row, for the last step.
        sample_weight : array-like of shape (n_rows,) or None, default=None
            Weights for the last step. With metadata routing on, they also reach transformers that
            request them.
        **params : Any
            Parameters of other steps: `step__name=value`, or by metadata routing.

        Returns
        -------
        self : EnvironmentPipeline
            The fitted pipeline.
        """
        name, last = self.steps[-1]
        if not isinstance(last, EnvironmentEstimator):
            raise InputError(f"the last step must be one of wri's estimators, not {name!r}")
        groups = params.pop(f"{name}__groups", groups)  # scikit-learn's long form
        sample_weight = params.pop(f"{name}__sample_weight", sample_weight)
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
        """Return the metadata that transformers request, if metadata routing is on."""
        if not get_config()["enable_metadata_routing"]:
            return {}
        present = {key: value for key, value in given.items() if value is not None}
        asked = head.get_metadata_routing().consumes("fit_transform", present)
        return {key: present[key] for key in asked}

    @available_if(_last_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the probability of each class.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_columns)
            Table before the preprocessing, with or without the environment column.

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_classes)
            Columns in the order of `classes_`.
        """
        last, X, _ = self._read(X)
        return last.predict_proba(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of a classifier or the R² of a regressor.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_columns)
            Table before the preprocessing, with or without the environment column.
        y : array-like of shape (n_rows,)
            Targets.
        sample_weight : array-like of shape (n_rows,) or None, default=None
            Weights of the rows.

        Returns
        -------
        score : float
            Accuracy or R².
        """
        last, X, _ = self._read(X)
        return last.score(X, y, sample_weight)

    def assess(self, X: Any) -> "Assessment":
        """Return predictions with probabilities, typicality, verdicts and nearest environments.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_columns)
            Table before the preprocessing, with or without the environment column.

        Returns
        -------
        assessment : Assessment
            Arrays with one entry per row. Rows with a category that training never had, or with a
            missing cell in a column that was never missing, are at least rare.
        """
        last, X, unseen = self._read(X)
        return replace(flag_unseen(last.assess(X), unseen), unseen=unseen)

    def score_new_site(self, X: Any, **options: Any) -> "NewSite":
        """Estimate the loss and describe the rows of a site without known outcomes.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_columns)
            Rows of the site before the preprocessing.
        **options : Any
            Options of the estimator's method, such as `level`.

        Returns
        -------
        site : NewSite
            Expected mean loss and description of the rows.
        """
        last, X, unseen = self._read(X)
        site = flag_unseen(last.score_new_site(X, **options), unseen)
        names = self[:-1].get_feature_names_out() if len(self.steps) > 1 else None
        columns = site.columns if names is None else tuple(map(str, names))  # "passthrough" alone
        return replace(site, columns=columns, unseen=unseen)

    def _read(self, X: Any) -> tuple[Any, Any, tuple[UnseenCells, ...]]:
        """Return the fitted last step, its table, and cells of kinds that training never had."""
        steps, last = self.steps[:-1], self.steps[-1][1]
        check_is_fitted(last)
        X = without_column(X, last.environment)
        unseen: tuple[UnseenCells, ...] = ()
        if steps and isinstance(steps[0][1], ColumnReader):
            X = steps[0][1].transform(X)
            unseen, steps = steps[0][1].find_unseen(X), steps[1:]
        return last, _dense(Pipeline(steps).transform(X)) if steps else X, unseen

    def _for_estimator(self, X: Any) -> tuple[EnvironmentEstimator, np.ndarray]:
        last, X, _ = self._read(X)
        return last, last._prepared(X)

    def _judge(self, X: Any) -> RowEvidence:
        last, X, unseen = self._read(X)
        return flag_unseen(last._judge(X), unseen)


def _dense(X: Any) -> Any:
    return X.toarray() if issparse(X) else X


def last_step(model: Any) -> Any:
    """Return the estimator of a pipeline, or the estimator itself."""
    return model.steps[-1][1] if isinstance(model, Pipeline) else model
