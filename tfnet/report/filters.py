"""What the first layer of a network looks for."""

import math

import numpy as np
from matplotlib.figure import Figure

from tfnet.report import style

MOST_FILTERS = 96
_TILE = 66
_GAP = 10


def can_draw(kernel: np.ndarray) -> bool:
    """Says whether a kernel looks at colours, or at grey.

    Args:
      kernel: float32 [height, width, in, out].
    """
    return kernel.ndim == 4 and kernel.shape[2] in (1, 3)


def draw_filters(kernel: np.ndarray) -> Figure:
    """Draws the filters of a convolution as colours.

    Args:
      kernel: What `can_draw`: float32 [height, width, 1 or 3, out]. Of more
        than `MOST_FILTERS`, the first are drawn.
    """
    colours = filter_colours(kernel)[:MOST_FILTERS]
    columns = min(len(colours), (style.HALF - 30) // (_TILE + _GAP))
    rows = math.ceil(len(colours) / columns)
    figure = style.new_figure(style.HALF, rows * (_TILE + _GAP) + 55)
    for i, colour in enumerate(colours):
        axes = style.add_axes(
            figure,
            15 + i % columns * (_TILE + _GAP),
            45 + i // columns * (_TILE + _GAP),
            _TILE,
            _TILE,
        )
        axes.imshow(colour, interpolation="nearest", aspect="auto")
        axes.set_axis_off()
    height, width = kernel.shape[:2]
    style.add_title(
        figure, f"Filters of the first layer, {height} x {width} pixels"
    )
    return figure


def filter_colours(kernel: np.ndarray) -> np.ndarray:
    """Returns filters as colours: a weight of 0 is the middle grey.

    Args:
      kernel: float32 [height, width, 1 or 3, out].

    Returns:
      uint8 [out, height, width, 3]: the weight of a filter that is furthest
      from 0 has 0 or 255.
    """
    weights = np.moveaxis(np.asarray(kernel, np.float64), 3, 0)
    furthest = np.abs(weights).max(axis=(1, 2, 3), keepdims=True)
    # A filter that is 0 all over is grey all over.
    scaled = weights / np.where(furthest > 0, furthest, 1)
    colours = np.round(127.5 + 127.5 * scaled).astype(np.uint8)
    return np.broadcast_to(colours, (*colours.shape[:3], 3))
