"""Everything that yields environments."""

from wri.datasets.environments import Environment
from wri.datasets.gaussian2d import Gaussian2D
from wri.datasets.linear_gaussian import LinearGaussian
from wri.datasets.named import NAMED, load_named
from wri.datasets.simulation import Simulation, SimulationSetting
from wri.datasets.tables import Table, read_table

__all__ = [
    "NAMED",
    "Environment",
    "Gaussian2D",
    "LinearGaussian",
    "Simulation",
    "SimulationSetting",
    "Table",
    "load_named",
    "read_table",
]
