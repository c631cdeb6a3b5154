"""Several estimators on the same rows.

Estimators that differ in objective or λ read, divide and standardise the same rows, weigh them
alike, and λ of one objective lie on one path. Fitted together they share this work; each becomes
what it would be if it were fitted alone without `site_spread`.
"""

from collections.abc import Sequence
from typing import Any

from wri.estimators.evidence import without_held_out
from wri.estimators.network import Estimator
from wri.progress import silent


def fit_together(
    models: Sequence[Estimator], X: Any, y: Any, groups: Any, judges: Sequence[Estimator]
) -> None:
    """Fit estimators that differ in objective, λ and hidden layers; `judges` also fit evidence."""
    first = models[0]
    problem = first._read_problem(X, y, groups, None, first._problem)
    learned = {name: value for name, value in vars(first).items() if name not in first.get_params()}
    chosen = []
    for model in models:
        for name, value in learned.items():
            setattr(model, name, value)
        model._check_parameters()
        chosen.append(model._choose(problem))
    every = range(problem.n_environments)
    runs = [problem.run(each.spec, every) for each in chosen]
    records = problem.train(runs, max(each.spec.last_step for each in chosen), silent)
    for model, run, record in zip(models, runs, records, strict=True):
        model._learn(problem, run, record)
        model.penalty_path_, model.left_out_ = None, None
    for model, without in zip(judges, without_held_out(judges, problem), strict=True):
        model._take_evidence(problem, without)
