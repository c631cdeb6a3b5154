"""
What the insurance buys
=======================

A penalty is insurance against relations that change from site to site. It costs something at sites
like those seen, and pays where a relation breaks or reverses. ``stress_test`` measures both on your
own rows.
"""

# %%
# Break and reverse the marker
# ----------------------------
# Models are fitted on four hospitals and tested on other patients of the same hospitals. Then the
# marker is shuffled among the patients of a hospital (*broken*), or exchanged between sick and well
# patients (*reversed*).

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from wri import ERMClassifier, WRIClassifier
from wri.datasets import hospitals, joined
from wri.diagnosis import stress_test


def make_table(seed):
    X, y, hospital = joined(hospitals(300, seed=seed))
    return pd.DataFrame(X, columns=["smoking", "marker", "noise"]), y, hospital


X, y, hospital = make_table(seed=0)
ladder = (0.3, 1.0, 3.0, 10.0)
models = {"ERM": ERMClassifier(site_spread=False)}
models |= {
    f"WRI, λ = {weight:g}": WRIClassifier(penalty_weight=weight, site_spread=False)
    for weight in ladder
}
for model in models.values():
    model.fit(X, y, groups=hospital)

test = stress_test(models, *make_table(seed=1), columns=["marker"])
print(test.meaning)
figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
test.plot(ax=ax)

# %%
# The price and the gain of every λ
# ---------------------------------
# Against ERM, WRI costs something where nothing has changed and saves something where the marker is
# reversed. The loss is the mean log-loss over the sites.

losses = np.nanmean(test.losses, 2)  # [model, relation]
change = 100 * (losses[1:] / losses[0] - 1)
figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for relation, place, colour in (("unchanged", 0, "black"), ("reversed", 2, "#D55E00")):
    ax.plot(ladder, change[:, place], "o-", color=colour, label=relation)
ax.axhline(0, color="#888888", lw=1)
ax.set(xscale="log", xlabel="penalty weight λ", ylabel="loss against ERM's (%)")
ax.legend()

# %%
# As a table
# ----------
test.table().round(3)

# %%
# ``WRIClassifier(penalty_weight="auto")`` chooses λ with sites left out in turn.
# :doc:`/results/insurance` measures what that costs and saves.
