"""Summary of a new site as text, JSON and figure."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wri.errors import InputError, shorten
from wri.number_text import write_number

if TYPE_CHECKING:
    from wri.diagnosis.new_site import NewSite

PICTURES = (".png", ".svg", ".pdf")
SHOWN = 10  # sites, and columns


def site_lines(site: "NewSite") -> list[str]:
    """Return the summary as lines: the meaning and a small table."""
    rare, outside = site.usual
    shares = sorted(
        zip(site.nearest_shares.tolist(), map(str, site.labels), strict=True), reverse=True
    )
    like = ", ".join(f"{name} {share:.0%}" for share, name in shares[:SHOWN])
    more = f" and {len(shares) - SHOWN} more" if len(shares) > SHOWN else ""
    lines = [
        site.meaning.strip(),
        "",
        f"{'rows':<18}{len(site.verdicts):>12,}",
        f"{'rare':<18}{site.rare:>12.1%}   usual {rare:.1%}",
        f"{'outside':<18}{site.outside:>12.1%}   usual {outside:.1%}",
    ]
    if site.loss is not None:
        low, high, span = site.loss.low, site.loss.high, ""
        if low is not None and high is not None:
            ends = f"{write_number(low, 4)} to {write_number(high, 4)}"
            span = f"   {site.loss.level:.0%} interval {ends}"
        lines.append(f"{'expected loss':<18}{write_number(site.loss.new, 4):>12}{span}")
        lines.append(f"{'at training sites':<18}{write_number(site.loss.training, 4):>12}")
    lines.append(f"{'most common at':<18}   {like}{more}")
    for reason, count in count_reasons(site.reasons):
        lines.append(f"{'not supported':<18}{count:>12,}   {reason}")
    for name in site.flagged_columns[:SHOWN]:
        share = site.beyond[site.columns.index(name)]
        lines.append(f"{'beyond its range':<18}{share:>12.0%}   {shorten(name)}")
    return lines


def count_reasons(reasons: np.ndarray) -> list[tuple[str, int]]:
    """Count the rows per reason of a verdict, the most first."""
    every = Counter(reason for each in reasons.tolist() if each for reason in each.split("; "))
    return every.most_common()


def site_document(site: "NewSite") -> dict[str, Any]:
    """Return the summary for JSON."""
    loss = site.loss
    return {
        "rows": len(site.verdicts),
        "meaning": site.meaning.strip(),
        "measure": site.measure,
        "loss": None
        if loss is None
        else {
            "expected": loss.new,
            "low": loss.low,
            "high": loss.high,
            "level": loss.level,
            "training": loss.training,
        },
        "rare": site.rare,
        "outside": site.outside,
        "usual": {"rare": site.usual[0], "outside": site.usual[1]},
        "nearest": {
            str(name): share
            for name, share in zip(site.labels, site.nearest_shares.tolist(), strict=True)
        },
        "mean_prediction": site.predictions.tolist(),
        "reasons": dict(count_reasons(site.reasons)),
        "unseen": [cells.counted.as_dict() for cells in site.unseen],
        "beyond_range": {
            name: float(site.beyond[site.columns.index(name)]) for name in site.flagged_columns
        },
    }


def draw_site(site: "NewSite", path: Path) -> None:
    """Write the figure to a file."""
    if path.suffix.lower() not in PICTURES:
        raise InputError(f"--plot {shorten(path)} must end in {', '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise InputError(f"--plot {shorten(path)}: {path.parent} is not a folder; create it first")
    site.plot().savefig(path)
