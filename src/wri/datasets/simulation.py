"""The multi-dimensional classification of appendix E.2.

    X_inv ~ N(μ_e, Σ_e),   Y = argmax_y w_yᵀX_inv + ε_y,  ε_y ~ N(0, σ²),
    X_spu | Y = y ~ N(μ_ey, Σ_ey)

with random parameters: μ_e ~ N(0, σ_inv² I), Σ_e = RandCov(1 − Δ, 1 + Δ), w_y uniform on the
sphere, μ_ey ~ N(0, σ_spu² I), Σ_ey = RandCov(½, 3/2). The last environment is the test.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from wri.datasets.environments import Environment
from wri.datasets.gaussians import log_normal, random_covariances, random_directions
from wri.errors import InputError

OVERREPRESENTED = 1.5  # times the uniform share: parameters are drawn anew
MOST_DRAWS = 1000
NODES = 40  # of the quadrature behind P(y | x_inv)


@dataclass(frozen=True, kw_only=True)
class SimulationSetting:
    """The numbers that a random simulation is drawn from.

    Parameters
    ----------
    invariant_shift
        σ_inv: how far apart the environments' invariant means lie.
    covariance_shift
        Δ, 0 to 1: how much their invariant covariances differ.
    parity
        θ in degrees. None leaves the spurious means as drawn. Otherwise each class has a random
        axis c_y; training means are flipped to its positive side, test means to the negative
        one, and the angle to ±c_y is scaled by θ/90°: at 90° the flips are all that happens.
    label_noise
        σ, standard deviation of ε.
    spurious_shift
        σ_spu: how far apart the spurious means lie.
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
            raise InputError("two environments, two classes and a dimension each are the least")


@dataclass(frozen=True, eq=False, kw_only=True)
class Simulation:
    """One draw of the parameters: k environments, C classes."""

    mechanism: np.ndarray  # [C, d_inv], w_y
    label_noise: float
    invariant_mean: np.ndarray  # [k, d_inv]
    invariant_covariance: np.ndarray  # [k, d_inv, d_inv]
    spurious_mean: np.ndarray  # [k, C, d_spu]
    spurious_covariance: np.ndarray  # [k, C, d_spu, d_spu]

    @classmethod
    def random(cls, setting: SimulationSetting, seed: int | list[int]) -> "Simulation":
        """Parameters by the setting, class balance not looked at; see `balanced`."""
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
        """Parameters and n rows of each environment, in none of which a class prevails.

        Parameters are drawn anew while a class has more than 1.5 times its uniform share of
        an environment's rows.
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
        """n rows of each environment: first the invariant columns, then the spurious ones."""
        environments = []
        seeds = [seed] if isinstance(seed, int) else seed
        for e, (mean, covariance) in enumerate(
            zip(self.invariant_mean, self.invariant_covariance, strict=True)
        ):
            random = np.random.default_rng([*seeds, e, 1])  # 1: not the parameters' stream
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
        return self.mechanism.shape[1]

    def log_invariant(self, x: Tensor) -> Tensor:  # [..., d] -> [..., k]
        """log p_e(x_inv)."""
        invariant = x[..., : self.d_inv]
        moments = zip(self.invariant_mean, self.invariant_covariance, strict=True)
        return torch.stack([log_normal(invariant, m, c) for m, c in moments], dim=-1)

    def log_joint(self, x: Tensor) -> Tensor:  # [..., d] -> [..., k]
        """log p_e(x_inv, x_spu)."""
        label = self.invariant_probability(x).log()  # [..., C]
        spurious = x[..., self.d_inv :]
        environments = []
        for means, covariances in zip(self.spurious_mean, self.spurious_covariance, strict=True):
            moments = zip(means, covariances, strict=True)
            classes = torch.stack([log_normal(spurious, m, c) for m, c in moments], dim=-1)
            environments.append((label + classes).logsumexp(-1))
        return self.log_invariant(x) + torch.stack(environments, dim=-1)

    def invariant_probability(self, x: Tensor) -> Tensor:  # [..., d] -> [..., C]
        """P(y | x_inv) = E_z[Π_{c≠y} Φ(z + (w_y − w_c)ᵀx_inv/σ)], the same everywhere."""
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

    The vector turns in its plane with the axis and keeps its length.
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
