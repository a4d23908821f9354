"""Small images in rows, on a canvas measured in pixels."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfnet.report import style

# Where the first image stands.
MARGIN, TOP = 15, 48


def new_canvas(height: int, title: str) -> tuple[Figure, Axes]:
    """Creates a figure, and axes over all of it, in pixels from the top left.

    Args:
      height: Of the figure, in pixels; it has half the width of a page.
      title: Says what is seen.
    """
    figure = style.new_figure(style.HALF, height)
    axes = style.add_axes(figure, 0, 0, style.HALF, height)
    axes.set_axis_off()
    # One axes for all images: one for each takes ten times as long.
    axes.set_autoscale_on(False)
    axes.set_xlim(0, style.HALF)
    axes.set_ylim(height, 0)
    style.add_title(figure, title)
    return figure, axes


def tile_size(images: np.ndarray, most: int) -> int:
    """Returns the pixels for the longer side of an image.

    A pixel of a small image becomes a square of whole pixels, unless much of
    the room would be left empty.

    Args:
      images: [k, height, width, 3].
      most: How many pixels there is room for.
    """
    side = max(images.shape[1:3])
    whole = most // side * side
    return whole if whole >= 0.75 * most else most


def draw_image(
    axes: Axes, image: np.ndarray, left: int, top: int, size: int
) -> None:
    """Draws an image on a canvas.

    Args:
      axes: Those of the canvas.
      image: uint8 [height, width, 3].
      left: Where its left is.
      top: Where its top is.
      size: The pixels of its longer side.
    """
    scale = size / max(image.shape[:2])
    height, width = image.shape[0] * scale, image.shape[1] * scale
    axes.imshow(
        image,
        extent=(left, left + width, top + height, top),
        aspect="auto",
        # Whole pixels stay squares; what must shrink is smoothed.
        interpolation="nearest" if scale >= 1 else "antialiased",
    )
