"""Which classes were taken for which."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from tfnet.report import style
from tfnet.report.names import fit_names, widest

# Up to so many classes, every cell has its number.
_NUMBERED = 20
# Pixels: the longest name; what is left of the names; the bar of colours.
_LONGEST, _LEFT, _BAR = 130, 40, 115
_TOP = 50
# A line of names, and some room.
_ROW = 14


def draw_confusion(confusion: np.ndarray, class_names: Sequence[str]) -> Figure:
    """Draws the confusion matrix; each row is 100%.

    Args:
      confusion: Counts, a row for each true class, a column a guess: integers
        [classes, classes].
      class_names: The name of each class.
    """
    classes = len(class_names)
    points = style.TEXT if classes <= 60 else style.SMALL
    labels = fit_names(class_names, _LONGEST, points)
    margin = widest(labels, points) + _LEFT
    cell = _cell_size(classes, style.HALF - margin - _BAR)
    size = cell * classes
    figure = style.new_figure(
        max(margin + size + _BAR, style.HALF), _TOP + size + margin
    )
    style.add_title(figure, "Confusion matrix: each row is 100%")
    axes = style.add_axes(figure, margin, _TOP, size, size)
    support = confusion.sum(axis=1, keepdims=True)
    shares = np.ma.masked_array(
        confusion / np.maximum(support, 1),
        np.broadcast_to(support == 0, confusion.shape),
    )
    cmap = matplotlib.colormaps["cividis"].with_extremes(bad=style.PALE)
    # Of many classes no mistake is frequent; a straight scale would hide all.
    norm = PowerNorm(0.5 if classes > _NUMBERED else 1, vmin=0, vmax=1)
    image = axes.imshow(shares, cmap=cmap, norm=norm, aspect="auto")
    _name_axes(axes, labels, points, cell)
    if classes <= _NUMBERED:
        _number_cells(axes, confusion, shares, cell)
    figure.colorbar(
        image,
        cax=style.add_axes(figure, margin + size + 18, _TOP, 14, size),
        label="share of the true class"
        + (" (square-root scale)" if classes > _NUMBERED else ""),
        ticks=[0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1]
        if classes > _NUMBERED
        else None,
        format=PercentFormatter(1),
    )
    return figure


def _cell_size(classes: int, room: int) -> int:
    """Returns the pixels of a cell; few fill the room, many go beyond it."""
    least = 28 if classes <= _NUMBERED else min(20, 1000 // classes)
    return max(1, least, min(150, room // classes))


def _name_axes(
    axes: Axes, labels: Sequence[str], points: float, cell: int
) -> None:
    # Where rows are lower than text, only every so many are named.
    every = -(-_ROW // cell)
    places = range(0, len(labels), every)
    shown = [labels[i] for i in places]
    axes.set_yticks(places, shown, fontsize=points)
    axes.set_xticks(places, shown, fontsize=points, rotation=90)
    few = f" (one in {every} is named)" if every > 1 else ""
    axes.set_ylabel(f"true class{few}")
    axes.set_xlabel(f"guess{few}")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _number_cells(
    axes: Axes, confusion: np.ndarray, shares: np.ndarray, cell: int
) -> None:
    """Writes the percentage, and the count if it fits, where there is any."""
    counts = [f"({count:,})" for count in confusion.flat]
    has_room = widest(counts, style.SMALL) < cell - 4
    for row, column in zip(*np.nonzero(confusion), strict=True):
        share = shares[row, column]
        text = _whole_percent(share)
        if has_room:
            text += f"\n({confusion[row, column]:,})"
        axes.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize=style.SMALL,
            linespacing=1.1,
            color="black" if share > 0.5 else "white",
        )


def _whole_percent(share: float) -> str:
    """Returns a share in whole percent; 100 only where it is all."""
    if share < 0.005:
        return "<1"
    if 0.995 <= share < 1:
        return ">99"
    return f"{100 * share:.0f}"
