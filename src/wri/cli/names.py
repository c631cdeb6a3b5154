"""Names that the help shows, from registries that do not import PyTorch.

Data sets and selections are in packages with slow imports, so their names are repeated here; a test
compares them.
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
NEED_PAIRS = ("leave-one-out",)  # selections that need runs with pairs held out
ON_REQUEST = (*NEED_PAIRS, "invariance")  # selections that a sweep supports only on request
DOMAINBED_SELECTIONS = ("training-domain", "leave-one-out", "oracle")  # in DomainBed's order
