"""Meta-learning for domain generalisation: a step on some environments must help the others.

    1/E · Σ_(i, j) [R_i(θ) + β · R_j(θ′_ij)],   θ′ = θ after a step on R_i   (Li et al., 2018)

Environments are split at random into meta-train ones i and meta-test ones j, which are used in
turn. `inner="adam"` is DomainBed's form: the step is Adam's first one, and its derivative is
omitted. `inner="sgd"` is the paper's form: θ′ = θ − η ∇R_i(θ), differentiated through. Differences
from DomainBed: each environment keeps its whole batch if sizes differ, and at least one environment
is always meta-train.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from wri.errors import check_option
from wri.objectives.base import Batch, Model, Objective, StepContext, Stepped, weighted_mean
from wri.objectives.hyperparameters import LogUniform, OneOf, hyperparameter
from wri.stacked.adam import EPSILON


@dataclass(frozen=True)
class MLDG(Objective):
    """Meta-learning for domain generalisation.

    Parameters
    ----------
    inner : {"adam", "sgd"}, default="adam"
        Inner step: Adam's first step without its derivative, or a gradient step with it.

    References
    ----------
    D. Li, Y. Yang, Y.-Z. Song and T. M. Hospedales, "Learning to Generalize: Meta-Learning for
    Domain Generalization", AAAI, 2018.
    """

    inner: Literal["adam", "sgd"] = "adam"
    name = "mldg"
    own_hyperparameters = (
        hyperparameter(
            "beta", "β, weight of the meta-test risk", domainbed=(1.0, LogUniform(1e-1, 1e1))
        ),
        hyperparameter(
            "meta_test",
            "environments held out in a step",
            domainbed=(2, OneOf((1, 2))),
            low=1,
            whole=True,
        ),
    )

    def __post_init__(self) -> None:
        check_option("inner", self.inner, ("adam", "sgd"))

    def loss(self, model: Model, batch: Batch, state: Any, context: StepContext) -> Stepped:
        environments = batch.x.shape[1]
        hyper = context.hyper
        order = context.random.permutations(environments)
        run, train, test = meta_pairs(order, hyper["meta_test"])  # [K] each

        exact = self.inner == "sgd"
        flat = model.flat[run]  # [K, P]: a copy of its run for each pair
        model = model._replace(flat=flat)
        risks = _risks(model, batch, run, train)  # [K]
        (gradient,) = torch.autograd.grad(risks.sum(), flat, create_graph=exact)
        rate = hyper["learning_rate"][run, None]
        if not exact:
            risks = _known_gradient(risks, flat, gradient)
            gradient = gradient + hyper["weight_decay"][run, None] * flat.detach()
            gradient = gradient / (gradient.abs() + EPSILON)  # Adam's first step
        tested = _risks(model._replace(flat=flat - rate * gradient), batch, run, test)  # [K]
        losses = risks + hyper["beta"][run] * tested
        total = torch.zeros_like(hyper["beta"]).index_add(0, run, losses)
        return total / environments, state


def _known_gradient(risks: Tensor, flat: Tensor, gradient: Tensor) -> Tensor:
    """Return the risks `[K]` with a known gradient, which is not computed again."""
    return risks.detach() + (gradient * (flat - flat.detach())).sum(1)


def meta_pairs(order: Tensor, meta_test: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (run, meta-train, meta-test) environments of all runs from random orders `[R, E]`."""
    environments = order.shape[1]
    pairs = []
    for r, (row, held_out) in enumerate(zip(order.tolist(), meta_test.tolist(), strict=True)):
        n_test = min(int(held_out), environments - 1)
        n_train = environments - n_test
        pairs += [(r, row[k], row[n_train + k % n_test]) for k in range(n_train)]
    run, train, test = torch.tensor(pairs, device=order.device).T
    return run, train, test


def _risks(model: Model, batch: Batch, run: Tensor, environment: Tensor) -> Tensor:  # [K]
    """Return the risk of copy k in environment `environment[k]` of run `run[k]`."""
    weight = None if batch.weight is None else batch.weight[run, environment]
    losses = model.losses(batch.x[run, environment], batch.y[run, environment])  # [K, B]
    return weighted_mean(losses, weight)
