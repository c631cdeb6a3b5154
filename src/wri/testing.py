"""Checks of the contracts of objectives and densities, for your own and for those of the package.

    from wri.testing import check_objective
    check_objective(MyObjective())

A check that fails raises `AssertionError` with the name of the check and what to change.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from wri.densities import Density
from wri.errors import InputError
from wri.objectives import Objective, make_objective
from wri.stacked import CROSS_ENTROPY, LOGISTIC, LOSSES, SQUARED, Loss
from wri.training import Bank, ModelSpec, Record, Run, train_stack

TOLERANCE = 1e-8
SETTINGS: Mapping[str, Callable[[int], float]] = {
    "learning_rate": lambda k: 0.01 * (1 + k),
    "weight_decay": lambda k: 1e-3 * k,
    "final_rate": lambda k: 1 - 0.15 * k,
    "batch_size": (8, 16, 40, 64, 5, 100, 33).__getitem__,
    "clip_norm": (np.inf, 1.0, 0.5, np.inf, 2.0, np.inf, 0.1).__getitem__,
    "anneal_steps": (0, 3, 5, 7, 1, 0, 12).__getitem__,
    "ramp_steps": (0, 4, 0, 10, 0, 1, 2).__getitem__,
    "penalty_weight": (0.1, 1, 10, 3, 0.5, 2, 7).__getitem__,
    "eta": lambda k: 0.01 * (1 + k),
    "alpha": lambda k: 0.2 + 0.3 * k,
    "beta": lambda k: 0.5 + 0.1 * k,
    "meta_test": lambda k: 1 + k % 2,
    "density_every": (1, 2, 4, 1, 2, 8, 3).__getitem__,
    "density_steps": (4, 1, 2, 6, 3, 2, 5).__getitem__,
    "density_batch_size": (16, 8, 30, 64, 10, 16, 50).__getitem__,
    "density_learning_rate": lambda k: 0.01 * (1 + k),
    "density_penalty_weight": lambda k: 5.0 + k,
    "density_log_weight": lambda k: 0.1 + 0.1 * k,
    "min_density": lambda k: 0.05 + 0.01 * k,
    "max_density": lambda k: 1.0 + 0.1 * k,
}
"""Hyper-parameters of run k of seven; others are drawn by their distributions."""


def make_bank(loss: Loss = CROSS_ENTROPY, rows: int = 200, width: int = 6, seed: int = 0) -> Bank:
    """Make rows whose targets depend on the features, for any of the losses."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, width))
    score = features @ random.normal(size=(width, 3)) + random.normal(size=(rows, 3))
    if loss is CROSS_ENTROPY:
        return Bank(features, score.argmax(1))
    if loss is LOGISTIC:
        return Bank(features, (score[:, 0] > 0).astype(int), loss=LOGISTIC)
    return Bank(features, score[:, 0], loss=SQUARED)


def seven_runs(objective: Objective, loss: Loss = CROSS_ENTROPY) -> list[Run]:
    """Make runs that differ in rows, seeds and hyper-parameters, with unequal environments."""
    banks = [make_bank(loss, seed=s) for s in (0, 1)]
    count = max(3, objective.least_environments)
    runs = []
    for k in range(7):
        rows = np.random.default_rng(k).permutation(200)
        train = [rows[:50], rows[50 : 75 + k], rows[90:130]]
        train += [rows[130 - 10 * e : 138 - 10 * e] for e in range(count - 3)]
        spec = ModelSpec.of(objective, hidden=(5, 4), hyper=_hyper(objective, k))
        evaluate = {"a": rows[130:160], "b": rows[160 : 170 + k]}
        runs.append(Run(spec, banks[k % 2], train, seed=10 + k, evaluate=evaluate))
    return runs


def _hyper(objective: Objective, k: int) -> dict[str, float]:
    found, random = {}, np.random.RandomState(k)
    for parameter in objective.hyperparameters():
        setting = parameter.setting("domainbed")
        if parameter.name in SETTINGS:
            found[parameter.name] = SETTINGS[parameter.name](k)
        elif setting.distribution is not None and not callable(setting.default):
            found[parameter.name] = setting.distribution(random, setting.default)
    return found


def _train(runs: Sequence[Run], steps: int = 20) -> list[Record]:
    specs = [replace(run.spec, steps=steps, precision="double") for run in runs]
    runs = [replace(run, spec=spec) for run, spec in zip(runs, specs, strict=True)]
    return train_stack(runs, checkpoint_every=5, measures=("loss",))


def _largest_difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(np.asarray(first) - np.asarray(second)).max(initial=0.0))


def _options_are_a_value(objective: Objective) -> None:
    assert type(objective).name, "the class needs a name"
    try:
        copied = pickle.loads(pickle.dumps(objective))
    except (pickle.PicklingError, AttributeError, TypeError):
        return  # defined in a function, or it holds one: fine within one process
    assert copied == objective, (
        "a pickled copy differs from the objective; make the class a frozen dataclass whose fields "
        "can be compared"
    )
    assert hash(copied) == hash(objective), "its hash changes; use fields that can be hashed"


def _stack_equals_alone(objective: Objective) -> None:
    runs = seven_runs(objective)
    for k, (run, record) in enumerate(zip(runs, _train(runs), strict=True)):
        assert record.diverged_at is None, (
            f"run {k} diverges at step {record.diverged_at}; a square root or a quotient at zero "
            "may be the cause"
        )
        (alone,) = _train([run])
        apart = _largest_difference(record.parameters, alone.parameters)
        for split in ("a", "b"):
            ours, theirs = record.measures["loss"][split], alone.measures["loss"][split]
            apart = max(apart, _largest_difference(ours, theirs))
        if record.state is not None:
            apart = max(apart, _largest_difference(record.state, alone.state))
        assert apart <= TOLERANCE, (
            f"run {k} of seven differs from the same run alone by {apart:.1e}; reduce over the "
            "last axes only, average rows with batch.mean (short environments are padded), take "
            "hyper-parameters from context.hyper and draws from context.random"
        )


def _without_penalty_is_erm(objective: Objective, off: Mapping[str, float] | None = None) -> None:
    names = [parameter.name for parameter in objective.hyperparameters()]
    if off is None:
        if "penalty_weight" not in names:
            return
        off = {name: 0.0 for name in names if name.endswith(("penalty_weight", "anneal_steps"))}
    bank, common = make_bank(), {"batch_size": 16, "learning_rate": 0.02}
    count = max(3, objective.least_environments)
    train = [np.arange(180 // count * e, 180 // count * e + 40 - 5 * (e % 2)) for e in range(count)]
    test = {"a": np.arange(180, 200), "b": np.arange(180, 190)}

    def make(kind: Objective, hyper: Mapping[str, float], seed: int) -> Run:
        spec = ModelSpec.of(kind, hyper={**common, **hyper})
        return Run(spec, bank, train, seed=seed, evaluate=test)

    beside = make(objective, {**off, **dict.fromkeys(off, 1)}, 4)  # its penalty is in force
    ours, _ = _train([make(objective, off, 3), beside])
    (erm,) = _train([make(make_objective("erm"), {}, 3)])
    apart = _largest_difference(ours.parameters, erm.parameters)
    settings = ", ".join(f"{name} = {value:g}" for name, value in off.items())
    assert apart <= 1e-12, (
        f"with {settings} the parameters differ from those of ERM by {apart:.1e} after 20 steps; "
        "the loss should be batch.mean(losses).mean(-1) plus λ times a penalty"
    )


def _lowers_losses(objective: Objective) -> None:
    for name, loss in LOSSES.items():
        runs = [_with_little_penalty(run) for run in seven_runs(objective, loss)[:2]]
        for record in _train(runs, steps=60):
            found = record.measures["loss"]["a"]
            assert np.isfinite(found).all(), f"training with the loss {name!r} diverges"
            assert found[-1] < found[0], f"60 steps do not lower the loss {name!r} on new rows"


def _with_little_penalty(run: Run) -> Run:
    """Return a run whose penalty does not outweigh the risk."""
    if "penalty_weight" not in run.hyper:
        return run
    return replace(run, spec=replace(run.spec, hyper={**run.spec.hyper, "penalty_weight": 0.01}))


OBJECTIVE_CHECKS: Mapping[str, Callable[[Objective], None]] = {
    "options are a value": _options_are_a_value,
    "a run in a stack equals the run alone": _stack_equals_alone,
    "without penalty it is ERM": _without_penalty_is_erm,
    "training lowers every loss": _lowers_losses,
}


def check_objective(objective: Objective, *, off: Mapping[str, float] | None = None) -> None:
    """Check that an objective follows the contract.

    Parameters
    ----------
    objective : Objective
        Objective with its options, such as `MyObjective()`.
    off : mapping of str to float or None, default=None
        Hyper-parameters with which it is ERM. None: λ = 0, if there is a `penalty_weight`.

    Raises
    ------
    AssertionError
        If a check fails. The message has the name of the check, the reason and what to change.

    Examples
    --------
    >>> from wri.objectives import VREx
    >>> from wri.testing import check_objective
    >>> check_objective(VREx())
    """
    if not isinstance(objective, Objective):
        raise InputError(f"check_objective takes an objective, not {objective!r:.60}")
    erm = {"without penalty it is ERM": partial(_without_penalty_is_erm, off=off)}
    _check(objective, {**OBJECTIVE_CHECKS, **erm})


def _check(thing: object, checks: Mapping[str, Callable[..., None]]) -> None:
    """Run checks; put the names of the class and of the check before what they say."""
    for name, check in checks.items():
        try:
            check(thing)
        except Exception as error:  # whatever a user's class raises
            told = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            raise AssertionError(f"{type(thing).__name__} fails {name!r}: {told}{error}") from error


def fitted_parameters(density: Density) -> Tensor:  # [2, P]
    """Return two runs' parameters away from their start, for three environments of four columns."""
    if density.learning == "refit":
        random = np.random.default_rng(0)
        rows = [random.normal(e, 1 + e, size=(60, 4)) for e in range(3)]
        if density.needs_targets:
            fitted = density.fit_with_targets(rows, [np.arange(60) % 3] * 3)
        else:
            fitted = density.fit(rows)
        return torch.tensor(np.stack([fitted, fitted]))
    start = torch.tensor(density.initial([0, 1], 3, 4))
    noise = torch.randn(start.shape, dtype=start.dtype, generator=torch.manual_seed(0))
    return start + 0.3 * noise


DENSITY_HYPER = {
    "min_density": torch.tensor([0.1, 0.2], dtype=torch.float64),
    "max_density": torch.tensor([1.0, 2.0], dtype=torch.float64),
}


def _points(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def _every_density_everywhere(density: Density) -> None:
    flat, x = fitted_parameters(density), _points(2, 3, 5, 4)
    everywhere = density.log_density(flat, x, 3, DENSITY_HYPER)
    assert everywhere.shape == (2, 3, 3, 5), (
        f"log_density of points [2, 3, 5, 4] has the shape {tuple(everywhere.shape)}, not "
        "(2, 3, 3, 5): run, whose density, then the points"
    )
    assert everywhere.isfinite().all(), "log densities at ordinary points are not finite"
    own = density.log_density_own(flat, x, DENSITY_HYPER)
    expected = everywhere.diagonal(dim1=1, dim2=2).movedim(-1, 1)
    assert own.shape == expected.shape, f"log_density_own has the shape {tuple(own.shape)}"
    apart = float((own - expected).abs().max())
    assert apart < TOLERANCE, f"log_density_own differs from log_density by {apart:.1e}"


def _runs_are_independent(density: Density) -> None:
    flat, x = fitted_parameters(density), _points(2, 5, 4)
    both = density.log_density(flat, x, 3, DENSITY_HYPER)
    second = {name: values[1:] for name, values in DENSITY_HYPER.items()}
    alone = density.log_density(flat[1:], x[1:], 3, second)
    apart = float((alone - both[1:]).abs().max())
    assert apart < TOLERANCE, f"the second of two runs differs from the same run by {apart:.1e}"


def _gradients_are_automatic(density: Density) -> None:
    if density.learning != "steps":
        return
    flat, x = fitted_parameters(density), _points(2, 3, 5, 4)
    with torch.no_grad():
        logs, pullback = density.differentiable(flat, 3, 4, DENSITY_HYPER)(x, False)
        gradient = _points(*logs.shape)
        found = pullback(gradient)
    moving = flat.clone().requires_grad_()
    expected = density.log_density(moving, x, 3, DENSITY_HYPER)
    (automatic,) = torch.autograd.grad(expected, moving, gradient)
    assert automatic.abs().max() > 0, "log densities do not depend on the parameters"
    apart = float((found - automatic).abs().max())
    assert apart < TOLERANCE, f"differentiable differs from automatic gradients by {apart:.1e}"


def _start_has_the_shape_of_a_fit(density: Density) -> None:
    start = density.initial([0, 1], 3, 4)
    assert start.ndim == 2, f"initial returns {start.ndim} axes, not one row per run, [R, P]"
    assert len(start) == 2, f"initial returns {len(start)} rows for two seeds"
    again = density.initial([1], 3, 4)
    assert np.array_equal(again[0], start[1]), "the start of a run depends on the runs beside it"
    if density.learning == "refit":
        fitted = fitted_parameters(density)
        assert fitted.shape == start.shape, (
            f"initial has {start.shape[1]} parameters, and fit returns {fitted.shape[1]}"
        )


DENSITY_CHECKS: Mapping[str, Callable[[Density], None]] = {
    "every density at every point and at its own": _every_density_everywhere,
    "runs do not see each other": _runs_are_independent,
    "gradients are those of automatic differentiation": _gradients_are_automatic,
    "the start has the shape of a fit": _start_has_the_shape_of_a_fit,
}


def check_density(density: Density) -> None:
    """Check that a density of three environments with four columns follows the contract.

    Parameters
    ----------
    density : Density
        Density with its options, such as `MyDensity()`.

    Raises
    ------
    AssertionError
        If a check fails. The message has the name of the check and the reason.

    Examples
    --------
    >>> from wri.densities import Gaussian
    >>> from wri.testing import check_density
    >>> check_density(Gaussian())
    """
    if not isinstance(density, Density):
        raise InputError(f"check_density takes a density, not {density!r:.60}")
    _check(density, DENSITY_CHECKS)


__all__ = ["check_density", "check_objective"]
