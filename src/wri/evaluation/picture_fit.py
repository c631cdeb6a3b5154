"""Fits of pictures in folders: features of a fixed network, then as for tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wri.datasets import ImageFolder
from wri.datasets.table_rows import TableRows
from wri.estimators.pictures import PictureClassifier
from wri.evaluation.candidates import FitOptions
from wri.evaluation.fitting import TableFit, fit_sites
from wri.features.backbones import as_backbone
from wri.features.extraction import extract
from wri.progress import Progress, silent

BACKBONE = "efficientnet-lite0"


@dataclass(frozen=True, eq=False, kw_only=True)
class PictureFit:
    """Fit of pictures with the classifier to be saved."""

    fit: TableFit
    model: PictureClassifier
    folder: ImageFolder
    kept: np.ndarray  # [n], numbers of the pictures that could be read
    broken: Mapping[Path, str]
    backbone: str


def fit_pictures(
    root: Path,
    options: FitOptions,
    *,
    progress: Progress = silent,
    status: Callable[[str], None] = lambda text: None,
) -> PictureFit:
    """Fit a classifier to a folder ROOT/SITE/CLASS/*.jpg or *.png, each site held out in turn.

    `status` is called with what is being done.
    """
    options.check()
    folder, backbone = ImageFolder(root), as_backbone(BACKBONE)
    found = extract(folder, backbone, None, progress=progress)
    groups, y = folder.groups[found.kept], folder.y[found.kept]
    sizes = {name: int((groups == name).sum()) for name in folder.count()}
    status("fitting")
    rows = TableRows(
        X=found.x, y=y, groups=groups, environment="folder", task="classes", sizes=sizes
    )
    fit = fit_sites(rows, options, progress=progress)
    broken = {Path(path): str(reason) for path, reason in dict(found.broken).items()}
    said = tuple(
        f"{path} could not be read and was left out: {why}" for path, why in broken.items()
    )
    fit = replace(fit, warnings=(*fit.warnings, *said[:10]))
    model = PictureClassifier(options.make_model(fit.kept, True), backbone=backbone)
    model.backbone_ = {"name": found.backbone, "digest": found.digest}
    model.broken_, model.estimator_ = dict(found.broken), fit.model
    model.estimator_.backbone_ = model.backbone_
    model.classes_ = fit.model.classes_
    return PictureFit(
        fit=fit,
        model=model,
        folder=folder,
        kept=np.asarray(found.kept),
        broken=broken,
        backbone=f"{found.backbone}, SHA-256 {found.digest}",
    )
