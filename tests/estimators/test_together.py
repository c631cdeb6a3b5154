"""Estimators that are fitted together become what each becomes alone."""

import numpy as np
import pytest

import wri
from hospitals import hospitals
from wri.estimators.problem import fit_together


@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
def test_fitted_together_or_alone(kind):
    X, y, site = hospitals(60)
    y = y if kind == "Classifier" else X[:, 0] + y
    weighted, plain = getattr(wri, f"WRI{kind}"), getattr(wri, f"ERM{kind}")
    models = [
        *(weighted(penalty_weight=weight, site_spread=False) for weight in (5.0, 0.5)),
        plain(site_spread=False),
        plain(hidden=(4,), steps=10, site_spread=False),
    ]
    fit_together(models, X, y, site, judges=models)
    for model in models:
        alone = type(model)(**model.get_params()).fit(X, y, site)
        assert vars(alone).keys() - {"ranges_"} == vars(model).keys()
        np.testing.assert_allclose(model.parameters_, alone.parameters_, atol=1e-7)
        np.testing.assert_allclose(model.score_samples(X), alone.score_samples(X), atol=1e-6)
        assert model.evidence_.rare == pytest.approx(alone.evidence_.rare, abs=1e-3)
