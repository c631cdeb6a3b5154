"""The paper's simulations of classification: two columns (appendix E.1), and many (E.2).

Figure 1, `Gaussian2D`:

    X_inv ~ N(c_e, s_e²),   Y = 1[X_inv + ε > 0],  ε ~ N(0, 1),   X_spu | Y ~ N(±m_e, t_e²)

P(Y = 1 | x_inv) is the same everywhere and most uncertain near x_inv = 0, so environment 2, which
is narrow, holds the harder cases: heteroskedastic, with invariant covariate shift. In environment
3 the spurious feature has the opposite sign.

Many columns, `Simulation`:

    X_inv ~ N(μ_e, Σ_e),   Y = argmax_y w_yᵀX_inv + ε_y,  ε_y ~ N(0, σ²),
    X_spu | Y = y ~ N(μ_ey, Σ_ey)

with random parameters: μ_e ~ N(0, σ_inv² I), Σ_e = RandCov(1 − Δ, 1 + Δ), w_y uniform on the
sphere, μ_ey ~ N(0, σ_spu² I), Σ_ey = RandCov(½, 3/2). The last environment is the test.
"""

from dataclasses import dataclass
from math import log, pi, sqrt

import numpy as np
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor

from wri.datasets.environments import Environment
from wri.errors import InputError

OVERREPRESENTED = 1.5  # multiple of the uniform share above which parameters are drawn again
MOST_DRAWS = 1000
NODES = 40  # of the quadrature for P(y | x_inv)


@dataclass(frozen=True)
class Gaussian2D:
    """Two-dimensional Gaussian classification; by default that of the paper's Figure 1.

        X_inv ~ N(c_e, s_e²),   Y = 1[X_inv + ε > 0],  ε ~ N(0, 1),   X_spu | Y ~ N(±m_e, t_e²)

    Parameters
    ----------
    invariant_sd : tuple of float, default=(2.0, 0.5, 3.0)
        s_e, standard deviation of the invariant feature.
    spurious_mean : tuple of float, default=(-1.0, -1.0, 1.0)
        m_e, mean of the spurious feature for Y = 1; for Y = 0 it is −m_e.
    spurious_sd : tuple of float, default=(0.5, 2.0, 1.0)
        t_e, its standard deviation for both classes.
    invariant_mean : tuple of float or None, default=None
        c_e, mean of the invariant feature. None: zeros.

    References
    ----------
    G. Wong, J. Gleason, R. Chellappa, Y. Wald and A. Liu, "Weighted Risk Invariance: Domain
    Generalization under Invariant Feature Shift", TMLR, 2024, appendix E.1.

    Examples
    --------
    >>> from wri.datasets import Gaussian2D
    >>> environments = Gaussian2D().sample(n=10, seed=0)
    >>> [each.x.shape for each in environments]
    [(10, 2), (10, 2), (10, 2)]
    >>> round(Gaussian2D().best_accuracy(0), 3)
    0.852
    """

    invariant_sd: tuple[float, ...] = (2.0, 0.5, 3.0)
    spurious_mean: tuple[float, ...] = (-1.0, -1.0, 1.0)
    spurious_sd: tuple[float, ...] = (0.5, 2.0, 1.0)
    invariant_mean: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        given = (self.invariant_sd, self.spurious_mean, self.spurious_sd, self._centres)
        if len({*map(len, given)}) != 1 or min(*self.invariant_sd, *self.spurious_sd) <= 0:
            raise InputError(
                "invariant_sd, spurious_mean, spurious_sd and invariant_mean must be equally long, "
                "and standard deviations positive"
            )

    def sample(self, n: int, seed: int) -> list[Environment]:
        """Draw rows of each environment.

        Parameters
        ----------
        n : int
            Rows per environment.
        seed : int
            Seed of the rows.

        Returns
        -------
        environments : list of Environment
            Columns x_inv, x_spu; classes 0 and 1.
        """
        environments = []
        for e, centre in enumerate(self._centres):
            random = np.random.default_rng([seed, e])
            invariant = random.normal(centre, self.invariant_sd[e], n)
            y = (invariant + random.normal(size=n) > 0).astype(int)
            spurious = random.normal((2 * y - 1) * self.spurious_mean[e], self.spurious_sd[e])
            x = np.stack([invariant, spurious], axis=1)
            environments.append(Environment(f"environment {e + 1}", x, y))
        return environments

    def log_invariant(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E]
        """Return log p_e(x_inv).

        Parameters
        ----------
        x : Tensor of shape (..., 2)
            Points.

        Returns
        -------
        logs : Tensor of shape (..., E)
            Log densities.
        """
        centre, sd = x.new_tensor(self._centres), x.new_tensor(self.invariant_sd)  # [E]
        return _log_normal(x[..., :1], centre, sd)

    def log_joint(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E]
        """Return log p_e(x_inv, x_spu).

        Parameters
        ----------
        x : Tensor of shape (..., 2)
            Points.

        Returns
        -------
        logs : Tensor of shape (..., E)
            Log densities.
        """
        return self.log_invariant(x) + self._log_spurious(x).logsumexp(-1)

    def probability(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E]
        """Return P_e(Y = 1 | x_inv, x_spu).

        Parameters
        ----------
        x : Tensor of shape (..., 2)
            Points.

        Returns
        -------
        probabilities : Tensor of shape (..., E)
            Probability in each environment.
        """
        return self._log_spurious(x).softmax(-1)[..., 1]

    @staticmethod
    def invariant_probability(x_inv: Tensor) -> Tensor:
        """Return P(Y = 1 | x_inv), the same in every environment.

        Parameters
        ----------
        x_inv : Tensor
            Invariant feature.

        Returns
        -------
        probabilities : Tensor
            Probabilities in the shape of `x_inv`.
        """
        return torch.special.ndtr(x_inv)

    def _log_spurious(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E, class]
        """Return log p(y | x_inv) + log p_e(x_spu | y)."""
        mean, spread = x.new_tensor(self.spurious_mean), x.new_tensor(self.spurious_sd)  # [E]
        classes = []
        for sign in (-1.0, 1.0):
            label = torch.special.log_ndtr(sign * x[..., :1])
            classes.append(label + _log_normal(x[..., 1:], sign * mean, spread))
        return torch.stack(classes, dim=-1)

    @property
    def _centres(self) -> tuple[float, ...]:
        return self.invariant_mean or (0.0,) * len(self.invariant_sd)

    def best_accuracy(self, environment: int) -> float:
        """Return the accuracy of sign(x_inv), the best that x_inv allows: `E[Φ(|X_inv|)]`.

        Parameters
        ----------
        environment : int
            Number of the environment.

        Returns
        -------
        accuracy : float
            Accuracy from 0 to 1.
        """
        centre, sd = self._centres[environment], self.invariant_sd[environment]
        positive, negative = (
            quad(lambda x: norm.pdf(x, centre, sd) * norm.cdf(abs(x)), *ends)[0]
            for ends in ((0, np.inf), (-np.inf, 0))
        )
        return float(positive + negative)


def _log_normal(x: Tensor, mean: Tensor | float, sd: Tensor) -> Tensor:
    return -0.5 * ((x - mean) / sd).square() - sd.log() - log(sqrt(2 * pi))


@dataclass(frozen=True, kw_only=True)
class SimulationSetting:
    """Setting of the random multi-dimensional classification of appendix E.2.

    Parameters
    ----------
    invariant_shift : float, default=0.0
        σ_inv, the spread of the environments' invariant means.
    covariance_shift : float, default=0.0
        Δ from 0 to 1, the difference of their invariant covariances.
    parity : float or None, default=None
        θ in degrees. None does not change the drawn spurious means. Otherwise each class has a
        random axis c_y; training means are flipped to its positive side and test means to the
        negative side, and the angle to ±c_y is scaled by θ/90°. At 90° the means are only flipped.
    label_noise : float, default=0.5
        σ, standard deviation of ε.
    spurious_shift : float, default=1.0
        σ_spu, the spread of the spurious means.
    environments : int, default=5
        Number of environments; the last is the test environment.
    classes : int, default=5
        Number of classes.
    d_inv : int, default=10
        Number of invariant columns.
    d_spu : int, default=10
        Number of spurious columns.

    Examples
    --------
    >>> from wri.datasets import SimulationSetting
    >>> SimulationSetting(invariant_shift=0.15, environments=3).classes
    5
    """

    invariant_shift: float = 0.0
    covariance_shift: float = 0.0
    parity: float | None = None
    label_noise: float = 0.5
    spurious_shift: float = 1.0
    environments: int = 5
    classes: int = 5
    d_inv: int = 10
    d_spu: int = 10

    def __post_init__(self) -> None:
        if not 0 <= self.covariance_shift <= 1:
            raise InputError(f"covariance_shift must lie in 0 to 1, not {self.covariance_shift}")
        if self.parity is not None and not 0 <= self.parity <= 90:
            raise InputError(f"parity must lie in 0 to 90 degrees, not {self.parity}")
        if min(self.invariant_shift, self.spurious_shift) < 0 or self.label_noise <= 0:
            raise InputError("shifts must not be negative, and label_noise must be positive")
        if self.environments < 2 or self.classes < 2 or min(self.d_inv, self.d_spu) < 1:
            raise InputError("at least two environments, two classes and one column of each kind")


@dataclass(frozen=True, eq=False, kw_only=True)
class Simulation:
    """Multi-dimensional classification of appendix E.2 with drawn parameters.

        X_inv ~ N(μ_e, Σ_e),   Y = argmax_y w_yᵀX_inv + ε_y,   X_spu | Y = y ~ N(μ_ey, Σ_ey)

    Parameters
    ----------
    mechanism : ndarray of shape (C, d_inv)
        w_y.
    label_noise : float
        σ, standard deviation of ε.
    invariant_mean : ndarray of shape (k, d_inv)
        μ_e.
    invariant_covariance : ndarray of shape (k, d_inv, d_inv)
        Σ_e.
    spurious_mean : ndarray of shape (k, C, d_spu)
        μ_ey.
    spurious_covariance : ndarray of shape (k, C, d_spu, d_spu)
        Σ_ey.

    References
    ----------
    G. Wong, J. Gleason, R. Chellappa, Y. Wald and A. Liu, "Weighted Risk Invariance: Domain
    Generalization under Invariant Feature Shift", TMLR, 2024, appendix E.2.

    Examples
    --------
    >>> from wri.datasets import Simulation, SimulationSetting
    >>> setting = SimulationSetting(environments=2, classes=2, d_inv=2, d_spu=1)
    >>> simulation, environments = Simulation.balanced(setting, n=40, seed=0)
    >>> [each.x.shape for each in environments]
    [(40, 3), (40, 3)]
    """

    mechanism: np.ndarray  # [C, d_inv], w_y
    label_noise: float
    invariant_mean: np.ndarray  # [k, d_inv]
    invariant_covariance: np.ndarray  # [k, d_inv, d_inv]
    spurious_mean: np.ndarray  # [k, C, d_spu]
    spurious_covariance: np.ndarray  # [k, C, d_spu, d_spu]

    @classmethod
    def random(cls, setting: SimulationSetting, seed: int | list[int]) -> "Simulation":
        """Draw parameters by a setting, whatever the class balance; see `balanced`.

        Parameters
        ----------
        setting : SimulationSetting
            The setting.
        seed : int or list of int
            Seed of the parameters.

        Returns
        -------
        simulation : Simulation
            The parameters.
        """
        random = np.random.default_rng(seed)
        k, classes = setting.environments, setting.classes
        d_inv, d_spu = setting.d_inv, setting.d_spu
        delta = setting.covariance_shift
        means = random.normal(size=(k, classes, d_spu)) * setting.spurious_shift
        if setting.parity is not None:
            axes = random_directions(classes, d_spu, random)
            factor = setting.parity / 90
            training, test = towards(means[:-1], axes, factor), towards(means[-1:], -axes, factor)
            means = np.concatenate([training, test])
        covariances = random_covariances(k * classes, d_spu, 0.5, 1.5, random)
        return cls(
            mechanism=random_directions(classes, d_inv, random),
            label_noise=setting.label_noise,
            invariant_mean=random.normal(size=(k, d_inv)) * setting.invariant_shift,
            invariant_covariance=random_covariances(k, d_inv, 1 - delta, 1 + delta, random),
            spurious_mean=means,
            spurious_covariance=covariances.reshape(k, classes, d_spu, d_spu),
        )

    @classmethod
    def balanced(
        cls, setting: SimulationSetting, n: int, seed: int
    ) -> tuple["Simulation", list[Environment]]:
        """Draw parameters and rows without a dominant class.

        Parameters are drawn again while a class has more than 1.5 times its uniform share of an
        environment's rows.

        Parameters
        ----------
        setting : SimulationSetting
            The setting.
        n : int
            Rows per environment.
        seed : int
            Seed of parameters and rows.

        Returns
        -------
        simulation : Simulation
            The parameters.
        environments : list of Environment
            The rows.

        Raises
        ------
        InputError
            If 1000 draws have a dominant class.
        """
        most = OVERREPRESENTED * n / setting.classes
        for attempt in range(MOST_DRAWS):
            simulation = cls.random(setting, [seed, attempt])
            environments = simulation.sample(n, [seed, attempt])
            if max(np.bincount(e.y).max() for e in environments) <= most:
                return simulation, environments
        raise InputError(
            f"{MOST_DRAWS} draws of {setting} had a class with more than {OVERREPRESENTED} times "
            "its share; use a smaller invariant_shift or more rows"
        )

    def sample(self, n: int, seed: int | list[int]) -> list[Environment]:
        """Draw rows of each environment.

        Parameters
        ----------
        n : int
            Rows per environment.
        seed : int or list of int
            Seed of the rows.

        Returns
        -------
        environments : list of Environment
            First the invariant columns, then the spurious ones.
        """
        environments = []
        seeds = [seed] if isinstance(seed, int) else seed
        for e, (mean, covariance) in enumerate(
            zip(self.invariant_mean, self.invariant_covariance, strict=True)
        ):
            random = np.random.default_rng([*seeds, e, 1])  # 1: another stream than parameters
            invariant = random.multivariate_normal(mean, covariance, n)
            noise = random.normal(0, self.label_noise, (n, len(self.mechanism)))
            y = (invariant @ self.mechanism.T + noise).argmax(1)
            spurious = np.empty((n, self.spurious_mean.shape[-1]))
            for label in range(len(self.mechanism)):
                rows = y == label
                spurious[rows] = random.multivariate_normal(
                    self.spurious_mean[e, label], self.spurious_covariance[e, label], rows.sum()
                )
            x = np.concatenate([invariant, spurious], axis=1)
            environments.append(Environment(f"environment {e + 1}", x, y))
        return environments

    @property
    def d_inv(self) -> int:
        """Number of invariant columns."""
        return self.mechanism.shape[1]

    def log_invariant(self, x: Tensor) -> Tensor:  # [..., d] -> [..., k]
        """Return log p_e(x_inv).

        Parameters
        ----------
        x : Tensor of shape (..., d)
            Points.

        Returns
        -------
        logs : Tensor of shape (..., k)
            Log densities.
        """
        invariant = x[..., : self.d_inv]
        moments = zip(self.invariant_mean, self.invariant_covariance, strict=True)
        return torch.stack([log_normal(invariant, m, c) for m, c in moments], dim=-1)

    def log_joint(self, x: Tensor) -> Tensor:  # [..., d] -> [..., k]
        """Return log p_e(x_inv, x_spu).

        Parameters
        ----------
        x : Tensor of shape (..., d)
            Points.

        Returns
        -------
        logs : Tensor of shape (..., k)
            Log densities.
        """
        label = self.invariant_probability(x).log()  # [..., C]
        spurious = x[..., self.d_inv :]
        environments = []
        for means, covariances in zip(self.spurious_mean, self.spurious_covariance, strict=True):
            moments = zip(means, covariances, strict=True)
            classes = torch.stack([log_normal(spurious, m, c) for m, c in moments], dim=-1)
            environments.append((label + classes).logsumexp(-1))
        return self.log_invariant(x) + torch.stack(environments, dim=-1)

    def invariant_probability(self, x: Tensor) -> Tensor:  # [..., d] -> [..., C]
        """Return P(y | x_inv) = E_z[Π_{c≠y} Φ(z + (w_y − w_c)ᵀx_inv/σ)], the same everywhere.

        Parameters
        ----------
        x : Tensor of shape (..., d)
            Points.

        Returns
        -------
        probabilities : Tensor of shape (..., C)
            Probability of each class.
        """
        scores = x[..., : self.d_inv] @ x.new_tensor(self.mechanism.T) / self.label_noise
        ahead = scores[..., :, None] - scores[..., None, :]  # [..., y, c]
        z, weight = np.polynomial.hermite_e.hermegauss(NODES)
        log_wins = torch.special.log_ndtr(ahead[..., None] + x.new_tensor(z))  # [..., y, c, z]
        own = torch.eye(len(self.mechanism), dtype=torch.bool, device=x.device)[..., None]
        log_product = log_wins.masked_fill(own, 0.0).sum(-2)  # [..., y, z]
        probability = log_product.exp() @ x.new_tensor(weight / weight.sum())
        return probability / probability.sum(-1, keepdim=True)


def towards(vectors: np.ndarray, axes: np.ndarray, factor: float) -> np.ndarray:
    """Flip `vectors [..., C, d]` to the side of unit `axes [C, d]`, then scale their angle to it.

    A vector turns in its plane with the axis and keeps its length.
    """
    along = (vectors * axes).sum(-1, keepdims=True)
    vectors = np.where(along < 0, -vectors, vectors)
    along = np.abs(along)
    aside = vectors - along * axes
    across = np.linalg.norm(aside, axis=-1, keepdims=True)
    angle = factor * np.arctan2(across, along)
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    side = np.divide(aside, across, out=np.zeros_like(aside), where=across > 0)
    return length * (np.cos(angle) * axes + np.sin(angle) * side)


def random_covariances(
    n: int, d: int, low: float, high: float, random: np.random.Generator
) -> np.ndarray:  # [n, d, d]
    """Draw RandCov(low, high): random rotations, square roots of eigenvalues in [low, high]."""
    rotations = np.linalg.qr(random.normal(size=(n, d, d)))[0]
    roots = random.uniform(low, high, (n, 1, d))
    return (rotations * roots**2) @ rotations.swapaxes(1, 2)


def random_directions(n: int, d: int, random: np.random.Generator) -> np.ndarray:  # [n, d]
    """Draw unit vectors, uniform on the sphere."""
    vectors = random.normal(size=(n, d))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def log_normal(x: Tensor, mean: np.ndarray, covariance: np.ndarray) -> Tensor:  # [..., d] -> [...]
    """Return the log density of a Gaussian."""
    triangle = np.linalg.inv(np.linalg.cholesky(covariance))
    standard = (x - x.new_tensor(mean)) @ x.new_tensor(triangle.T)
    log_volume = np.log(np.diagonal(triangle)).sum() - 0.5 * len(mean) * log(2 * pi)
    return log_volume - 0.5 * standard.square().sum(-1)
