"""Hyper-parameters of WRI's density updates."""

from wri.objectives.hyperparameters import Choice, HyperParameter, LogUniform, Setting, Uniform

DENSITY_HYPERPARAMETERS = (
    HyperParameter(
        "density_every",
        "ω, predictor steps from one density update to the next",
        domainbed=Setting(1, Choice((1, 2, 4, 8))),
        simulation=Setting(1),
        low=1,
        whole=True,
    ),
    HyperParameter(
        "density_steps",
        "n_d, steps in a density update",
        domainbed=Setting(4, Choice((4, 16, 32))),
        cmnist=Setting(4, Choice((1, 2, 4))),
        simulation=Setting(2),
        low=1,
        whole=True,
    ),
    HyperParameter(
        "density_learning_rate",
        "step size of the densities' Adam",
        domainbed=Setting(2e-2, LogUniform(1e-2, 5e-2)),
        cmnist=Setting(4e-2, LogUniform(1e-2, 5e-2)),
        simulation=Setting(4e-2),
        low=1e-12,
    ),
    HyperParameter(
        "density_weight_decay",
        "weight decay of the densities",
        domainbed=Setting(1e-5, LogUniform(1e-6, 1e-2)),
        simulation=Setting(1e-5),
    ),
    HyperParameter(
        "density_batch_size",
        "rows of each environment in a density step",
        domainbed=Setting(256, Choice((128, 256))),
        simulation=Setting(64),
        low=2,
        whole=True,
    ),
    HyperParameter(
        "density_penalty_weight",
        "λ_d, weight of the squared gaps in the density steps",
        domainbed=Setting(5.0, LogUniform(5.0, 5e1)),
        cmnist=Setting(50.0, LogUniform(5.0, 5e1)),
        simulation=Setting(50.0),
    ),
    HyperParameter(
        "density_log_weight",
        "β, weight of −log d on an environment's own rows",
        domainbed=Setting(2.0, LogUniform(5e-2, 5.0)),
        cmnist=Setting(0.1, LogUniform(5e-2, 1.0)),
        simulation=Setting(0.1),
    ),
    HyperParameter(
        "min_density",
        "smallest value of the bounded density",
        domainbed=Setting(0.05, Uniform(0.01, 0.2)),
        cmnist=Setting(0.1, Uniform(0.01, 0.15)),
        simulation=Setting(0.1),
        low=1e-12,
    ),
    HyperParameter(
        "max_density",
        "largest value of the bounded density",
        domainbed=Setting(1.0, Uniform(0.4, 2.0)),
        cmnist=Setting(1.0, Uniform(1.0, 2.0)),
        simulation=Setting(1.0),
        low=1e-12,
    ),
)
