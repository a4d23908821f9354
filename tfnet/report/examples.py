"""Images of the data set, with what the model takes them for."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfnet.report import style
from tfnet.report.names import fit, fit_names, widest

# What a grid, a row of a pair and the augmented images hold at most.
GRID_IMAGES = 16
PAIR_IMAGES = 6
AUGMENTED_ROWS = 6

_MARGIN = 15
_TOP = 48
_LINE = 14


@dataclasses.dataclass(frozen=True)
class Guess:
    """What the model takes an example for.

    Attributes:
      truth: The true class.
      guess: The likeliest class.
      truth_probability: What the true class is given, from 0 to 1.
      guess_probability: What the guess is given, from 0 to 1.
    """

    truth: int
    guess: int
    truth_probability: float
    guess_probability: float


def draw_grid(
    images: np.ndarray,
    guesses: Sequence[Guess],
    class_names: Sequence[str],
    *,
    title: str,
) -> Figure:
    """Draws images with their true classes, and guesses where they differ.

    Args:
      images: uint8 [k, height, width, 3], from 1 to `GRID_IMAGES`.
      guesses: What the model takes each for: k.
      class_names: The name of each class.
      title: Says what is seen.
    """
    columns = 4
    pitch = (style.HALF - 2 * _MARGIN) // columns
    size = _tile_size(images, 128)
    lines = 2 if any(one.guess != one.truth for one in guesses) else 1
    height = size + lines * _LINE + 18
    rows = math.ceil(len(images) / columns)
    axes = _canvas(_TOP + rows * height, title)
    room = pitch - 8 - widest([" >99.9%"], style.SMALL)
    names = fit_names(class_names, room, style.SMALL)
    for i, (image, one) in enumerate(zip(images, guesses, strict=True)):
        left = _MARGIN + i % columns * pitch
        top = _TOP + i // columns * height
        _draw_image(axes, image, left, top, size)
        text = f"{names[one.truth]} {percent(one.truth_probability)}"
        _write(axes, text, left, top + size + _LINE)
        if one.guess != one.truth:
            text = f"{names[one.guess]} {percent(one.guess_probability)}"
            below = top + size + 2 * _LINE
            _write(axes, text, left, below, color=style.VERMILLION)
    return _figure(axes)


def draw_pairs(
    pairs: Sequence[tuple[int, int, int]],
    support: Sequence[int],
    images: Sequence[np.ndarray],
    class_names: Sequence[str],
) -> Figure:
    """Draws which classes are confused most, and examples of it.

    Args:
      pairs: True class, guess and count of each.
      support: How many test examples each class has.
      images: Of each pair, from 1 to `PAIR_IMAGES` examples: uint8 [k,
        height, width, 3].
      class_names: The name of each class.
    """
    room = 165
    size = _tile_size(images[0], 66)
    pitch = max(size, 3 * _LINE) + 10
    title = "Most confused: the true class, and what it was taken for"
    axes = _canvas(_TOP + len(pairs) * pitch + 5, title)
    names = fit_names(class_names, room - 25, style.TEXT)
    for row, (truth, guess, count) in enumerate(pairs):
        top = _TOP + row * pitch
        share = percent(count / support[truth])
        text = f"{count:,} of {support[truth]:,} ({share})"
        _write(axes, names[truth], _MARGIN, top + 15, points=style.TEXT)
        _write(
            axes,
            f"→ {names[guess]}",
            _MARGIN,
            top + 32,
            points=style.TEXT,
            color=style.VERMILLION,
        )
        _write(
            axes,
            fit(text, room, style.SMALL),
            _MARGIN,
            top + 48,
            color=style.GREY,
        )
        for column, image in enumerate(images[row]):
            left = _MARGIN + room + 10 + column * (size + 6)
            _draw_image(axes, image, left, top, size)
    return _figure(axes)


def draw_augmented(originals: np.ndarray, augmented: np.ndarray) -> Figure:
    """Draws training images, and what augmentation makes of them.

    Args:
      originals: uint8 [k, height, width, 3]; the first `AUGMENTED_ROWS` are
        drawn.
      augmented: uint8 [k, times, height, width, 3]; of each, as many as fit
        are drawn.
    """
    size = _tile_size(originals, 78)
    pitch = size + 8
    rows = min(len(originals), AUGMENTED_ROWS)
    axes = _canvas(_TOP + 20 + rows * pitch + 5, "Augmented training images")
    first = _MARGIN + max(pitch, 60) + 20
    columns = (style.HALF - first) // pitch
    _write(axes, "original", _MARGIN, _TOP + 10, color=style.GREY)
    _write(axes, "as trained on", first, _TOP + 10, color=style.GREY)
    for row in range(rows):
        top = _TOP + 20 + row * pitch
        _draw_image(axes, originals[row], _MARGIN, top, size)
        for column, image in enumerate(augmented[row, :columns]):
            _draw_image(axes, image, first + column * pitch, top, size)
    return _figure(axes)


def percent(share: float) -> str:
    """Returns a share as a percentage that is 0 or 100 only where it is."""
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0.9995 <= share < 1:
        return ">99.9%"
    return f"{share:.1%}"


def _tile_size(images: np.ndarray, most: int) -> int:
    """Returns the pixels for the longer side of an image.

    A pixel of a small image becomes a square of whole pixels, unless much of
    the room would be left empty.
    """
    side = max(images.shape[1:3])
    whole = most // side * side
    return whole if whole >= 0.75 * most else most


def _canvas(height: int, title: str) -> Axes:
    """Returns axes over a whole figure, in pixels from the top left."""
    figure = style.new_figure(style.HALF, height)
    axes = style.add_axes(figure, 0, 0, style.HALF, height)
    axes.set_axis_off()
    axes.set_autoscale_on(False)
    axes.set_xlim(0, style.HALF)
    axes.set_ylim(height, 0)
    style.add_title(figure, title)
    return axes


def _figure(axes: Axes) -> Figure:
    figure = axes.figure
    assert isinstance(figure, Figure)
    return figure


def _draw_image(
    axes: Axes, image: np.ndarray, left: int, top: int, size: int
) -> None:
    scale = size / max(image.shape[:2])
    height, width = image.shape[0] * scale, image.shape[1] * scale
    axes.imshow(
        image,
        extent=(left, left + width, top + height, top),
        aspect="auto",
        # Whole pixels stay squares; what must shrink is smoothed.
        interpolation="nearest" if scale >= 1 else "antialiased",
    )


def _write(
    axes: Axes,
    text: str,
    left: int,
    base: int,
    *,
    points: float = style.SMALL,
    color: str = style.INK,
) -> None:
    axes.text(left, base, text, fontsize=points, color=color)
