"""How every picture looks, and how it becomes a PNG.

Pictures are made with Matplotlib's objects on its Agg canvas: no window, no
pyplot. Places are in pixels from the top left; one pixel of a picture is one
on the screen.
"""

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

DPI = 100

# Two pictures of this width stand beside one another on a wide page.
HALF = 640

# Of Okabe and Ito: told apart with any colour vision.
BLUE = "#0072B2"
VERMILLION = "#D55E00"
SKY = "#56B4E9"
INK = "#222222"
GREY = "#767676"
PALE = "#DDDDDD"

# Sizes of text, in points.
SMALL = 8.0
TEXT = 9.0
TITLE = 10.5

_STYLE: dict[str, Any] = {
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": TEXT,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "grid.color": PALE,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Lets what is drawn in the block look the same for everyone.

    A person's own matplotlibrc would otherwise be in it. In the block `$` is a
    dollar, in names as everywhere. At its end Matplotlib's settings are as
    they were; they are of the process, so no other thread may draw meanwhile.
    """
    with matplotlib.style.context(["default", _STYLE]):
        yield


def new_figure(width: int, height: int) -> Figure:
    """Creates an empty figure.

    Args:
      width: In pixels.
      height: In pixels.
    """
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def add_axes(
    figure: Figure, left: int, top: int, width: int, height: int
) -> Axes:
    """Adds axes whose box, without its labels, stands at a place.

    Args:
      figure: The figure.
      left: Pixels from the left of the figure to the box.
      top: Pixels from the top of the figure to the box.
      width: Pixels of the box.
      height: Pixels of the box.
    """
    whole_width, whole_height = figure.get_size_inches() * DPI
    return figure.add_axes(
        (
            left / whole_width,
            1 - (top + height) / whole_height,
            width / whole_width,
            height / whole_height,
        )
    )


def add_title(figure: Figure, text: str) -> None:
    """Writes the title of a figure at its top left."""
    width, height = figure.get_size_inches() * DPI
    figure.text(15 / width, 1 - 26 / height, text, fontsize=TITLE)


def encode_png(figure: Figure, software: str | None = None) -> bytes:
    """Returns the PNG file of a figure: the same bytes for the same figure.

    Args:
      figure: The figure.
      software: What the file says it was made by; None: nothing.
    """
    file = io.BytesIO()
    # By itself Matplotlib would write its version into the file.
    metadata = {"Software": software}
    figure.savefig(file, format="png", dpi=DPI, metadata=metadata)
    return file.getvalue()
