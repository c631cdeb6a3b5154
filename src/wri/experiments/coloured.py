"""What tables 2, 3 and the ablation share: coloured digits as features, presets by their names."""

from wri.datasets import ColouredDigits, coloured_mnist
from wri.experiments.task import Task
from wri.features import CNN, PCA, Autoencoder, Extractor, feature_environments
from wri.progress import Progress
from wri.report.style import ALGORITHM_NAMES
from wri.sweep import Data, gather

NAMES = {"cmnist": "CMNIST", "hcmnist": "HCMNIST", "hcmnist-cs": "HCMNIST-CS"}
ALGORITHMS = {name: ALGORITHM_NAMES[name] for name in ("erm", "irm", "vrex", "wri")}
PRESETS = {"paper": "cmnist", "published": "published", "coloured": "coloured"}
"""What the tables call a preset, and what the objectives do."""

UNEQUAL = ("hcmnist", "hcmnist-cs")  # digits of unequal difficulty, without and with shift
TEST = 2  # the environment that is held out
TRAINING = (0, 1)
DATA_SEED = 0
"""Of the data sets' one draw and of the extractors; trials split the same rows anew."""

QUICK_ROWS = 9_000  # of 70,000
EXTRACTORS = {"ae": Autoencoder, "cnn": CNN, "pca": PCA}
WIDTHS = {"ae": 64, "cnn": 32, "pca": 64}


def choose_extractor(task: Task, at_full_size: str) -> Extractor:
    """As the task says; when it does not, the given kind, and PCA for a quick look."""
    kind = task.options["features"] or (at_full_size if task.full else "pca")
    return EXTRACTORS[kind](width=task.options["width"] or WIDTHS[kind])


def digits(name: str, full: bool) -> list[ColouredDigits]:
    return coloured_mnist(name, DATA_SEED, rows=None if full else QUICK_ROWS)


def load_features(name: str, full: bool, extractor: Extractor, progress: Progress) -> Data:
    """A data set of a sweep; the extractor has seen the training environments only."""
    made = feature_environments(
        digits(name, full), extractor, TRAINING, DATA_SEED, progress=progress
    )
    return gather(name, made, classes=2)
