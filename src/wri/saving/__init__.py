"""Saved models: a folder of two files without code.

    model.json            format version, estimator, its parameters, features, labels, thresholds,
                          how it was trained, the preprocessing of a pipeline, what `wri fit`
                          measured, and two SHA-256: of the other file and of itself
    model-….safetensors   weights or the text of forests, units of inputs and target, densities,
                          ranges of columns, losses of left-out sites, scores of held-out rows with
                          their predictions and losses; its SHA-256 is part of its name

A loaded model gives the same predictions, scores and verdicts to the last bit. The folder holds the
predictions and losses of the held-out rows, from which their outcomes can be computed. It does not
hold their columns, except that the minimum and the maximum of each column are values of some row.
Objects other than wri's densities (a density that holds a function, a RandomState) are not saved;
the folder holds a description of them, and the loaded model has the default.

A folder whose files were changed is refused. Nothing in a folder is trusted: links are not
followed, sizes are checked before contents are read, and every name, type and shape must be the one
that `model.json` implies.
"""

from wri.saving.models import load as load
from wri.saving.models import save as save
