"""Models of `peers.py`: WRI and what else a user with rows from several sites could install.

Every model is a function of training rows and one setting (λ, γ, …) and returns a predictor of the
probability of class 1, or of the number. Columns and numbers are standardised by the training rows
beforehand. Packages other than wri and scikit-learn are imported when their model is fitted.

    WRI, ERM, VREx        linear predictors of wri, without the spread between sites
    ERM without flagged   flagged: columns whose relation to the target changes between sites
    anchor regression     ivmodels; anchors are indicators of sites; classes: least squares on 0 and
                          1, then logistic regression on its score
    ICP                   causalicp; least squares or logistic regression on the columns found;
                          classes are tested as the numbers 0 and 1
    anchor boosting       anchorboosting; trees of depth 3, squared error or probit
    χ² DRO, group DRO     dro; linear, squared error or logistic loss
    plain regression      scikit-learn's LogisticRegression or Ridge
    gradient boosting     scikit-learn's HistGradientBoosting
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, lars_path

import wri
from wri.diagnosis.changing_features import flagged_columns
from wri.futures import LIKE, UNRELATED, Future, future_rows

MOST_TESTED = 8  # columns of which ICP tests all subsets
PLAIN = "plain regression"
SMALLEST = 1e-6  # probability in a log-loss

LAMBDAS = (0.0, 0.6, 2.0, 6.0, 20.0)
COMPARED: tuple[Future, ...] = (LIKE, UNRELATED)  # futures whose worst regret chooses γ
GAMMAS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
ROUNDS = tuple((gamma, rounds) for rounds in (30, 100) for gamma in (1.0, 3.0, 10.0, 30.0, 100.0))
LEAVES = tuple((rate, leaves) for rate in (0.03, 0.1) for leaves in (4, 8, 31))

Predict = Callable[[np.ndarray], np.ndarray]  # [n, D] -> [n]


class Rows(NamedTuple):
    """Training rows of several sites, standardised."""

    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]: 0 and 1, or numbers
    site: np.ndarray  # [n], whole numbers from 0
    classes: bool

    def without(self, site: int) -> "Rows":
        """Leave one site out."""
        kept = self.site != site
        number = np.unique(self.site[kept], return_inverse=True)[1]
        return self._replace(x=self.x[kept], y=self.y[kept], site=number)

    def only(self, columns: Sequence[int] | np.ndarray) -> "Rows":
        """Keep some columns."""
        return self._replace(x=self.x[:, columns])

    def flagged(self) -> np.ndarray:
        """Columns whose relation to the target changes between the sites."""
        return flagged_columns(self.x, self.y, self.site, self.classes)


class Fitted(NamedTuple):
    """A predictor, and what its method said."""

    predict: Predict
    note: str = ""


class Peer(NamedTuple):
    """A model, the settings it was tuned over, and those chosen for classes and numbers."""

    fit: Callable[[Rows, Any], Fitted]
    package: str = ""  # that it needs
    grid: Sequence[Any] = ()
    chosen: tuple[Any, Any] = (None, None)  # None: nothing to choose, or the package's own


def mean_loss(y: np.ndarray, predicted: np.ndarray, classes: bool) -> float:
    """Mean log-loss or squared error."""
    if not classes:
        return float(np.square(predicted - y).mean())
    own = np.where(y == 1, predicted, 1 - predicted)
    return float(-np.log(own.clip(SMALLEST)).mean())


def future_loss(
    predict: Predict, x: np.ndarray, y: np.ndarray, columns: np.ndarray, future: Future, kind: bool
) -> float:
    """Mean loss at a site in a future of its flagged columns."""
    draws = future_rows(x, y, columns, future, kind)
    return float(np.mean([mean_loss(y, predict(moved), kind) for moved in draws]))


def fit_ours(name: str, rows: Rows, setting: Any) -> Fitted:
    """Linear estimator of wri; the setting is λ."""
    made = getattr(wri, f"{name}{'Classifier' if rows.classes else 'Regressor'}")
    given = {} if setting is None else {"penalty_weight": setting}
    model = made(site_spread=False, random_state=0, **given).fit(rows.x, rows.y, groups=rows.site)
    if rows.classes:
        return Fitted(lambda x: model.predict_proba(x)[:, 1])
    return Fitted(model.predict)


def fit_without_flagged(rows: Rows, setting: None) -> Fitted:
    """ERM without the flagged columns; with all of them if all are flagged."""
    every = np.arange(rows.x.shape[1])
    kept = np.setdiff1d(every, rows.flagged())
    kept = kept if len(kept) else every
    inner = fit_ours("ERM", rows.only(kept), setting).predict
    return Fitted(lambda x: inner(x[:, kept]))


def fit_anchor_regression(rows: Rows, gamma: float) -> Fitted:
    """Anchor regression, γ = 1 is least squares; the score of classes is calibrated."""
    models = import_module("ivmodels.models")
    # all indicators together are not of full rank, and their projection is then inexact
    anchors = np.eye(rows.site.max() + 1)[rows.site][:, 1:]
    model = models.AnchorRegression(gamma=gamma).fit(rows.x, rows.y.astype(float), Z=anchors)
    if not rows.classes:
        return Fitted(model.predict)
    scale = LogisticRegression(C=1e6).fit(model.predict(rows.x)[:, None], rows.y)
    return Fitted(lambda x: scale.predict_proba(model.predict(x)[:, None])[:, 1])


def fit_anchor_by_regret(rows: Rows, setting: None) -> Fitted:
    """Anchor regression whose γ has the least worst regret at training sites left out in turn.

    Futures are those of WRI's "auto": sites like these, and flagged columns that tell nothing.
    """
    sites = range(rows.site.max() + 1)
    losses = np.empty((len(GAMMAS), len(COMPARED), len(sites)))
    for site in sites:
        others, left = rows.without(site), rows.site == site
        columns = others.flagged()
        for c, gamma in enumerate(GAMMAS):
            predict = fit_anchor_regression(others, gamma).predict
            losses[c, :, site] = [
                future_loss(predict, rows.x[left], rows.y[left], columns, future, rows.classes)
                for future in COMPARED
            ]
    best = GAMMAS[least_worst_regret(losses.mean(2))]
    return fit_anchor_regression(rows, best)._replace(note=f"{best:g}")


def least_worst_regret(losses: np.ndarray) -> int:  # [C, F] -> number of the candidate
    """Number of the candidate whose largest loss, relative to the best of each future, is least."""
    return int((losses / losses.min(0)).max(1).argmin())


def fit_icp(rows: Rows, level: float) -> Fitted:
    """Regression on the columns that are in every invariant set.

    Of many columns those are tested that lasso admits first. No column in all sets: a constant. No
    invariant set: all columns, because the method has no answer.
    """
    icp = import_module("causalicp")
    tested = np.flatnonzero(rows.x.std(0) > 0)  # it cannot regress on a constant column
    if len(tested) > MOST_TESTED:
        admitted = lars_path(rows.x[:, tested], rows.y - rows.y.mean(), method="lasso")[1]
        tested = tested[list(dict.fromkeys(admitted))[:MOST_TESTED]]
    sites = range(rows.site.max() + 1)
    both = np.column_stack([rows.x[:, tested], rows.y])
    found = icp.fit([both[rows.site == site] for site in sites], len(tested), alpha=level)
    if found.estimate is None:
        return fit_plain(rows, None)._replace(note="no invariant set")
    if not found.estimate:
        return fit_constant(rows, None)._replace(note="no column")
    kept = tested[sorted(found.estimate)]
    inner = fit_plain(rows.only(kept), None).predict
    return Fitted(lambda x: inner(x[:, kept]), "columns found")


def fit_anchor_boosting(rows: Rows, setting: tuple[float, int]) -> Fitted:
    """Boosted trees of depth 3, as the package advises; the setting is γ and the rounds."""
    gamma, rounds = setting
    model = import_module("anchorboosting").AnchorBooster(
        gamma,
        num_boost_round=rounds,
        objective="binary" if rows.classes else "regression",
        max_depth=3,
        min_gain_to_split=0.1,
        num_threads=1,
        verbose=-1,
    )
    return Fitted(model.fit(rows.x, rows.y.astype(float), Z=rows.site).predict)


def import_linear_dro() -> ModuleType:
    """The linear models of dro; its networks, and what they need, are not imported."""
    if "dro" not in sys.modules and (spec := find_spec("dro")) is not None:
        sys.modules["dro"] = module_from_spec(spec)  # without running its __init__
    return import_module("dro.linear_model")


def fit_linear_dro(rows: Rows, x: np.ndarray, make: Callable[..., Any]) -> Fitted:
    """Solve a linear model of dro; SCS solves it where the package's own solver gives up."""
    kind, y = "logistic" if rows.classes else "ols", 2.0 * rows.y - 1 if rows.classes else rows.y
    try:
        model, note = make(model_type=kind), ""
        model.fit(x, y)
    except Exception as error:
        if not isinstance(error.__cause__, import_module("cvxpy.error").SolverError):
            raise
        model, note = make(model_type=kind, solver="SCS"), "second solver"
        model.fit(x, y)
    slopes, intercept = model.theta[: rows.x.shape[1]], model.b
    if rows.classes:
        return Fitted(lambda new: expit(new @ slopes + intercept), note)
    return Fitted(lambda new: new @ slopes + intercept, note)


def fit_chi2_dro(rows: Rows, radius: float) -> Fitted:
    """Worst case over reweighted rows within a χ² ball; sites are not used."""
    chi2_dro = import_linear_dro().Chi2DRO

    def make(**options: Any) -> Any:
        model = chi2_dro(input_dim=rows.x.shape[1], **options)
        model.update({"eps": radius})
        return model

    return fit_linear_dro(rows, rows.x, make)


def fit_group_dro(rows: Rows, setting: None) -> Fitted:
    """Least worst loss over sites; the predictor does not see the column of sites."""
    group_dro = import_linear_dro().GroupDRO

    class BlindGroupDRO(group_dro):  # type: ignore[misc, valid-type]
        """Its loss leaves out the column that names the group."""

        def _cvx_loss(self, X: np.ndarray, *others: Any) -> Any:
            hidden = X.copy()
            hidden[:, self.group_idx] = 0.0
            return super()._cvx_loss(hidden, *others)

    width = rows.x.shape[1]
    make = partial(BlindGroupDRO, input_dim=width + 1, group_idx=width)
    return fit_linear_dro(rows, np.column_stack([rows.x, rows.site]), make)


def fit_plain(rows: Rows, strength: float | None) -> Fitted:
    """Logistic regression with C = 1/strength, or ridge with this penalty; None: hardly any."""
    if rows.classes:
        model: Any = LogisticRegression(C=1e6 if strength is None else 1 / strength, max_iter=1000)
        model.fit(rows.x, rows.y)
        return Fitted(lambda x: model.predict_proba(x)[:, 1])
    model = LinearRegression() if strength is None else Ridge(strength)
    return Fitted(model.fit(rows.x, rows.y).predict)


def fit_gradient_boosting(rows: Rows, setting: tuple[float, int]) -> Fitted:
    """100 trees; the setting is the learning rate and the leaves."""
    rate, leaves = setting
    made = HistGradientBoostingClassifier if rows.classes else HistGradientBoostingRegressor
    model = made(learning_rate=rate, max_leaf_nodes=leaves, random_state=0).fit(rows.x, rows.y)
    if rows.classes:
        return Fitted(lambda x: model.predict_proba(x)[:, 1])
    return Fitted(model.predict)


def fit_constant(rows: Rows, setting: None) -> Fitted:
    """Mean of the training rows."""
    mean = float(rows.y.mean())
    return Fitted(lambda x: np.full(len(x), mean))


PEERS = {
    "ERM": Peer(partial(fit_ours, "ERM")),
    "WRI": Peer(partial(fit_ours, "WRI")),
    'WRI, "auto"': Peer(partial(fit_ours, "WRI"), chosen=("auto", "auto")),
    "WRI, λ tuned": Peer(partial(fit_ours, "WRI"), grid=LAMBDAS, chosen=(0.6, 2.0)),
    "ERM without flagged": Peer(fit_without_flagged),
    "VREx": Peer(partial(fit_ours, "VREx"), "", (0.0, 1.0, 3.0, 10.0, 30.0, 100.0), (10.0, 10.0)),
    "anchor regression": Peer(fit_anchor_regression, "ivmodels", GAMMAS, (30.0, 30.0)),
    "anchor regression, γ chosen": Peer(fit_anchor_by_regret, "ivmodels"),
    "ICP": Peer(fit_icp, "causalicp", chosen=(0.05, 0.05)),
    "anchor boosting": Peer(fit_anchor_boosting, "anchorboosting", ROUNDS, ((3.0, 30), (3.0, 100))),
    "χ² DRO": Peer(fit_chi2_dro, "dro", (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0), (0.1, 10.0)),
    "group DRO": Peer(fit_group_dro, "dro"),
    PLAIN: Peer(fit_plain, grid=(0.1, 1.0, 10.0, 100.0, 1000.0), chosen=(10.0, 10.0)),
    "gradient boosting": Peer(fit_gradient_boosting, grid=LEAVES, chosen=((0.03, 8), (0.1, 4))),
    "constant": Peer(fit_constant),
}
