"""How far the probabilities can be trusted."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfnet.report import style
from tfnet.report.figures import CalibrationBins


def draw_calibration(bins: CalibrationBins) -> Figure:
    """Draws the reliability diagram, and below it how full each bin is.

    Args:
      bins: The bins; at least one holds an example.
    """
    figure = style.new_figure(style.HALF, 585)
    style.add_title(
        figure,
        f"Calibration: expected calibration error {100 * bins.error:.1f}%",
    )
    upper = style.add_axes(figure, 75, 70, style.HALF - 100, 320)
    lower = style.add_axes(figure, 75, 415, style.HALF - 100, 115)
    edges = np.linspace(0, 100, len(bins.counts) + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    _draw_accuracy(upper, bins, middles, width=0.9 * edges[1])
    lower.bar(
        middles,
        100 * bins.counts / bins.counts.sum(),
        0.9 * edges[1],
        color=style.GREY,
    )
    lower.set_ylabel("test images (%)")
    lower.set_xlabel("probability of the guess (%)")
    for axes in (upper, lower):
        axes.set_xlim(0, 100)
        axes.grid(axis="y")
    return figure


def _draw_accuracy(
    axes: Axes, bins: CalibrationBins, middles: np.ndarray, width: float
) -> None:
    full = bins.counts > 0
    accuracy = 100 * bins.accuracy[full]
    bars = axes.bar(
        middles[full],
        accuracy,
        width,
        color=style.SKY,
        label="right guesses of a bin",
    )
    (points,) = axes.plot(
        100 * bins.confidence[full],
        accuracy,
        "o",
        color=style.INK,
        markersize=4,
        label="the same, at its mean probability",
        clip_on=False,
    )
    (diagonal,) = axes.plot(
        [0, 100],
        [0, 100],
        color=style.VERMILLION,
        linestyle="--",
        label="perfectly calibrated",
    )
    axes.set_ylim(0, 102)
    axes.set_ylabel("right guesses (%)")
    axes.tick_params(labelbottom=False)
    axes.legend(
        handles=[bars, points, diagonal],
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        borderaxespad=0.2,
        columnspacing=1.2,
        fontsize=style.SMALL,
    )
