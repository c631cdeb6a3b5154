"""
ERM against WRI at a new hospital
=================================

Smoking causes the disease in the same way at every hospital. A marker follows the diagnosis,
differently at each hospital. ERM uses both. WRI asks that weighted risks agree between hospitals,
and relies less on the marker. A new hospital, where the marker means the opposite, shows the
difference.
"""

# %%
# Four training hospitals
# -----------------------
# Hospitals differ in how much their patients smoke and in how strong the marker is. Each dot is a
# patient, with smoking on the horizontal axis and the marker on the vertical one.

import matplotlib.pyplot as plt
import numpy as np

from wri import ERMClassifier, IRMClassifier, VRExClassifier, WRIClassifier
from wri.datasets import hospitals, joined
from wri.datasets.hospitals import REVERSED, UNRELATED
from wri.report.style import ALGORITHM_COLOURS

training = hospitals(500, seed=0)
new = REVERSED.sample(2000, seed=0)

figure, axes = plt.subplots(1, 5, figsize=(11, 2.6), sharex=True, sharey=True, layout="constrained")
for ax, site in zip(axes, [*training, new], strict=True):
    for label, colour, name in ((0, "#0072B2", "well"), (1, "#D55E00", "sick")):
        rows = site.x[site.y == label][:150]
        ax.scatter(rows[:, 0], rows[:, 1], s=6, color=colour, alpha=0.6, label=name)
    ax.set(title=site.name, xlabel="smoking")
axes[0].set_ylabel("marker")
axes[-1].legend(loc="lower right", fontsize=8)

# %%
# Fit four estimators
# -------------------
# ``groups`` names the hospital of every row. Everything else is scikit-learn as usual.

X, y, hospital = joined(training)
models = {
    "erm": ERMClassifier(),
    "irm": IRMClassifier(),
    "vrex": VRExClassifier(),
    "wri": WRIClassifier(),
}
for model in models.values():
    model.set_params(site_spread=False).fit(X, y, groups=hospital)
    print(type(model).__name__, "weights:", np.round(model.coef_.ravel(), 2))

# %%
# Compare them on patients that no model has seen
# -----------------------------------------------
# The training hospitals with other patients, a new hospital whose marker tells nothing, and a new
# hospital whose marker is reversed. The dashed line is what smoking alone allows.

sites = {
    "training hospitals,\nother patients": joined(hospitals(2000, seed=1))[:2],
    "new hospital,\nmarker unrelated": UNRELATED.sample(2000, seed=0)[1:3],
    "new hospital,\nmarker reversed": (new.x, new.y),
}
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
places = np.arange(len(sites))
for n, (name, model) in enumerate(models.items()):
    scores = [100 * model.score(*rows) for rows in sites.values()]
    bars = ax.bar(places + 0.2 * (n - 1.5), scores, 0.18, color=ALGORITHM_COLOURS[name])
    ax.bar_label(bars, fmt="%.0f", fontsize=8)
    bars.set_label(name.upper() if name != "vrex" else "VREx")
ax.axhline(100 * REVERSED.best_accuracy, color="black", ls="--", lw=1)
ax.set_xticks(places, list(sites))
ax.set(ylabel="accuracy (%)", ylim=(0, 105))
ax.legend(ncols=4, loc="upper right", fontsize=8)
plt.show()

# %%
# This is one draw. :doc:`The results page </results/hospitals>` has ten seeds with standard errors,
# and hospitals that are drawn at random.
