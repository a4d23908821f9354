"""How far the probabilities can be trusted."""

import numpy as np
from matplotlib.figure import Figure

from tfnet.report import style
from tfnet.report.figures import CalibrationBins


def draw_calibration(bins: CalibrationBins) -> Figure:
    """Draws the reliability diagram, and below it how full each bin is.

    Args:
      bins: The bins; at least one holds an example.
    """
    figure = style.new_figure(style.HALF, 585)
    upper = style.add_axes(figure, 75, 70, style.HALF - 100, 320)
    lower = style.add_axes(figure, 75, 415, style.HALF - 100, 115)
    edges = np.linspace(0, 100, len(bins.counts) + 1)
    middles, width = (edges[:-1] + edges[1:]) / 2, edges[1]
    full = bins.counts > 0
    upper.bar(
        middles[full],
        100 * bins.accuracy[full],
        width * 0.9,
        color=style.SKY,
        label="right guesses of a bin",
    )
    upper.plot(
        100 * bins.confidence[full],
        100 * bins.accuracy[full],
        "o",
        color=style.INK,
        markersize=4,
        label="the same, at its mean probability",
        clip_on=False,
    )
    upper.plot(
        [0, 100],
        [0, 100],
        color=style.VERMILLION,
        linestyle="--",
        label="perfectly calibrated",
    )
    upper.set_ylim(0, 102)
    upper.set_ylabel("right guesses (%)")
    style.add_title(
        figure,
        f"Calibration: expected calibration error {100 * bins.error:.1f}%",
    )
    upper.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        borderaxespad=0.2,
        columnspacing=1.2,
        fontsize=style.SMALL,
    )
    upper.tick_params(labelbottom=False)
    lower.bar(
        middles,
        100 * bins.counts / bins.counts.sum(),
        width * 0.9,
        color=style.GREY,
    )
    lower.set_ylabel("test images (%)")
    lower.set_xlabel("probability of the guess (%)")
    for axes in (upper, lower):
        axes.set_xlim(0, 100)
        axes.grid(axis="y")
    return figure
