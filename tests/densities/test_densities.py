"""Facts about every way to say how common a point is."""

import numpy as np
import pytest
import torch

from wri.datasets import Gaussian2D
from wri.densities import (
    DENSITIES,
    Bounded,
    EnvironmentClassifier,
    Exact,
    FittedClassifier,
    Gaussian,
    LabelAwareClassifier,
    LabelLogistic,
    Mixture,
)
from wri.errors import InputError
from wri.stacked import Adam, differentiate
from wri.testing import DENSITY_CHECKS, fitted_parameters
from wri.testing import DENSITY_HYPER as HYPER

EXAMPLES = {
    "bounded": Bounded(),
    "gaussian": Gaussian(),
    "mixture": Mixture(2),
    "classifier": EnvironmentClassifier(8),
    "fitted-classifier": FittedClassifier(8, steps=20),
    "deeper-classifier": FittedClassifier(8, 4, steps=20),
    "label-aware": LabelAwareClassifier(hidden=8, second_hidden=4, steps=20, refit_steps=20),
    "label-logistic": LabelLogistic(),
    "exact": Exact(lambda x: torch.stack([x[..., 0], x.sum(-1), -x[..., 1]], -1)),
}


def test_every_density_of_the_package_is_tested_here():
    assert {*DENSITIES.values()} <= {type(density) for density in EXAMPLES.values()}


@pytest.mark.parametrize("density", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.parametrize("check", DENSITY_CHECKS)
def test_the_contract_is_kept(check, density):
    DENSITY_CHECKS[check](density)


def test_bounded_stays_within_every_runs_own_bounds():
    flat = 30 * torch.randn(2, Bounded().initial([0], 3, 4).shape[1], dtype=torch.float64)
    values = Bounded().log_density(flat, 5 * torch.randn(2, 400, 4).double(), 3, HYPER).exp()
    for run, (low, high) in enumerate([(0.1, 1.0), (0.2, 2.0)]):
        torch.testing.assert_close(values[run].min(), torch.tensor(low).double(), atol=1e-6, rtol=0)
        torch.testing.assert_close(
            values[run].max(), torch.tensor(high).double(), atol=1e-6, rtol=0
        )


def test_gaussian_likelihood_converges_to_the_sample_moments():
    random = np.random.default_rng(0)
    mixing = random.normal(size=(2, 3, 3))
    rows = np.stack([random.normal(e, 1, (300, 3)) @ mixing[e] for e in range(2)])
    x = torch.tensor(rows)[None]  # [1, E, B, D]
    density = Gaussian()
    leaf = torch.tensor(density.initial([0], 2, 3)).requires_grad_()
    solver = torch.optim.LBFGS([leaf], max_iter=200, line_search_fn="strong_wolfe")

    def loss():
        solver.zero_grad()
        value = -density.log_density_own(leaf, x, {}).mean()
        value.backward()
        return value

    solver.step(loss)
    flat = leaf.detach()
    points = torch.randn(1, 50, 3, dtype=torch.float64)
    learned = density.log_density(flat, points, 2, {})
    for e in range(2):
        exact = torch.distributions.MultivariateNormal(
            torch.tensor(rows[e].mean(0)), torch.tensor(np.cov(rows[e].T, ddof=0))
        )
        torch.testing.assert_close(learned[0, e], exact.log_prob(points[0]), atol=2e-3, rtol=1e-3)


def test_mixture_gives_scikit_learns_log_likelihood():
    from sklearn.mixture import GaussianMixture

    random = np.random.default_rng(0)
    rows = [random.normal(e, 1, (100, 2)) for e in range(2)]
    flat = torch.tensor(Mixture(3).fit(rows))[None]
    points = random.normal(size=(20, 2))
    ours = Mixture(3).log_density(flat, torch.tensor(points)[None], 2, {})
    for e in range(2):
        ordered = rows[e][np.square(rows[e]).sum(1).argsort()]  # EM's start depends on the order
        model = GaussianMixture(3, reg_covar=1e-3, random_state=0).fit(ordered)
        np.testing.assert_allclose(ours[0, e], model.score_samples(points), rtol=1e-9)


def test_mixture_names_the_environment_that_is_too_small():
    with pytest.raises(InputError, match=r"environment 1 has 2 rows.*3 components"):
        Mixture(3).fit([np.random.default_rng(0).normal(size=(9, 1)), np.zeros((2, 1))])


@pytest.mark.slow
def test_trained_classifier_gives_the_true_log_ratio():
    """On the 2-D setting's invariant feature, where the ratio is known."""
    setting = Gaussian2D(invariant_sd=(2.0, 1.0), spurious_mean=(0, 0), spurious_sd=(1, 1))
    x = torch.tensor(np.stack([e.x[:, :1] for e in setting.sample(4000, seed=0)]))[None]
    density = EnvironmentClassifier(16)
    flat = torch.tensor(density.initial([0], 2, 1))
    adam = Adam.initial(flat)
    for _ in range(600):
        leaf = flat.detach().requires_grad_()
        loss = -density.log_density_own(leaf, x, {}).mean((1, 2))
        gradient = differentiate(loss, leaf)
        adam.step(flat, gradient, torch.tensor([0.02]).double(), torch.zeros(1).double())
    grid = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    learned = density.log_density(flat, grid[None], 2, {})[0]
    true = setting.log_invariant(torch.cat([grid, grid], -1))
    ratio = true[:, 0] - true[:, 1]
    torch.testing.assert_close(learned[0] - learned[1], ratio, atol=0.2, rtol=0)


@pytest.mark.slow
def test_fitted_classifier_gives_the_true_log_ratio_for_environments_of_unequal_size():
    setting = Gaussian2D(invariant_sd=(2.0, 1.0), spurious_mean=(0, 0), spurious_sd=(1, 1))
    large, small = (e.x[:, :1] for e in setting.sample(8000, seed=0))
    density = FittedClassifier(16, steps=600)
    flat = torch.tensor(density.fit([large, small[:2000]]))[None]
    grid = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    learned = density.log_density(flat, grid[None], 2, {})[0]
    true = setting.log_invariant(torch.cat([grid, grid], -1))
    torch.testing.assert_close(learned[0] - learned[1], true[:, 0] - true[:, 1], atol=0.2, rtol=0)
    assert np.array_equal(flat[0], density.fit([large, small[:2000]]))


def test_exact_refuses_a_function_of_other_environments():
    three = Exact(Gaussian2D().log_joint)  # three environments, two are trained on
    with pytest.raises(InputError, match="last axis must be the 2 training environments"):
        three.log_density(torch.zeros(1, 0), torch.zeros(1, 2, 5, 2), 2, {})


@pytest.mark.parametrize("own", [False, True], ids=["all rows", "own rows"])
@pytest.mark.parametrize(
    "density", [Bounded(), Bounded(hidden=5), Gaussian(), EnvironmentClassifier(8)], ids=repr
)
def test_gradients_are_those_of_automatic_differentiation(density, own):
    torch.manual_seed(0)
    flat = fitted_parameters(density)
    shape = (2, 3, 2, 5, 4) if own else (2, 3, 5, 4)
    x = torch.randn(shape, dtype=torch.float64)
    with torch.no_grad():
        at = density.differentiable(flat, 3, 4, HYPER)
        for _ in range(2):  # the second time at values that have changed in place
            logs, pullback = at(x, own)
            gradient = torch.randn_like(logs)
            moving = flat.clone().requires_grad_()
            with torch.enable_grad():
                if own:
                    expected = density.log_density_own(moving, x, HYPER)
                else:
                    expected = density.log_density(moving, x, 3, HYPER)
            torch.testing.assert_close(logs, expected.detach(), rtol=1e-12, atol=1e-12)
            (by_autograd,) = torch.autograd.grad(expected, moving, gradient)
            assert by_autograd.abs().max() > 1e-3
            torch.testing.assert_close(pullback(gradient), by_autograd, rtol=1e-10, atol=1e-10)
            flat += 0.1 * torch.randn_like(flat)
