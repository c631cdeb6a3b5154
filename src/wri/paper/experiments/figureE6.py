"""Figure E.6: digits of the test environment above the same digits mirrored.

3, 4, 7 and 9 are mirrored left to right, 4, 6, 7 and 9 upside down: the out-of-domain examples of
table 3, from CMNIST's test environment. The figure shows the first of each digit in each colour,
the two channels in vermillion and green. The table counts them. Both sizes are the same.
"""

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from wri.paper.experiments import ExperimentTask
from wri.paper.result import Result, ResultCell
from wri.paper.simulations import ColouredDigits, Mirrored, coloured_mnist, mirror
from wri.paper.simulations.coloured_mnist import FLIPS
from wri.report import style

CHANNELS = np.array([to_rgb(style.VERMILLION), to_rgb(style.GREEN)])  # [2, rgb]
TITLES = {"horizontal": "flipped left to right", "vertical": "flipped upside down"}
GAP = 2  # pixels between pictures


def run(task: ExperimentTask) -> list[Result]:
    test = coloured_mnist("cmnist", task.seed)[-1]
    flipped = mirror(test)
    rows = []
    for digit in sorted({digit for digits in FLIPS.values() for digit in digits}):
        for direction, digits in FLIPS.items():
            if digit in digits:
                own = (flipped.direction == direction) & (flipped.digits.digits == digit)
                rows.append(ResultCell.of(TITLES[direction], str(digit), own.sum()))
    note = (
        f"Mirrored digits in the test environment of {len(test)}; 4, 7 and 9 are mirrored in both "
        "directions. The paper prints no numbers for this figure."
    )
    return [task.make_result(rows, [note], draw(test, flipped))]


def draw(test: ColouredDigits, flipped: Mirrored) -> Figure:
    with style.figure(6, 3.3) as drawn:
        axes = drawn.subplots(len(FLIPS), 1)
        for ax, direction in zip(axes, FLIPS, strict=True):
            shown = examples(flipped, direction)
            above, below = test.take(flipped.rows[shown]), flipped.digits.take(shown)
            ax.imshow(sheet(above, below), interpolation="nearest")
            size = above.grey.shape[1]
            ax.set_yticks([size / 2, size * 3 / 2 + GAP], ["as they are", "mirrored"])
            ax.set(title=TITLES[direction], xticks=[])
            ax.tick_params(length=0)
            ax.spines[:].set_visible(False)
    return drawn


def examples(flipped: Mirrored, direction: str) -> np.ndarray:
    """Return the first row of each digit in each colour."""
    digits, own = flipped.digits, flipped.direction == direction
    return np.array(
        [
            np.flatnonzero(own & (digits.digits == digit) & (digits.colour == colour))[0]
            for digit in FLIPS[direction]
            for colour in (0, 1)
        ]
    )


def sheet(above: ColouredDigits, below: ColouredDigits) -> np.ndarray:  # [height, width, rgb]
    """Return two lines of pictures with white between them."""
    lines = []
    for digits in (above, below):
        pictures = np.einsum("nchw,cr->nhwr", digits.images / 255, CHANNELS)
        framed = np.pad(pictures, ((0, 0), (0, GAP), (0, GAP), (0, 0)), constant_values=1)
        lines.append(np.concatenate(list(framed), axis=1))
    return np.concatenate(lines)[:-GAP, :-GAP]
