"""DomainBed: its result folders, and wri's objectives in its training loop.

`from wri.integrations.domainbed import WRIAlgorithm` imports an algorithm; `ALGORITHMS` has all of
them by DomainBed's names.
"""

from typing import TYPE_CHECKING, Any

from wri.integrations.domainbed.algorithms import ALGORITHMS, Algorithm
from wri.integrations.domainbed.folders import (
    METHODS,
    Export,
    FolderNote,
    ImportedSweep,
    build_tables,
    export_runs,
    read_sweep,
)
from wri.integrations.domainbed.hparams import HparamSetting, hparam_settings

globals().update({derived.__name__: derived for derived in ALGORITHMS.values()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = [
    "ALGORITHMS",
    "METHODS",
    "Algorithm",
    "Export",
    "FolderNote",
    "HparamSetting",
    "ImportedSweep",
    "build_tables",
    "export_runs",
    "hparam_settings",
    "read_sweep",
]
