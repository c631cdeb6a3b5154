"""Weighted risk invariance by alternating minimisation (Algorithm 1; Wong et al., 2024).

Step of the predictor, with fixed densities:

    mean_e R_e + λ · mean over pairs of (R_ij − R_ji)²,   R_ij = E_i[α_ij(x) · l(x, y)]

and from the annealing step on, every ω steps, n_d steps of the densities, with a fixed predictor:

    λ_d · mean over pairs of (R_ij − R_ji)² + β · mean_e E_e[−log d_e(x)]

Both squared gaps are scaled; `weighted_risks` defines weights and scalings. There is no penalty
before the first update of the densities. The paper prints sums, its code has means; here are means.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from wri.densities import Bounded, Density, FittedClassifier, LabelAwareClassifier, LabelLogistic
from wri.densities.base import HyperValues
from wri.errors import InputError, check_option
from wri.objectives.base import (
    Batch,
    Cached,
    Draws,
    Model,
    Objective,
    RowForm,
    SideSteps,
    Start,
    StepContext,
    Stepped,
    TrainingRows,
    penalised,
    scheduled,
)
from wri.objectives.density_steps import (
    ALL_PAIRS,
    DENSITY_HYPERPARAMETERS,
    DensityRule,
    density_steps,
)
from wri.objectives.hyperparameters import LogUniform, OneOf, annealing, penalty_weight
from wri.objectives.pairs import (
    PrecomputedDensities,
    compare,
    fixed_weight_penalty,
    mean_over_circle,
    overlap_weights,
)
from wri.objectives.weighted_risks import (
    Form,
    Scaling,
    Weighting,
    gap_penalty,
    is_negligible,
    largest_elsewhere,
    penalty_of_losses,
    weighted_gaps,
    wri_penalty,
)
from wri.stacked import Adam, View

TABLE_WITH_HIDDEN: Mapping[str, Any] = {
    "density": FittedClassifier(steps=50, weight_decay=1e-2),
    "density_on": "phi",
}
RUNNING = 0.9  # share of the past in the running mean of d̄


@dataclass(frozen=True, kw_only=True)
class State:
    """State of the densities of all runs."""

    flat: Tensor  # [R, P], the densities' parameters
    adam: Adam
    fitted: Tensor  # [R] bool: whether a run's densities have been fitted
    precomputed: PrecomputedDensities | None  # where the densities are fitted once
    mean_weight: Tensor | None  # [R, E, E], running mean of d̄
    unchecked: Tensor | None  # [R] bool: runs whose first penalty is still to come, if any
    frozen: Callable[[Tensor], Tensor] | None = None  # the penalty of losses, if weights stay


@dataclass(frozen=True)
class WRI(Objective):
    """Weighted risk invariance by alternating minimisation (Algorithm 1).

    Parameters
    ----------
    weighting : {"density", "overlap", "tilted", "ratio", "uniform", "published"}, default="density"
        Weights of the predictor's penalty; see `weighted_risks`.
    scaling : {"none", "product", "loss", "relative", "risk"}, default="loss"
        Scaling of the predictor's penalty; see `weighted_risks`. With density weights and the
        scaling none, product or loss the penalty depends on the unit of the densities; a penalty
        too small to have an effect gives a warning.
    density : Density, default=Bounded()
        Model of the densities; by default the paper's bounded network.
    density_on : {"x", "phi", "outputs"}, default="x"
        What the densities see: the inputs, as in the paper's experiments, the representation Φ(x),
        or the predictor's outputs. No gradient flows through them in the predictor's steps.
    density_scaling : {"none", "product", "loss", "relative", "risk"}, default="relative"
        Scaling of the penalty in the density steps.
    running_mean : bool, default=False
        Whether to scale with a running mean of d̄ over steps instead of the batch's (the paper's
        multi-dimensional simulation).
    early_weight : float, default=0.0
        λ before the annealing step.
    normalised : bool, default=False
        Whether to divide each weighted risk by the mean weight of its rows.
    form : {"square", "halves"}, default="square"
        Square of the gap, or product of the gaps of two half-batches.
    divided : bool, default=False
        Whether to divide the predictor's loss by max(1, λ).
    overlap_power : float, default=0.0
        Power of the overlap by which pairs of environments count in the predictor's penalty; with 0
        all pairs count the same.

    References
    ----------
    G. Wong, J. Gleason, R. Chellappa, Y. Wald and A. Liu, "Weighted Risk Invariance: Domain
    Generalization under Invariant Feature Shift", TMLR, 2024.
    """

    weighting: Weighting = "density"
    scaling: Scaling = "loss"
    _: KW_ONLY
    density: Density = field(default_factory=Bounded)
    density_on: View = "x"
    density_scaling: Scaling = "relative"
    running_mean: bool = False
    early_weight: float = 0.0
    normalised: bool = False
    form: Form = "square"
    divided: bool = False
    overlap_power: float = 0.0
    name = "wri"
    penalises_losses = True
    tree_penalty_weight = 1.0
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "published": {"weighting": "published"},
        "coloured": {
            "weighting": "overlap",
            "scaling": "risk",
            "density": LabelAwareClassifier(),
            "normalised": True,
            "form": "halves",
            "divided": True,
        },
        "table": {
            "weighting": "overlap",
            "scaling": "product",
            "density": LabelLogistic(),
            "normalised": True,
            "overlap_power": 2.0,
        },
    }
    own_hyperparameters = (
        penalty_weight(
            "λ, weight of the squared gaps in the predictor's steps",
            domainbed=(1.0, LogUniform(1e-1, 5e1)),
            cmnist=(500.0, LogUniform(1e-1, 1e3)),
            simulation=10.0,
            coloured=(30.0, LogUniform(3.0, 3e2)),
            table=(1.6, LogUniform(0.03, 3e2)),
        ),
        *annealing((0, OneOf((0, 10))), (0, OneOf((0, 10)))),
        *DENSITY_HYPERPARAMETERS,
    )

    @classmethod
    def preset_options(cls, preset: str, hidden: tuple[int, ...] | None) -> Mapping[str, Any]:
        options = super().preset_options(preset, hidden)
        # Φ of an invariant predictor holds nothing spurious, so neither do weights of Φ
        return {**options, **TABLE_WITH_HIDDEN} if preset == "table" and hidden else options

    def __post_init__(self) -> None:
        check_option("weighting", self.weighting, get_args(Weighting))
        check_option("scaling", self.scaling, get_args(Scaling))
        check_option("density_scaling", self.density_scaling, get_args(Scaling))
        check_option("form", self.form, get_args(Form))
        check_option("density_on", self.density_on, get_args(View))
        if not 0 <= self.overlap_power < inf:
            raise InputError(f"overlap_power must be 0 or more, not {self.overlap_power!r}")
        averaged = self.scaling in ("product", "relative") and self.form == "square"
        if self.running_mean and (self.overlap_power or not averaged):
            raise InputError(
                "running_mean needs scaling='product' or 'relative', form='square' and "
                "overlap_power=0; only these have one mean weight per pair"
            )
        if self.weighting in ("density", "published") and not self.density.comparable_over_x:
            raise InputError(
                f"{self.weighting} weighting compares densities at different points, which "
                f"{type(self.density).__name__} cannot give; use weighting='overlap', 'tilted' or "
                "'ratio'"
            )

    def initial(self, start: Start) -> State:
        runs, environments = len(start.seeds), start.environments
        network = start.network
        width = network.view_width(self.density_on)
        rows = self.density.initial(start.seeds, environments, width)
        splits = [start.draws.split(run) for run in range(runs)]
        if self._fitted_once:
            one_run = {split: run for run, split in enumerate(splits)}
            fits = {split: self._fit_once(run, start.draws) for split, run in one_run.items()}
            rows = np.stack([fits[split] for split in splits])
        flat, precomputed = torch.as_tensor(rows, dtype=start.dtype, device=start.device), None
        if self._fitted_once:
            precomputed = PrecomputedDensities.of(
                splits,
                environments,
                start.draws,
                lambda run, x: self.density.log_density(flat[run : run + 1], x, environments, {}),
            )
        mean_weight = None
        if self.running_mean:
            if environments > ALL_PAIRS:
                raise InputError(
                    f"running_mean needs all pairs of environments and so at most {ALL_PAIRS} "
                    f"of them, not {environments}"
                )
            mean_weight = flat.new_full((runs, environments, environments), torch.nan)
        fitted = torch.full((runs,), not self._learns, device=start.device)
        unchecked = torch.ones_like(fitted) if self._depends_on_unit else None
        return State(
            flat=flat,
            adam=Adam.initial(flat),
            fitted=fitted,
            precomputed=precomputed,
            mean_weight=mean_weight,
            unchecked=unchecked,
        )

    @property
    def _fitted_once(self) -> bool:
        """Whether the densities are fitted once, before the first step."""
        on_x = self.density.learning == "refit" and self.density_on == "x"
        return on_x and self.weighting != "uniform"

    @property
    def _learns(self) -> bool:
        """Whether the densities change while the predictor trains."""
        fixed = self._fitted_once or self.density.learning == "fixed"
        return not fixed and self.weighting != "uniform"

    @property
    def _depends_on_unit(self) -> bool:
        """Whether the penalty changes with the unit of the densities."""
        free = self.normalised or (self.scaling in ("relative", "risk") and not self.running_mean)
        return self.weighting in ("density", "published") and not free

    def check(self, values: Mapping[str, float]) -> None:
        if values["min_density"] >= values["max_density"]:
            raise InputError(
                f"hyper-parameter min_density = {values['min_density']:g} must lie below "
                f"max_density = {values['max_density']:g}"
            )

    @property
    def overhead(self) -> float:
        return 2.0

    def side_steps(self, hyper: Mapping[str, float]) -> SideSteps:
        if not (self._learns and self.density.learning == "steps"):
            return super().side_steps(hyper)
        names = "density_batch_size", "density_steps", "density_every"
        return SideSteps(*(int(hyper[name]) for name in names))

    @property
    def full_batch(self) -> Literal["whole", "resampled"]:
        return "resampled" if self.form == "halves" else "whole"

    def state_of(self, state: State, run: int) -> np.ndarray:
        """Return the parameters of the densities, `[1, P]`."""
        return state.flat[run : run + 1].cpu().numpy()

    def weighted_columns(self, kept: Any, width: int) -> np.ndarray:
        if kept is None or self.weighting == "uniform":
            return np.ones(width, bool)
        return self.density.used_columns(np.ravel(kept), width)

    @property
    def is_smooth(self) -> bool:
        fixed = self._fitted_once or self.density.learning == "fixed"
        return self.form == "square" and not self.running_mean and fixed

    def row_form(self, rows: TrainingRows, cached: Cached) -> RowForm | None:
        known = self.weighting, self.scaling, self.normalised
        if known != ("overlap", "product", True) or not self._fitted_once:
            return None  # automatic differentiation
        count = len(rows.x)
        fitted = cached(self.density, lambda: self._fit_rows(rows))[None]
        weigh = partial(overlap_weights, density=self.density, fitted=fitted, count=count)
        penalty = partial(fixed_weight_penalty, overlap_power=self.overlap_power)
        return RowForm(penalty, weigh, state=fitted)

    def _fit_rows(self, rows: TrainingRows) -> np.ndarray:  # [P]
        """Fit a density that is fitted once; one that takes no weights sees rows repeated."""
        if self.density.takes_weights:
            return self.density.fit_with_targets(rows.x, rows.y, rows.weight)
        return self._fit(rows)

    def freeze_weights(self, batch: Batch, state: State) -> State:
        known, indices = state.precomputed, batch.indices
        fixed = self.form == "square" and not (self.running_mean or self._depends_on_unit)
        if known is None or indices is None or not fixed or batch.y.shape[1] > ALL_PAIRS:
            return state
        logs = known.compare(indices, None).log_densities
        how = self.weighting, self.scaling, batch.weight, self.normalised, self.overlap_power
        return replace(state, frozen=penalty_of_losses(logs, *how))

    def loss(self, model: Model, batch: Batch, state: State, context: StepContext) -> Stepped:
        known = None if batch.indices is None else state.precomputed
        if known is None:
            views = model.views(batch.x)  # [R, E, B, …] each
            seen = views.view(self.density_on).detach()
            losses = model.loss.per_example(views.outputs, batch.y)  # [R, E, B]
        else:
            losses = model.losses(batch.x, batch.y)
        risk = batch.mean(losses).mean(-1)
        # drawn at every step, so that later draws do not depend on whether it is needed
        after = self._density_rule.circle(losses.shape[1], context)
        weight = torch.where(state.fitted, scheduled(context, self.early_weight), 0.0)
        if not weight.any():
            return risk, state
        if state.frozen is not None:
            return penalised(risk, weight, state.frozen(losses), self.divided), state
        if known is None or batch.indices is None:
            with torch.no_grad():
                compared = compare(self.density, state.flat, seen, after, context.hyper)
        else:
            compared = known.compare(batch.indices, after)
        logs, in_force = compared.log_densities, weight != 0
        if not in_force.all():  # no gradient, and no NaN, from runs without a penalty
            losses = torch.where(in_force[:, None, None], losses, 1.0)
            logs = torch.where(in_force.view(-1, *[1] * (logs.dim() - 1)), logs, 0.0)
        row_weight = None if batch.weight is None else compared.pair(batch.weight)
        if state.unchecked is not None:
            self._warn_of_no_effect(logs, row_weight, state.unchecked & in_force, context.hyper)
            unchecked = state.unchecked & ~in_force
            state = replace(state, unchecked=unchecked if unchecked.any() else None)
        if state.mean_weight is None:
            penalty = wri_penalty(
                compared.pair(losses),
                logs,
                self.weighting,
                self.scaling,
                row_weight,
                self.normalised,
                self.form,
                self.overlap_power,
            )
        else:
            gaps = weighted_gaps(losses, logs, self.weighting, row_weight, self.normalised)
            mean = state.mean_weight.lerp(gaps.mean_weight, 1 - RUNNING)
            mean = torch.where(state.mean_weight.isnan(), gaps.mean_weight, mean)
            gaps = gaps._replace(mean_weight=mean)
            penalty = gap_penalty([gaps], self.scaling, self.weighting == "ratio")
            kept = torch.where(in_force[:, None, None], mean, state.mean_weight)
            state = replace(state, mean_weight=kept)
        return penalised(risk, weight, mean_over_circle(penalty), self.divided), state

    def _warn_of_no_effect(
        self, logs: Tensor, row_weight: Tensor | None, runs: Tensor, hyper: HyperValues
    ) -> None:
        """Warn of `runs` whose first penalty is too small to matter: they would be ERM."""
        largest = largest_elsewhere(logs, row_weight).flatten(1).amax(1)  # [R], of all pairs
        small = is_negligible(largest, self.scaling, hyper["penalty_weight"])
        small &= runs & largest.isfinite()  # without any overlap the unit does not matter
        if small.any():
            warnings.warn(
                f"densities are at most e^{float(largest[small].max()):.0f}, so WRI's penalty with "
                f"scaling={self.scaling!r} has no effect; use scaling='risk', or normalised=True",
                stacklevel=2,
            )

    def after_step(self, model: Model, state: State, context: StepContext, draws: Draws) -> State:
        if not self._learns:
            return state
        since = context.step - context.hyper["anneal_steps"]
        due = (since >= 0) & (since % context.hyper["density_every"] == 0)
        runs = due.nonzero()[:, 0]
        if len(runs) == 0:
            return state
        if self.density.learning == "refit":
            self._refit(model, state, runs, draws)
        else:
            self._density_steps(model, state, runs, context, draws)
        return replace(state, fitted=state.fitted | due)

    @property
    def _density_rule(self) -> DensityRule:
        return DensityRule(self.density, self.density_on, self.weighting, self.density_scaling)

    def _density_steps(
        self, model: Model, state: State, runs: Tensor, context: StepContext, draws: Draws
    ) -> None:
        """Make n_d steps of the densities of `runs`."""
        steps = context.hyper["density_steps"]
        runs = runs[steps[runs].argsort(descending=True, stable=True)]
        numbers = runs.tolist()
        flat, adam = state.flat[runs], state.adam.take(runs)
        here = StepContext(
            context.step,
            {name: values[runs] for name, values in context.hyper.items()},
            context.random.take(numbers),
        )
        still = model._replace(flat=model.flat.detach()[runs])
        density_steps(self._density_rule, still, flat, adam, numbers, here, draws)
        state.flat[runs] = flat
        state.adam.put(runs, adam)

    def _refit(self, model: Model, state: State, runs: Tensor, draws: Draws) -> None:
        """Fit the densities of `runs` on their whole environments.

        If Φ is not finite there is nothing to fit: the next loss of the run is NaN and marks it.
        """
        for run in runs.tolist():
            alone = model._replace(flat=model.flat.detach()[run : run + 1])
            rows = draws.training_rows(run)
            views = alone.views(state.flat.new_tensor(rows.all_x)[None])
            seen = views.view(self.density_on)[0].cpu().numpy()
            state.flat[run] = torch.nan
            if not np.isfinite(seen).all():
                continue
            try:
                fitted = self._fit(rows._replace(all_x=seen))
                state.flat[run] = torch.as_tensor(fitted).to(state.flat)
            except InputError:  # wrong input of the user
                raise
            except ValueError:  # scikit-learn's error for singular covariances
                continue

    def _fit_once(self, run: int, draws: Draws) -> np.ndarray:  # [P]
        return draws.cached(run, self.density, lambda: self._fit(draws.training_rows(run)))

    def _fit(self, rows: TrainingRows) -> np.ndarray:  # [P]
        """Fit the density of one run on its whole environments, with rows repeated by weight."""
        rows = rows.repeated()
        if self.density.needs_targets:
            return self.density.fit_with_targets(rows.x, rows.y)
        return self.density.fit(rows.x)
