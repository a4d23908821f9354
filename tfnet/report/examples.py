"""Images of the data set, with what the model takes them for."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfnet.report import style
from tfnet.report.names import fit_names, widest
from tfnet.report.tiles import MARGIN, TOP, draw_image, new_canvas, tile_size

# What a grid, a row of a pair and the augmented images hold at most.
GRID_IMAGES = 16
PAIR_IMAGES = 6
AUGMENTED_ROWS = 6

_LINE = 14
_PAIR_ROOM = 165


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
    pitch = (style.HALF - 2 * MARGIN) // columns
    size = tile_size(images, 128)
    lines = 2 if any(one.guess != one.truth for one in guesses) else 1
    height = size + lines * _LINE + 18
    rows = math.ceil(len(images) / columns)
    figure, axes = new_canvas(TOP + rows * height, title)
    room = pitch - 8 - widest([" >99.9%"], style.SMALL)
    names = fit_names(class_names, room, style.SMALL)
    for i, (image, one) in enumerate(zip(images, guesses, strict=True)):
        left = MARGIN + i % columns * pitch
        top = TOP + i // columns * height
        draw_image(axes, image, left, top, size)
        text = f"{names[one.truth]} {percent(one.truth_probability)}"
        _write(axes, text, left, top + size + _LINE)
        if one.guess != one.truth:
            text = f"{names[one.guess]} {percent(one.guess_probability)}"
            below = top + size + 2 * _LINE
            _write(axes, text, left, below, color=style.VERMILLION)
    return figure


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
    size = tile_size(images[0], 66)
    pitch = max(size, 3 * _LINE) + 10
    title = "Most confused: the true class, and what it was taken for"
    figure, axes = new_canvas(TOP + len(pairs) * pitch + 5, title)
    names = fit_names(class_names, _PAIR_ROOM - 25, style.TEXT)
    for row, (truth, guess, count) in enumerate(pairs):
        top = TOP + row * pitch
        _write(axes, names[truth], MARGIN, top + 15, points=style.TEXT)
        _write(
            axes,
            f"→ {names[guess]}",
            MARGIN,
            top + 32,
            points=style.TEXT,
            color=style.VERMILLION,
        )
        share = percent(count / support[truth])
        text = f"{count:,} of {support[truth]:,} ({share})"
        _write(axes, text, MARGIN, top + 48, color=style.GREY)
        for column, image in enumerate(images[row]):
            left = MARGIN + _PAIR_ROOM + 10 + column * (size + 6)
            draw_image(axes, image, left, top, size)
    return figure


def draw_augmented(originals: np.ndarray, augmented: np.ndarray) -> Figure:
    """Draws training images, and what augmentation makes of them.

    Args:
      originals: uint8 [k, height, width, 3]; the first `AUGMENTED_ROWS` are
        drawn.
      augmented: uint8 [k, times, height, width, 3]; of each, as many as fit
        are drawn.
    """
    size = tile_size(originals, 78)
    pitch = size + 8
    rows = min(len(originals), AUGMENTED_ROWS)
    figure, axes = new_canvas(
        TOP + 20 + rows * pitch + 5, "Augmented training images"
    )
    first = MARGIN + max(pitch, 60) + 20
    columns = (style.HALF - first) // pitch
    _write(axes, "original", MARGIN, TOP + 10, color=style.GREY)
    _write(axes, "changed at random", first, TOP + 10, color=style.GREY)
    for row in range(rows):
        top = TOP + 20 + row * pitch
        draw_image(axes, originals[row], MARGIN, top, size)
        for column, image in enumerate(augmented[row, :columns]):
            draw_image(axes, image, first + column * pitch, top, size)
    return figure


def draw_examples(
    images: np.ndarray, labels: np.ndarray, class_names: Sequence[str]
) -> Figure:
    """Draws training images with their classes.

    Args:
      images: uint8 [k, height, width, 3]; the first `GRID_IMAGES` are drawn.
      labels: integers [k].
      class_names: The name of each class.
    """
    columns = 4
    pitch = (style.HALF - 2 * MARGIN) // columns
    size = tile_size(images, 128)
    height = size + _LINE + 18
    count = min(len(images), GRID_IMAGES)
    rows = math.ceil(count / columns)
    figure, axes = new_canvas(TOP + rows * height, "Training images")
    names = fit_names(class_names, pitch - 8, style.SMALL)
    for i in range(count):
        left = MARGIN + i % columns * pitch
        top = TOP + i // columns * height
        draw_image(axes, images[i], left, top, size)
        _write(axes, names[labels[i]], left, top + size + _LINE)
    return figure


def percent(share: float) -> str:
    """Returns a share as a percentage that is 0 or 100 only where it is."""
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0.9995 <= share < 1:
        return ">99.9%"
    return f"{share:.1%}"


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
