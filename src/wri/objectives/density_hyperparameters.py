"""Hyper-parameters of WRI's density updates."""

from wri.objectives.hyperparameters import HyperParameter, LogUniform, OneOf, Setting, Uniform

DENSITY_HYPERPARAMETERS = (
    HyperParameter(
        name="density_every",
        meaning="ω, predictor steps between two density updates, from the annealing step on",
        settings={
            "domainbed": Setting(1, OneOf((1, 2, 4, 8))),
            "simulation": Setting(1),
            "table": Setting(10),
        },
        low=1,
        whole=True,
        of_steps=True,
    ),
    HyperParameter(
        name="density_steps",
        meaning="n_d, steps per density update",
        settings={
            "domainbed": Setting(4, OneOf((4, 16, 32))),
            "cmnist": Setting(4, OneOf((1, 2, 4))),
            "simulation": Setting(2),
        },
        low=1,
        whole=True,
        of_steps=True,
    ),
    HyperParameter(
        name="density_learning_rate",
        meaning="step size of the densities' Adam",
        settings={
            "domainbed": Setting(2e-2, LogUniform(1e-2, 5e-2)),
            "cmnist": Setting(4e-2, LogUniform(1e-2, 5e-2)),
            "simulation": Setting(4e-2),
        },
        low=1e-12,
        of_steps=True,
    ),
    HyperParameter(
        name="density_weight_decay",
        meaning="weight decay of the densities",
        settings={"domainbed": Setting(1e-5, LogUniform(1e-6, 1e-2)), "simulation": Setting(1e-5)},
        of_steps=True,
    ),
    HyperParameter(
        name="density_batch_size",
        meaning="rows per environment and density step",
        settings={"domainbed": Setting(256, OneOf((128, 256))), "simulation": Setting(64)},
        low=2,
        whole=True,
        of_steps=True,
    ),
    HyperParameter(
        name="density_penalty_weight",
        meaning="λ_d, weight of the squared gaps in the density steps",
        settings={
            "domainbed": Setting(5.0, LogUniform(5.0, 5e1)),
            "cmnist": Setting(50.0, LogUniform(5.0, 5e1)),
            "simulation": Setting(50.0),
        },
        of_steps=True,
    ),
    HyperParameter(
        name="density_log_weight",
        meaning="β, weight of −log d on an environment's own rows",
        settings={
            "domainbed": Setting(2.0, LogUniform(5e-2, 5.0)),
            "cmnist": Setting(0.1, LogUniform(5e-2, 1.0)),
            "simulation": Setting(0.1),
        },
        of_steps=True,
    ),
    HyperParameter(
        name="min_density",
        meaning="smallest value of the bounded density",
        settings={
            "domainbed": Setting(0.05, Uniform(0.01, 0.2)),
            "cmnist": Setting(0.1, Uniform(0.01, 0.15)),
            "simulation": Setting(0.1),
        },
        low=1e-12,
        of_steps=True,
    ),
    HyperParameter(
        name="max_density",
        meaning="largest value of the bounded density",
        settings={
            "domainbed": Setting(1.0, Uniform(0.4, 2.0)),
            "cmnist": Setting(1.0, Uniform(1.0, 2.0)),
            "simulation": Setting(1.0),
        },
        low=1e-12,
        of_steps=True,
    ),
)
