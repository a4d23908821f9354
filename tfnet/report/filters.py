"""What the first layer of a network looks for."""

import math

import numpy as np
from matplotlib.figure import Figure

from tfnet.report import style
from tfnet.report.tiles import MARGIN, TOP, draw_image, new_canvas, tile_size

MOST_FILTERS = 96


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
    size = tile_size(colours, 66)
    pitch = size + 10
    columns = (style.HALF - 2 * MARGIN + 10) // pitch
    rows = math.ceil(len(colours) / columns)
    height, width = kernel.shape[:2]
    figure, axes = new_canvas(
        TOP + rows * pitch + 5,
        f"Filters of the first layer, {height} x {width} pixels",
    )
    for i, colour in enumerate(colours):
        left = MARGIN + i % columns * pitch
        draw_image(axes, colour, left, TOP + i // columns * pitch, size)
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
