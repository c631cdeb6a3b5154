"""
Diagnosis: what differs between sites
=====================================

Ask two questions before you fit a model. Which columns change their relation to the outcome from
site to site? Do the sites have enough cases in common to be compared?
"""

# %%
# Columns whose relation changes
# ------------------------------
# The figure shows the slope of every column in a regression per site, with intervals. Columns are
# flagged by a test at the 5 % level over all columns. The slope of the marker changes, and that of
# smoking does not.

import matplotlib.pyplot as plt
import pandas as pd

from wri.datasets import hospitals, joined
from wri.diagnosis import changing_features, environment_overlap

X, sick, hospital = joined(hospitals(500, seed=0))
table = pd.DataFrame(X, columns=["smoking", "marker", "noise"])

found = changing_features(table, sick, hospital)
print(found.meaning)
figure, ax = plt.subplots(figsize=(8, 3), layout="constrained")
found.plot(ax=ax)

# %%
# The ranking as a table
# ----------------------
found.ranking()

# %%
# Overlap of the sites
# --------------------
# Overlap is 1 for identical sites and 0 for sites with nothing in common. WRI learns little from
# pairs with little overlap.

shared = environment_overlap(table[["smoking"]], hospital)
print(shared.meaning)
figure, ax = plt.subplots(figsize=(4.5, 3.6), layout="constrained")
shared.plot(ax=ax)

# %%
# A column that identifies the sites
# ----------------------------------
# A column such as the season differs between sites and has nothing to do with the outcome. With it,
# the same sites share next to nothing. Leave such columns out.

sites = {name: place for place, name in enumerate(dict.fromkeys(hospital))}
season = [6.0 * sites[name] for name in hospital]
apart = environment_overlap(table.assign(season=season + table["noise"]), hospital)
print(apart.meaning)
figure, ax = plt.subplots(figsize=(4.5, 3.6), layout="constrained")
apart.plot(ax=ax)
plt.show()
