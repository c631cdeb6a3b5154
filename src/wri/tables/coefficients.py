"""The part of a report that says which columns linear models use, and how much.

    change of the prediction per standard deviation of the column: coef · SD

ERM beside WRI: what WRI uses less is what it insures against.
"""

from typing import Any

import numpy as np

from wri.number_text import write_number
from wri.report.blocks import PageTable, Section
from wri.tables.choosing import label_of
from wri.tables.fitting import TableFit, last_step

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
    title = "Which columns the models use"
    effects = {}
    x, names = fit.prepared()
    spread = x.std(0)
    for name, model in fit.models.items():
        found = _coefficients(last_step(model))
        if found is not None:
            effects[label_of(name)] = found * spread
    if label_of(fit.kept.algorithm) not in effects:
        return Section(title=title, blocks=[])
    largest = np.max([np.abs(effect) for effect in effects.values()], 0)
    order = np.argsort(-largest, kind="stable")[:MOST_COLUMNS]
    unit = f"log-odds of {fit.estimator.classes_[-1]}" if fit.classes else "target"
    rest = len(names) - len(order)
    return Section(
        title=title,
        blocks=[
            f"Change of the prediction ({unit}) when a column rises by its standard deviation and "
            "the others stay. Where WRI uses a column less than ERM, its relation to the target "
            "looked different between sites; small differences may be chance.",
            PageTable(
                caption="Effect per standard deviation, largest first",
                columns=["column", *effects],
                rows=[
                    [names[k], *(write_number(own[k], sign=True) for own in effects.values())]
                    for k in order
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
