"""Everything that yields environments."""

from wri.datasets.environments import Environment
from wri.datasets.gaussian2d import Gaussian2D
from wri.datasets.linear_gaussian import LinearGaussian
from wri.datasets.simulation import Simulation, SimulationSetting

__all__ = ["Environment", "Gaussian2D", "LinearGaussian", "Simulation", "SimulationSetting"]
