"""Several runs in one picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfnet.report import style
from tfnet.report.curves import (
    column,
    limit_accuracy,
    limit_from_zero,
    plot_curve,
)
from tfnet.report.names import fit_names

# Okabe and Ito's colours for the colour-blind; the lines differ too.
_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#222222",
)
_LINES = ("-", "--", ":", "-.")

# Stands in the file, so that an earlier picture can be told from a photo.
_SOFTWARE = "tfnet.compare"
_HEAD = 1024


def is_drawn_together(path: Path) -> bool:
    """Says whether a file is a picture that `draw_together` made.

    Raises:
      OSError: It can't be read.
    """
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    mark = b"tEXtSoftware\0" + _SOFTWARE.encode()
    return head.startswith(b"\x89PNG\r\n\x1a\n") and mark in head


def draw_together(
    histories: Mapping[str, Sequence[Mapping[str, Any]]],
) -> bytes:
    """Draws the loss and the accuracy of several runs over their steps.

    Args:
      histories: For each run, by its name, the rows of metrics.csv.

    Returns:
      A PNG file.
    """
    rows = -(-len(histories) // 2)
    with style.drawing():
        figure = style.new_figure(1000, 470 + 18 * rows)
        style.add_title(figure, "Training loss and test accuracy")
        left = style.add_axes(figure, 70, 60, 400, 330)
        right = style.add_axes(figure, 560, 60, 400, 330)
        names = fit_names(list(histories), 400, style.TEXT)
        for number, history in enumerate(histories.values()):
            looks: dict[str, Any] = {
                "color": _COLOURS[number % len(_COLOURS)],
                "linestyle": _LINES[number % len(_LINES)],
                "label": names[number],
            }
            loss = column(history, "train", "step", "loss")
            accuracy = column(history, "test", "step", "accuracy")
            plot_curve(left, loss, marker="o", **looks)
            plot_curve(right, accuracy * [1, 100], marker="o", **looks)
        left.set_ylim(bottom=0)
        if np.isfinite(right.dataLim.intervaly).all():
            limit_accuracy(right)
        left.set_ylabel("training loss (nats)")
        right.set_ylabel("test accuracy (%)")
        for axes in (left, right):
            axes.set_xlabel("steps")
            limit_from_zero(axes)
            axes.grid(axis="y")
        handles, labels = right.get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=2)
        return style.encode_png(figure, _SOFTWARE)
