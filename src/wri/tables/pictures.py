"""Fits of pictures in folders: features of a fixed network, then as for tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wri.datasets import ImageFolder
from wri.estimators.pictures import PictureClassifier
from wri.features.backbones import as_backbone
from wri.features.extraction import extract
from wri.features.picture_files import read_picture
from wri.progress import Progress, silent
from wri.report.blocks import Notice, Section, Thumbnail, ThumbnailGallery, make_thumbnail
from wri.tables.candidates import FitOptions
from wri.tables.fitting import TableFit, fit_sites
from wri.tables.held_out import SiteData

RAREST = 12  # pictures that are shown
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
    """Fit a classifier to a folder of pictures, with each domain held out in turn.

    Parameters
    ----------
    root
        ROOT/SITE/CLASS/*.jpg or *.png.
    options
        What is trained.
    progress
        Called with parts done and in all, of the features and then of the fits.
    status
        Called with what is being done.

    Returns
    -------
    PictureFit
        `model` can be saved; `fit` holds what is known about it.
    """
    options.check()
    folder, backbone = ImageFolder(root), as_backbone(BACKBONE)
    found = extract(folder, backbone, None, progress=progress)
    groups, y = folder.groups[found.kept], folder.y[found.kept]
    sizes = {name: int((groups == name).sum()) for name in folder.count()}
    status("fitting")
    data = SiteData(found.x, y, groups, None)
    fit = fit_sites(data, sizes, options, classes=True, progress=progress)
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


def picture_sections(found: PictureFit) -> list[Section]:
    """Build the report section with the rarest pictures."""
    model: Any = found.fit.model
    assessed = model.assess(found.fit.data.X)
    paths = [found.folder.paths[k] for k in found.kept]
    order = np.argsort(assessed.scores)[:RAREST]
    thumbnails = [
        Thumbnail(
            make_thumbnail(read_picture(Path(paths[k]).read_bytes())),
            f"{found.fit.data.y[k]}, {found.fit.data.groups[k]}, {Path(paths[k]).name}",
            f"{found.fit.data.groups[k]}, {found.fit.data.y[k]}: predicted "
            f"{assessed.predictions[k]}, {assessed.verdicts[k]}",
        )
        for k in order
    ]
    note = Notice(
        "An unusual picture that the model is sure of is called supported. Check a new kind of "
        "picture on some labelled ones.",
        "note",
    )
    return [
        Section(
            title="The rarest pictures",
            blocks=[note, ThumbnailGallery("Training pictures that are rarest", thumbnails)],
        )
    ]
