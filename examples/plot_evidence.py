"""
Evidence and verdicts
=====================

Every fitted model says whether there is evidence for a row: *supported*, *rare* or *outside*. The
verdict comes from densities of the predictor's outputs, or of the columns themselves. Its
thresholds are set on held-out rows.
"""

# %%
# Fit, and ask for verdicts
# -------------------------
# Nobody in training smokes as much as the last patient.

import matplotlib.pyplot as plt
import numpy as np

from wri import WRIClassifier
from wri.datasets import hospitals, joined

X, y, hospital = joined(hospitals(300, seed=0, noise_columns=0))
by_outputs = WRIClassifier(site_spread=False).fit(X, y, groups=hospital)
by_columns = WRIClassifier(site_spread=False, evidence_on="x").fit(X, y, groups=hospital)
patients = np.array([[0.0, 0.5], [1.0, 4.0], [9.0, 0.0]])
for patient, verdict, typicality in zip(
    patients, by_outputs.verdict(patients), by_outputs.typicality(patients), strict=True
):
    print(f"smoking {patient[0]:g}, marker {patient[1]:g}: {verdict}, typicality {typicality:.1f}")

# %%
# Where the evidence ends
# -----------------------
# On the left, evidence comes from the outputs. A column that the predictor hardly uses makes no row
# rare, so an extreme marker is still supported. On the right, evidence comes from the columns, and
# every unusual combination is flagged.

smoking, marker = np.meshgrid(np.linspace(-8, 8, 121), np.linspace(-8, 8, 121))
grid = np.stack([smoking.ravel(), marker.ravel()], axis=1)
order = ["supported", "rare", "outside"]
colours = ["#009E73", "#F0E442", "#CCCCCC"]

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
models = {"evidence on outputs (default)": by_outputs, 'evidence_on="x"': by_columns}
for ax, (title, model) in zip(axes, models.items(), strict=True):
    verdicts = model.verdict(grid)
    number = np.array([order.index(each) for each in verdicts]).reshape(smoking.shape)
    ax.contourf(smoking, marker, number, levels=[-0.5, 0.5, 1.5, 2.5], colors=colours)
    ax.scatter(*X[::5].T, s=4, color="black", alpha=0.4, lw=0)
    ax.set(title=title, xlabel="smoking")
axes[0].set_ylabel("marker")
handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in colours]
figure.legend(handles, order, loc="outside lower center", ncols=3)

# %%
# A new hospital, before outcomes are known
# -----------------------------------------
# ``score_new_site`` needs models that were trained without each site in turn, so ``site_spread``
# stays on here.

from wri.datasets.hospitals import REVERSED  # noqa: E402

model = WRIClassifier().fit(X, y, groups=hospital)
new = REVERSED.sample(500, seed=0, noise_columns=0)
found = model.score_new_site(new.x)
print(found.meaning)
plt.show()
