"""The best model of a sweep: draw and step to train on all environments.

A table shows the choice of each held-out environment and trial. For use one specification is
needed:

    value of (model, step) = mean over held-out environments and trials of the selection's value

The best one is trained on all environments. A model must have run with every environment held out.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wri.errors import InputError
from wri.measures import MEASURES
from wri.sweep.outcomes import DatasetInfo, Outcome
from wri.sweep.selection import Candidate, candidates, selected_values
from wri.training import ModelSpec


@dataclass(frozen=True, kw_only=True)
class BestModel:
    """Best model of a sweep, to be trained on all environments.

    Attributes
    ----------
    dataset : str
        Name of the data set.
    algorithm : str
        Name of the algorithm.
    selection : str
        Selection method.
    measure : str
        Measure of the selection.
    draw : int
        Number of the hyper-parameter draw.
    step : int
        Step, counted from 0.
    value : float
        Mean of the selection's values.
    model : ModelSpec
        Specification that stops after the step.

    Examples
    --------
    >>> from wri.sweep import BestModel
    >>> from wri.training import ModelSpec
    >>> best = BestModel(
    ...     dataset="hospitals",
    ...     algorithm="erm",
    ...     selection="training-domain",
    ...     measure="accuracy",
    ...     draw=0,
    ...     step=9,
    ...     value=0.8,
    ...     model=ModelSpec.of("erm", steps=10),
    ... )
    >>> best.model.last_step
    10
    """

    dataset: str
    algorithm: str
    selection: str
    measure: str
    draw: int
    step: int
    value: float  # mean of the selection's values
    model: ModelSpec  # stops after the step


def best_model(
    outcomes: Iterable[Outcome], data: DatasetInfo, algorithm: str, selection: str, measure: str
) -> BestModel:
    """Find the model and step with the best mean over held-out environments and trials.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Runs of a store.
    data : DatasetInfo
        The data set.
    algorithm : str
        Algorithm whose draws are compared.
    selection : str
        Name in `SELECTIONS`.
    measure : str
        Name in `wri.measures`.

    Returns
    -------
    best : BestModel
        The best model.

    Raises
    ------
    InputError
        If no checkpoint can be chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.sweep import DatasetInfo, Outcome, best_model
    >>> from wri.training import ModelSpec
    >>> data = DatasetInfo(name="toy", environments=("a", "b"), constant={}, held_back=(0.2, 0.2))
    >>> splits = {f"env{e}_{part}": np.array([0.6, 0.7]) for e in (0, 1) for part in ("in", "out")}
    >>> runs = [
    ...     Outcome(
    ...         dataset="toy",
    ...         algorithm="erm",
    ...         test_envs=(e,),
    ...         hparams_seed=0,
    ...         trial_seed=0,
    ...         steps=np.array([0, 9]),
    ...         measures={"accuracy": splits},
    ...         model=ModelSpec.of("erm", steps=10),
    ...     )
    ...     for e in (0, 1)
    ... ]
    >>> best_model(runs, data, "erm", "training-domain", "accuracy").step
    9
    """
    runs = [run for run in outcomes if (run.dataset, run.algorithm) == (data.name, algorithm)]
    if not runs:
        raise InputError(f"there is no run of {algorithm} on {data.name}")
    held_out = sorted({run.test_envs[0] for run in runs if len(run.test_envs) == 1})
    tried = _find_tried_models(runs, data, algorithm, selection, measure, held_out)
    best: tuple[float, BestModel] | None = None
    for draw, found in tried:
        values = np.mean([selected_values(selection, each) for each in found], axis=0)  # [T]
        at = int(values.argmax())
        if np.isfinite(values[at]) and (best is None or values[at] > best[0]):
            run = found[0].run
            if run.model is None:
                raise InputError(f"the records of {algorithm} have no model specification")
            step, last = int(run.steps[at]), run.model.last_step
            chosen = BestModel(
                dataset=data.name,
                algorithm=algorithm,
                selection=selection,
                measure=measure,
                draw=draw,
                step=step,
                value=float(MEASURES[measure].sign * values[at]),
                model=run.model if step + 1 == last else replace(run.model, stop_after=step + 1),
            )
            best = values[at], chosen
    if best is None:
        raise InputError(f"{algorithm} on {data.name}: {selection} admits no checkpoint")
    return best[1]


def _find_tried_models(
    runs: Sequence[Outcome],
    data: DatasetInfo,
    algorithm: str,
    selection: str,
    measure: str,
    held_out: Sequence[int],
) -> list[tuple[int, list[Candidate]]]:
    """Return models that ran with every environment held out, in the order of their draws.

    Each with its draw, and a candidate per held-out environment and trial.
    """
    groups: dict[str, tuple[int, list[Candidate]]] = {}
    environments: dict[str, set[int]] = {}
    for trial in sorted({run.trial_seed for run in runs}):
        for k in held_out:
            found = candidates(selection, runs, data, algorithm, k, trial, measure)
            if isinstance(found, str):
                raise InputError(
                    f"{algorithm} on {data.name}, {data.environments[k]} held out, trial {trial}: "
                    f"{found}"
                )
            for draw, candidate in found.items():
                model = candidate.run.model
                key = json.dumps(model.differences(), sort_keys=True) if model else str(draw)
                groups.setdefault(key, (draw, []))[1].append(candidate)
                environments.setdefault(key, set()).add(k)
    whole = [group for key, group in groups.items() if environments[key] == set(held_out)]
    return sorted(whole, key=lambda group: group[0])
