"""
Diagnosis: what differs between environments
============================================

Two questions to ask before a model is fitted. Which columns change their relation to the outcome
from site to site? Have the sites cases in common, so that weighted risks can be compared at all?
"""

# %%
# Columns whose relation changes
# ------------------------------
# The slope of every column in a regression per site, with intervals. A flag is a test at the 5 %
# level over all columns; the marker's slope changes, and smoking's does not.

import matplotlib.pyplot as plt
import pandas as pd

from wri.datasets import hospitals, joined
from wri.diagnosis import changing_features, environment_overlap

X, y, hospital = joined(hospitals(500, seed=0))
table = pd.DataFrame(X, columns=["smoking", "marker", "noise"])

found = changing_features(table, y, hospital)
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
# 1 is identical, 0 is nothing in common. Pairs with little in common teach WRI little.

shared = environment_overlap(table[["smoking"]], hospital)
print(shared.meaning)
figure, ax = plt.subplots(figsize=(4.5, 3.6), layout="constrained")
shared.plot(ax=ax)

# %%
# A column that tells the sites apart
# -----------------------------------
# With a column such as the season, which differs between sites and has nothing to do with the
# outcome, the same sites share next to nothing. Leave such columns out.

sites = {name: place for place, name in enumerate(dict.fromkeys(hospital))}
season = [6.0 * sites[name] for name in hospital]
apart = environment_overlap(table.assign(season=season + table["noise"]), hospital)
print(apart.meaning)
figure, ax = plt.subplots(figsize=(4.5, 3.6), layout="constrained")
apart.plot(ax=ax)
plt.show()
