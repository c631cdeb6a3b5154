"""Density updates of WRI: some steps of the densities with a fixed predictor.

    λ_d · mean over pairs of (R_ij − R_ji)² + β · mean_e E_e[−log d_e(x)]

The gradient at the log densities is small and computed by hand where possible
(`weighted_risks.penalty_slope`); the density takes it back to its parameters.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from wri.densities import Density
from wri.objectives.base import DrawnRows, Draws, Model, StepContext
from wri.objectives.hyperparameters import LogUniform, OneOf, Uniform, step_parameter
from wri.objectives.pairs import arrange, circle, rows_around
from wri.objectives.weighted_risks import Scaling, Weighting, penalty_slope
from wri.stacked import Adam, View, clip_norm

# with more environments pairs are compared in a circle; ratio weights have one reference
ALL_PAIRS = 8

DENSITY_CLIP = 10.0  # norm of a step's gradient


class DensityRule(NamedTuple):
    """Objective of the density steps."""

    density: Density
    seen: View
    weighting: Weighting
    scaling: Scaling

    def circle(self, environments: int, context: StepContext) -> Tensor | None:
        """Return the partner of each environment, `[R, E]`; None for all pairs or a reference."""
        if environments <= ALL_PAIRS or self.weighting == "ratio":
            return None
        return circle(context.random.permutations(environments))

    def slope(
        self,
        logs: Tensor,
        losses: Tensor,
        weight: Tensor | None,
        factor: Tensor,  # [R, 1, 1], λ_d
        own: Tensor,  # [R, E or 1, B or 1], weight of log d_e at a row of e
        after: Tensor | None,
    ) -> Tensor:
        """Return the gradient at the log densities, `[R, E, E, B]` or, in a circle, `[R, E, 3, B]`.

        `after` are the partners in the circle.
        """
        if self.density.penalised:
            with torch.set_grad_enabled(after is not None):
                logs = logs.detach().requires_grad_(after is not None)
                compared = arrange(logs, after)
            slope = penalty_slope(
                compared.pair(losses),
                compared.log_densities.detach(),
                self.weighting,
                self.scaling,
                None if weight is None else compared.pair(weight),
                factor if after is None else factor.unsqueeze(1) / after.shape[1],
                self.density.moderate,
            )
            if after is not None:
                (slope,) = torch.autograd.grad(compared.log_densities, logs, slope)
        else:
            slope = torch.zeros_like(logs)
        at_own = slope.diagonal(dim1=1, dim2=2).movedim(-1, 1) if after is None else slope[:, :, 0]
        at_own.sub_(own)
        return slope


class StandingPredictor:
    """Losses of fixed predictors at the rows of density steps.

    Of runs that draw more rows than they have, the losses at all their rows are found once.
    `steps` of the runs descend.
    """

    def __init__(
        self, model: Model, seen: View, runs: Sequence[int], steps: Sequence[int], draws: Draws
    ) -> None:
        self._model, self._seen, self._draws = model, seen, draws
        self._known: Tensor | None = None  # [m, T], losses at all rows of the first m runs
        drawn = draws.rows_per_step
        # runs of a stack have similar numbers of rows, so these are the first ones
        m = sum(n * drawn >= draws.n_learned(run) for run, n in zip(runs, steps, strict=True))
        if seen == "x" and m:
            pieces = [self._losses(rows, 0) for rows in draws.learned(runs[:m])]
            self._known = torch.cat(pieces, 1)

    @torch.no_grad()
    def _losses(self, rows: Tensor, start: int) -> Tensor:  # [n, …] -> [n, …]
        """Return the losses of the runs from `start` on at rows of theirs."""
        batch = self._draws.batch(rows)
        model = self._model._replace(flat=self._model.flat[start : start + len(rows)])
        return model.losses(batch.x, batch.y)

    @torch.no_grad()
    def at(self, drawn: DrawnRows) -> tuple[Callable[[int], Tensor], Tensor]:
        """Return what the densities see per step, `[n, E, B, …]`, and losses `[n, S, E, B]`."""
        n = len(drawn.rows)
        if self._seen != "x":
            batch = self._draws.batch(drawn.rows)
            views = self._model._replace(flat=self._model.flat[:n]).views(batch.x)
            seen = views.view(self._seen)
            return lambda step: seen[:, step], self._model.loss.per_example(views.outputs, batch.y)
        parts = []
        if self._known is not None:
            known = self._known[:n]
            indices = drawn.indices[: len(known)]
            parts.append(known.gather(1, indices.flatten(1)).view(indices.shape))
        done = sum(map(len, parts))
        if done < n:
            parts.append(self._losses(drawn.rows[done:], done))
        losses = parts[0] if len(parts) == 1 else torch.cat(parts)
        return lambda step: self._draws.features(drawn.rows[:, step]), losses


@torch.no_grad()
def density_steps(
    rule: DensityRule,
    model: Model,
    flat: Tensor,
    adam: Adam,
    runs: Sequence[int],
    context: StepContext,
    draws: Draws,
) -> None:
    """Change `flat` and `adam` by each run's steps, which descend; runs drop out after theirs."""
    steps = [int(n) for n in context.hyper["density_steps"].tolist()]
    predictor = StandingPredictor(model, rule.seen, runs, steps, draws)
    width = model.network.view_width(rule.seen)
    for drawn in draws.density_rows(runs, steps):
        n, count, environments, size = drawn.rows.shape
        hyper = {name: values[:n] for name, values in context.hyper.items()}
        here = StepContext(context.step, hyper, context.random.take(range(n)))
        factor = hyper["density_penalty_weight"].view(-1, 1, 1)
        own = hyper["density_log_weight"].view(-1, 1, 1) / environments
        own = own / size if drawn.weight is None else own * drawn.weight
        seen, losses = predictor.at(drawn)
        moving, past = flat[:n], adam.first(n)
        density = rule.density.differentiable(moving, environments, width, hyper)
        for step, rate in enumerate(past.next_rates(count, hyper["density_learning_rate"])):
            x, own_losses = seen(step), losses[:, step]
            after = rule.circle(environments, here)
            rows = x if after is None else rows_around(x, after)
            logs, pullback = density(rows, after is not None)
            slope = rule.slope(logs, own_losses, drawn.weight, factor, own, after)
            gradient = clip_norm(pullback(slope), DENSITY_CLIP)
            past.move(moving, gradient, rate, hyper["density_weight_decay"])


DENSITY_HYPERPARAMETERS = (
    step_parameter(
        "density_every",
        "ω, predictor steps between two density updates, from the annealing step on",
        domainbed=(1, OneOf((1, 2, 4, 8))),
        simulation=1,
        table=10,
        low=1,
        whole=True,
    ),
    step_parameter(
        "density_steps",
        "n_d, steps per density update",
        domainbed=(4, OneOf((4, 16, 32))),
        cmnist=(4, OneOf((1, 2, 4))),
        simulation=2,
        low=1,
        whole=True,
    ),
    step_parameter(
        "density_learning_rate",
        "step size of the densities' Adam",
        domainbed=(2e-2, LogUniform(1e-2, 5e-2)),
        cmnist=(4e-2, LogUniform(1e-2, 5e-2)),
        simulation=4e-2,
        low=1e-12,
    ),
    step_parameter(
        "density_weight_decay",
        "weight decay of the densities",
        domainbed=(1e-5, LogUniform(1e-6, 1e-2)),
        simulation=1e-5,
    ),
    step_parameter(
        "density_batch_size",
        "rows per environment and density step",
        domainbed=(256, OneOf((128, 256))),
        simulation=64,
        low=2,
        whole=True,
    ),
    step_parameter(
        "density_penalty_weight",
        "λ_d, weight of the squared gaps in the density steps",
        domainbed=(5.0, LogUniform(5.0, 5e1)),
        cmnist=(50.0, LogUniform(5.0, 5e1)),
        simulation=50.0,
    ),
    step_parameter(
        "density_log_weight",
        "β, weight of −log d on an environment's own rows",
        domainbed=(2.0, LogUniform(5e-2, 5.0)),
        cmnist=(0.1, LogUniform(5e-2, 1.0)),
        simulation=0.1,
    ),
    step_parameter(
        "min_density",
        "smallest value of the bounded density",
        domainbed=(0.05, Uniform(0.01, 0.2)),
        cmnist=(0.1, Uniform(0.01, 0.15)),
        simulation=0.1,
        low=1e-12,
    ),
    step_parameter(
        "max_density",
        "largest value of the bounded density",
        domainbed=(1.0, Uniform(0.4, 2.0)),
        cmnist=(1.0, Uniform(1.0, 2.0)),
        simulation=1.0,
        low=1e-12,
    ),
)
