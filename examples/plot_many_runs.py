"""
Many runs at once: λ on Figure 1's data
=======================================

Seeds and hyper-parameters are trained together: every tensor has a leading axis of runs. This
example trains ERM, and three objectives with four penalty weights, with four seeds each: 52 runs.
"""

# %%
# Two training environments and a test environment
# ------------------------------------------------
# The spurious feature points the other way in the third environment.

import matplotlib.pyplot as plt
import numpy as np

from wri.datasets import Gaussian2D
from wri.densities import Gaussian
from wri.objectives import ERM, IRM, WRI, VREx
from wri.report.style import ALGORITHM_COLOURS
from wri.training import Bank, ModelSpec, Run, train

environments = Gaussian2D().sample(1000, seed=0)
bank = Bank(
    np.concatenate([each.x for each in environments]),
    np.concatenate([each.y for each in environments]),
)
rows = np.arange(3000).reshape(3, 1000)

# %%
# A specification says what is trained
# ------------------------------------
# A run is a specification, rows and a seed. The last environment is used for testing only.

weights = (0.1, 1.0, 10.0, 100.0)
seeds = range(4)
objectives = {
    "irm": IRM(),
    "vrex": VREx(),
    "wri": WRI(density=Gaussian(), scaling="relative"),
}


def make_runs(objective, **hyper):
    hyper |= {"batch_size": 1000, "learning_rate": 0.03}
    spec = ModelSpec.of(objective, hyper=hyper, hidden=(), steps=150)
    return [
        Run(
            spec,
            bank,
            rows[:2],
            seed=seed,
            evaluate={"test": rows[2], "training": rows[:2].ravel()},
        )
        for seed in seeds
    ]


runs = make_runs(ERM())
for objective in objectives.values():
    for weight in weights:
        runs += make_runs(objective, penalty_weight=weight)
records = train(runs)
print(len(records), "runs")

# %%
# Accuracy by λ
# -------------
# Lines are means over the seeds, and bands reach from the smallest to the largest value. A
# moderate λ helps in the test environment. With a large λ some seeds end in a bad solution, so a
# sweep should draw λ and use several seeds.

last = {
    split: np.array([100 * record.measures["accuracy"][split][-1] for record in records])
    for split in ("training", "test")
}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharex=True, layout="constrained")
for ax, (split, accuracy) in zip(axes, last.items(), strict=True):
    ax.axhline(accuracy[: len(seeds)].mean(), color=ALGORITHM_COLOURS["erm"], ls="--", label="ERM")
    by_weight = accuracy[len(seeds) :].reshape(len(objectives), len(weights), len(seeds))
    for name, values in zip(objectives, by_weight, strict=True):
        label = {"irm": "IRM", "vrex": "VREx", "wri": "WRI"}[name]
        colour = ALGORITHM_COLOURS[name]
        ax.plot(weights, values.mean(1), "o-", ms=4, color=colour, label=label)
        ax.fill_between(weights, values.min(1), values.max(1), color=colour, alpha=0.2, lw=0)
    ax.set(xscale="log", xlabel="penalty weight λ", title=f"{split} environments")
axes[0].set_ylabel("accuracy (%)")
axes[1].set_title("test environment")
axes[1].legend(fontsize=8)
plt.show()
