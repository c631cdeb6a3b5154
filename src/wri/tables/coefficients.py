"""The part of a report that says which columns linear models use, and how much.

    change of the prediction per standard deviation of the column: coef · SD

ERM beside WRI: what WRI uses less is what it insures against.
"""

from typing import Any

import numpy as np

from wri.number_text import write_number
from wri.report.blocks import PageTable, Section
from wri.tables.candidates import WITHOUT
from wri.tables.fitting import TableFit, last_step, prepared_columns

MOST_COLUMNS = 15


def coefficient_section(fit: TableFit) -> Section:
    """Build the section; it is empty where the kept model is not linear or has several scores.

    Parameters
    ----------
    fit : TableFit
        What was fitted.

    Returns
    -------
    Section
    """
    title, effects = "Which columns the models use", {}
    labels = {each.name: each.label for each in fit.options.candidates()}
    for name, model in fit.models.items():
        found = _coefficients(last_step(model))
        if found is not None:
            x, names = prepared_columns(model, fit.data.X)
            label = labels[name] if name != WITHOUT else "ERM without flagged columns"
            effects[label] = dict(zip(names, found * x.std(0), strict=True))
    if not effects:
        return Section(title=title, blocks=[])
    every = dict.fromkeys(name for own in effects.values() for name in own)
    largest = {name: max(abs(own.get(name, 0.0)) for own in effects.values()) for name in every}
    order = sorted(every, key=lambda name: -largest[name])[:MOST_COLUMNS]
    unit = f"log-odds of {fit.estimator.classes_[-1]}" if fit.classes else fit.target
    rest = len(every) - len(order)
    return Section(
        title=title,
        blocks=[
            f"Change of the prediction ({unit}) when a column rises by its standard deviation and "
            "the others stay.",
            PageTable(
                caption="Effect per standard deviation, largest first",
                columns=["column", *effects],
                rows=[
                    [
                        name,
                        *(
                            write_number(own[name], sign=True) if name in own else "–"
                            for own in effects.values()
                        ),
                    ]
                    for name in order
                ],
                note=f"{rest} columns with smaller effects are not shown." if rest else "",
            ),
        ],
    )


def _coefficients(estimator: Any) -> np.ndarray | None:  # [D]
    """Read the coefficients of one score; None where there are none, or several scores."""
    found = getattr(estimator, "coef_", None)
    if found is None:
        return None
    found = np.atleast_2d(found)
    return found[0] if len(found) == 1 else None
