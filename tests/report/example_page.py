"""A page like that of a fit: twelve sites with awkward names, figures, warnings, a model card.

    python tests/report/example_page.py page.html

writes it. Its numbers are made up.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from wri.diagnosis.overlap import Overlap
from wri.report import style
from wri.report.page import (
    CommandBlock,
    Notice,
    Page,
    PageCell,
    PagePicture,
    PageTable,
    Section,
    ThumbnailGallery,
    make_thumbnail,
    write_page,
)

SCRIPT = "<script>alert('site')</script>"
COMMAND = "wri fit rows.csv --target outcome --env site --seed 0 -o model/"
SITES = [
    "Amsterdam University Medical Centre, location AMC",
    "Budapest",
    "Centro Hospitalar e Universitário de Coimbra",
    "Długołęka",
    SCRIPT,
    "北京协和医院",
    "Essen & Co",
    "Fez",
    "Göteborg",
    "Krankenhaus_der_Barmherzigen_Brüder_Trier_Standort_Nord",
    "Hull",
    "nan",
]
NAMES = [site if len(site) < 25 else f"{site[:23]}…" for site in SITES]


def make_page() -> Page:
    """The page, the same in every call."""
    random = np.random.default_rng(0)
    erm = 0.80 + 0.06 * random.standard_normal(len(SITES))
    wri = erm + 0.012 + 0.03 * random.standard_normal(len(SITES))
    return Page(
        title="outcome, predicted at a new site: WRI on 12 sites",
        lead=[
            "At a site that was not trained on, expect an AUROC near 0.81; for nine sites in ten "
            "between 0.72 and 0.90. WRI was kept: at the sites held out it is 0.012 better than "
            "ERM on average and never more than 0.03 worse.",
        ],
        notices=[
            Notice(
                "The gain over ERM is smaller than its interval: with these sites the two cannot "
                "be told apart on average."
            )
        ],
        sections=[
            _held_out(erm, wri),
            _insurance(),
            _overlap(random),
            _changing(),
            _rare(random),
            _card(),
        ],
    )


def _held_out(erm: np.ndarray, wri: np.ndarray) -> Section:
    rows = []
    for site, first, second in zip(SITES, erm, wri, strict=True):
        number = f"{round(20000 * abs(first - 0.75)):,}"
        cells = [
            PageCell(f"{value:.3f}", f"{value - 0.03:.2f} to {value + 0.03:.2f}", value == best)
            for best in [max(first, second)]
            for value in (first, second)
        ]
        rows.append([site, number, *cells, f"{second - first:+.3f}".replace("-", "−")])
    rows.append(["Average", "", f"{erm.mean():.3f}", PageCell(f"{wri.mean():.3f}", best=True), ""])
    rows.append(["Worst site", "", f"{erm.min():.3f}", PageCell(f"{wri.min():.3f}", best=True), ""])
    return Section(
        title="How well it holds at each site held out",
        blocks=[
            "Each site was left out in turn; models were chosen and trained on the other eleven.",
            PageTable(
                caption="AUROC at each site held out",
                columns=["Site", "Rows", "ERM", "WRI", "WRI − ERM"],
                rows=rows,
                note="Below each number its 95 % interval over rows. Bold: the better of the two.",
                summary=2,
            ),
            PagePicture(
                figure=_forest(erm, wri),
                alternative=f"WRI is better than ERM at {(wri > erm).sum()} of 12 sites.",
                caption="AUROC at each site held out, by ERM and by WRI.",
            ),
        ],
    )


def _forest(erm: np.ndarray, wri: np.ndarray):
    with style.figure(7, 4.2) as drawn:
        axes = drawn.subplots()
        places = np.arange(len(SITES))
        for name, values, shift in (("erm", erm, -0.13), ("wri", wri, 0.13)):
            axes.errorbar(
                values,
                places + shift,
                xerr=0.03,
                fmt="o",
                markersize=4,
                color=style.ALGORITHM_COLOURS[name],
                label=style.ALGORITHM_NAMES[name],
            )
        axes.set_yticks(places, NAMES)
        axes.set_ylim(len(SITES) - 0.5, -0.5)
        axes.set_xlabel("AUROC")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    return drawn


def _insurance() -> Section:
    strength = np.linspace(-1, 1, 21)
    with style.figure(5.5, 3) as drawn:
        axes = drawn.subplots()
        for name, slope in (("erm", 0.16), ("wri", 0.02)):
            axes.plot(
                strength,
                0.80 + slope * strength,
                color=style.ALGORITHM_COLOURS[name],
                label=style.ALGORITHM_NAMES[name],
            )
        axes.set(xlabel="strength of the changing relation", ylabel="AUROC")
        axes.legend()
    return Section(
        title="What the insurance costs and buys",
        blocks=[
            "WRI costs 0.02 where the changing relation stays as it is, and saves 0.14 where it "
            "reverses.",
            PagePicture(
                figure=drawn,
                alternative="AUROC of ERM falls from 0.96 to 0.64 as the changing relation goes "
                "from its full strength to its reverse; that of WRI from 0.82 to 0.78.",
                caption="Stress test: the relation of crp to the outcome is scaled.",
            ),
            PageTable(
                caption="Stress test",
                columns=["Strength", "ERM", "WRI"],
                rows=[["reversed", "0.64", "0.78"], ["as it is", "0.96", "0.82"]],
            ),
        ],
    )


def _overlap(random: np.random.Generator) -> Section:
    drawn = random.uniform(0.15, 0.95, (12, 12))
    shared = (drawn + drawn.T) / 2
    np.fill_diagonal(shared, 1)
    shared[3, 8] = shared[8, 3] = 0.04
    names = np.array(NAMES, dtype=object)
    found = Overlap(
        labels=names,
        overlap=shared,
        effective_rows=900 * shared,
        rows=np.full(12, 1000),
        errors=np.full((12, 12), 0.02),
        p=0.001,
    )
    return Section(
        title="What the sites have in common",
        blocks=[
            Notice("Długołęka and Göteborg share 4 % of their cases: they are not compared."),
            PagePicture(
                figure=found.plot(), alternative=found.meaning, caption="Overlap of the sites."
            ),
        ],
    )


def _changing() -> Section:
    return Section(
        title="Features whose relation to the outcome changes",
        blocks=[
            PageTable(
                caption="Spread of slopes between sites",
                columns=["Feature", "Spread", "p-value, corrected", "Verdict"],
                rows=[
                    ["crp <mg/l>", PageCell("0.81", tone="warning"), "< 0.001", "changes"],
                    ["age", "0.03", "0.74", "stable"],
                ],
            ),
        ],
    )


def _rare(random: np.random.Generator) -> Section:
    thumbnails = []
    for number in range(5):
        pixels = random.integers(256, size=(24, 32, 3), dtype=np.uint8)
        caption = f"photo_{number}_with_a_rather_long_file_name.jpg, typicality {number} %"
        image = make_thumbnail(Image.fromarray(pixels))
        thumbnails.append((image, f"Photograph {number}, Hull", caption))
    return Section(
        title="Rare regions",
        blocks=[
            Notice("Verdicts rest on rows that were held out.", tone="note"),
            ThumbnailGallery("The rarest photographs of the training set.", thumbnails),
        ],
    )


def _card() -> Section:
    return Section(
        title="Model card",
        blocks=[
            {
                "Data": "rows.csv, 14,208 rows, 23 columns, SHA-256 " + 8 * "5f3ab1c2",
                "Made": "2026-11-17",
                "Versions": "wri 0.2.0, torch 2.13.0, scikit-learn 1.9.1",
            },
            ["Not for sites whose patients are younger than 18: none were seen."],
            "The command that makes this model again:",
            CommandBlock(COMMAND),
        ],
    )


if __name__ == "__main__":
    write_page(make_page(), Path(sys.argv[1]))
