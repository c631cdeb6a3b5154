"""Panels that several figures have."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes

from wri.datasets import Gaussian2D
from wri.paper.result import ResultCell
from wri.report import style


def draw_band(ax: Axes, at: Sequence[float] | np.ndarray, values: np.ndarray, **look: Any) -> None:
    """Draw the mean over seeds of values `[step, seed]`, and a band from smallest to largest."""
    ax.plot(at, values.mean(1), **look)
    ax.fill_between(at, values.min(1), values.max(1), color=look["color"], alpha=0.2, lw=0)


def draw_points(
    ax: Axes,
    values: Mapping[str, Sequence[np.ndarray]],
    looks: Mapping[str, tuple[str, str]],  # colour and marker of a line
    distance: float,
    size: float,
) -> None:
    """Draw a point with its standard error per line and column, lines beside each other."""
    for n, (line, columns) in enumerate(values.items()):
        cells = [ResultCell.of(line, "", each) for each in columns]
        ax.errorbar(
            np.arange(len(cells)) + distance * (n - (len(values) - 1) / 2),
            [cell.ours for cell in cells],
            [cell.spread or 0.0 for cell in cells],
            fmt=looks[line][1],
            color=looks[line][0],
            ms=size,
            lw=1,
            label=line,
        )
    ax.grid(axis="y", color="#E5E5E5", lw=0.6)
    ax.set_axisbelow(True)


def draw_environments(ax: Axes, setting: Gaussian2D, which: Sequence[int], title: str) -> None:
    """Draw each environment's classes by contours of their densities."""
    axis = torch.linspace(-5, 5, 201, dtype=torch.float64)
    x = torch.cartesian_prod(axis, axis)
    density, probability = setting.log_joint(x).exp(), setting.probability(x)  # [G, E]
    for e in which:
        colour = style.ENVIRONMENT_COLOURS[e]
        for share, line in ((1 - probability, "--"), (probability, "-")):
            height = (density * share)[:, e].reshape(201, 201).T
            levels = [0.25 * height.max(), 0.75 * height.max()]
            ax.contour(axis, axis, height, levels, colors=colour, linestyles=line, linewidths=1.2)
            label = f"$p_{e + 1}(x\\,|\\,y = {int(line == '-')})$"
            ax.plot([], [], color=colour, ls=line, lw=1.2, label=label)
    ax.set(xlim=(-3.5, 4.5), ylim=(-4, 5.5), xlabel="$x_{inv}$", ylabel="$x_{spu}$", title=title)
    ax.legend(loc="upper left", ncols=2, columnspacing=0.8, handlelength=1.2, fontsize=7)
