"""Class names as they stand in a picture: printable, of a width, all distinct.

Names come from folders, so they may be anything.
"""

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.ft2font import FT2Font, LoadFlags

from tfnet.report.style import DPI
from tfnet.texts import on_one_line

_ELLIPSIS = "…"


def fit_names(
    names: Sequence[str], pixels: int, points: float
) -> tuple[str, ...]:
    """Returns names that fit a width.

    A long one loses its middle: `Golden re…iever`. One with a character that
    the font lacks, or with nothing to see, is called by its number: `class 7`.
    Names that would read the same get their numbers behind them.

    Args:
      names: The names of the classes.
      pixels: How wide each may be.
      points: The size of the font.
    """
    plain = [_plain(name, i) for i, name in enumerate(names)]
    fitted = [_fit(name, pixels, points) for name in plain]
    times = Counter(fitted)
    for i, name in enumerate(plain):
        if times[fitted[i]] > 1:
            number = f" #{i}"
            room = pixels - _width(number, points)
            fitted[i] = _fit(name, room, points) + number
    return tuple(fitted)


def is_drawable(name: str) -> bool:
    """Says whether the pictures can show a name, whole or shortened."""
    font = _font()
    text = _one_line(name)
    return bool(text) and all(
        one.isprintable() and font.get_char_index(ord(one)) for one in text
    )


def widest(texts: Sequence[str], points: float) -> int:
    """Returns the pixels of the widest of some texts, rounded up."""
    return int(max(_width(text, points) for text in texts)) + 1


def _plain(name: str, number: int) -> str:
    return _one_line(name) if is_drawable(name) else f"class {number}"


def _one_line(name: str) -> str:
    """Returns a name on one line; blanks in a row become one."""
    return " ".join(on_one_line(name).split())


def _fit(text: str, pixels: float, points: float) -> str:
    """Returns a text without so much of its middle that it fits a width.

    Args:
      text: Only characters that the font has.
      pixels: How wide it may be.
      points: The size of the font.
    """
    if _width(text, points) <= pixels:
        return text
    low, high = 0, len(text) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _width(_without_middle(text, middle), points) <= pixels:
            low = middle
        else:
            high = middle - 1
    return _without_middle(text, low)


def _without_middle(text: str, kept: int) -> str:
    head = (kept * 3 + 4) // 5
    tail = text[len(text) - (kept - head) :]
    return text[:head].rstrip() + _ELLIPSIS + tail.lstrip()


def _width(text: str, points: float) -> float:
    # Without kerning, which only brings letters closer.
    em = points * DPI / 72
    return em * sum(_advance(letter) for letter in text)


@functools.cache
def _advance(letter: str) -> float:
    """Returns how far a letter moves the pen, in ems."""
    glyph = _font().load_char(ord(letter), flags=LoadFlags.NO_SCALE)
    return glyph.horiAdvance / _font().units_per_EM


@functools.cache
def _font() -> FT2Font:
    # The font that comes with Matplotlib, so that a report looks the same
    # wherever it is made.
    fonts = Path(matplotlib.get_data_path(), "fonts", "ttf")
    return FT2Font(str(fonts / "DejaVuSans.ttf"))
