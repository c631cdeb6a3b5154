"""Names that the help shows, from the registries that need no PyTorch.

Data sets and selections live in packages that take long to import; a test compares them.
"""

from wri.measures import MEASURES as _MEASURES
from wri.presets import PRESETS as _PRESETS
from wri.registry import ALGORITHMS as _ALGORITHMS
from wri.registry import OBJECTIVES

ALGORITHMS = tuple(OBJECTIVES)
FIT_ALGORITHMS = tuple(_ALGORITHMS)  # with boosted trees
MEASURES = tuple(_MEASURES)
PRESETS = tuple(_PRESETS)
DATASETS = ("simulation", "gaussian2d", "hospitals")
SELECTIONS = (
    "training-domain",
    "leave-one-out",
    "invariance",
    "oracle",
    "oracle-early",
    "guarded-oracle",
)
NEED_PAIRS = ("leave-one-out",)  # of the selections, those that need runs with pairs held out
ON_REQUEST = (*NEED_PAIRS, "invariance")  # those that a sweep is prepared for only when asked
DOMAINBED_SELECTIONS = ("training-domain", "leave-one-out", "oracle")  # its three, in its order
