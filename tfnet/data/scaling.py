"""Scaling: what is done to a pixel before the model sees it.

A `Scaling` is a plain value, made once in a run and kept in its record and its
checkpoints; whatever gives images to its model is given it. `images.scale`
applies it. Imports no TensorFlow.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from tfnet.data.dataset import Examples

COLOURS = ("red", "green", "blue")
# What stays in a cache while it is added up.
_BLOCK_BYTES = 2**20
_PIXEL = 255


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Takes a pixel x, from 0 to 255, to (x / 255 - mean) / std.

    Attributes:
      mean: Of red, green and blue, where 255 is 1.
      std: The same, each above 0.

    Raises:
      ValueError: They are not three finite numbers each, or a std is not
        above 0.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        """Checks the numbers: they may come from a file."""
        for numbers in (self.mean, self.std):
            if len(numbers) != len(COLOURS):
                raise ValueError("a scaling has a number for each colour")
            if not all(math.isfinite(number) for number in numbers):
                raise ValueError("a scaling has finite numbers")
        if min(self.std) <= 0:
            raise ValueError("a scaling divides by numbers above 0")

    @property
    def zero(self) -> tuple[float, ...]:
        """The pixel that is scaled to 0: red, green and blue, from 0 to 255."""
        return tuple(_PIXEL * one for one in self.mean)

    @property
    def one(self) -> tuple[float, ...]:
        """How far from `zero` a pixel is scaled to 1, likewise."""
        return tuple(_PIXEL * one for one in self.std)

    @property
    def formula(self) -> str:
        """What it does to a pixel x, for a person: the numbers are rounded."""
        mean, std = map(_in_words, (self.mean, self.std))
        return f"(x / 255 - {mean}) / {std}"

    def kept(self) -> dict[str, list[float]]:
        """Returns what JSON can hold, every bit of it."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def read(cls, kept: Mapping[str, Any] | None) -> Self:
        """Returns what was `kept`.

        Args:
          kept: None: by a run of a version that only knew the seed's.

        Raises:
          ValueError, KeyError, TypeError: It was not kept by `kept`.
        """
        if kept is None:
            kept = SEED.kept()
        numbers = [
            tuple(float(number) for number in kept[name])
            for name in ("mean", "std")
        ]
        return cls(*numbers)


# The seed's: to [-1, 1].
SEED = Scaling((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def scaling_of(examples: Examples) -> tuple[Scaling, list[str]]:
    """Returns the scaling that takes images to mean 0 and deviation 1.

    The mean and the standard deviation (of the population, not of a sample) are
    those of all pixels of a colour, from sums in whole numbers: exact to the
    last bits of a float64, and the same on every machine. The images are read
    once, some at a time.

    Args:
      examples: The images, one at least; their labels are not looked at.

    Returns:
      The scaling; and a line if a colour is the same in every pixel, so that
      its deviation is 0: it is divided by 1 instead.
    """
    pixels, sums, squares = _sums(examples)
    mean, std = [], []
    for total, square in zip(sums, squares, strict=True):
        mean.append(total / (_PIXEL * pixels))
        # Python's whole numbers do not round, where a difference of large
        # floats would leave nothing.
        variance = (pixels * square - total**2) / pixels**2
        std.append(math.sqrt(variance) / _PIXEL)
    still = [
        f"{colour} (always {round(_PIXEL * one)})"
        for colour, one, deviation in zip(COLOURS, mean, std, strict=True)
        if deviation == 0
    ]
    notes = [
        "All pixels of the training images have the same"
        f" {' and '.join(still)}: --normalize=dataset takes the mean away and"
        " divides by 1, since the standard deviation is 0."
    ]
    scaling = Scaling(tuple(mean), tuple(one or 1.0 for one in std))
    return scaling, notes if still else []


def _in_words(numbers: tuple[float, ...]) -> str:
    words = [f"{number:.6g}" for number in numbers]
    return words[0] if len(set(words)) == 1 else f"({', '.join(words)})"


def _sums(examples: Examples) -> tuple[int, list[int], list[int]]:
    """Returns the number of pixels, and of each colour sum and squares."""
    height, width, channels = examples.image_shape
    block = max(1, _BLOCK_BYTES // examples.image_bytes)
    sums, squares = np.zeros((2, channels), np.uint64)
    for start in range(0, len(examples), block):
        chosen = np.arange(start, min(start + block, len(examples)))
        images, _ = examples.take(chosen)
        # The first axis first: along it, NumPy adds whole rows at once.
        values = images.reshape(len(images), -1)
        sums += _by_colour(values, channels)
        # 255 squared fits.
        squares += _by_colour(np.square(values, dtype=np.uint16), channels)
    count = len(examples) * height * width
    return count, sums.tolist(), squares.tolist()


def _by_colour(values: np.ndarray, channels: int) -> np.ndarray:
    by_place = values.sum(axis=0, dtype=np.uint64)
    return by_place.reshape(-1, channels).sum(axis=0)
