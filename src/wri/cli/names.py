"""Names that the help shows.

They are written out here so that help does not wait for the registries; a test compares them.
"""

ALGORITHMS = ("erm", "irm", "vrex", "groupdro", "mixup", "mldg", "coral", "wri")
DATASETS = ("simulation", "gaussian2d", "hospitals")
PRESETS = ("domainbed", "cmnist", "published", "simulation", "wri")
SELECTIONS = ("training-domain", "leave-one-out", "oracle", "oracle-early", "guarded-oracle")
