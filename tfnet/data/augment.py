"""Augmentation: other views of the training images, drawn for each example.

What is drawn depends on the seed, the epoch and the example's place in it,
and on nothing else; it is new in every epoch.
"""

import dataclasses
from typing import Any, Protocol

import tensorflow as tf


class Draws(Protocol):
    """Where the random numbers come from."""

    def uniform(self, *shape: Any) -> tf.Tensor:
        """Draws from [0, 1): float32 of `shape`, whose first axis is rows."""


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What is done to the training images.

    Attributes:
      flip: Whether every other image, at random, is mirrored left to right.
      crop: Every image is moved by up to this many pixels in height and in
        width, and black fills what becomes free: a random crop of the image
        with a border of that width.
    """

    flip: bool = False
    crop: int = 0

    def __call__(self, images: Any, draws: Draws) -> Any:
        """Returns the images changed: uint8 [rows, height, width, channels].

        Args:
          images: The same.
          draws: Draws for these rows.
        """
        rows = tf.shape(images)[0]
        if self.flip:
            mirrored = draws.uniform(rows, 1, 1, 1) < 0.5
            images = tf.where(mirrored, tf.reverse(images, [2]), images)
        if self.crop:
            width = 2 * self.crop + 1
            drawn = tf.floor(draws.uniform(rows, 2) * width)
            images = _crop(images, tf.cast(drawn, tf.int32), self.crop)
        return images


def _crop(images: Any, starts: Any, border: int) -> Any:
    """Cuts each image out of itself with a border, from its `starts`."""
    height, width = images.shape[1:3]
    sides = [border, border]
    padded = tf.pad(images, [[0, 0], sides, sides, [0, 0]])
    rows = starts[:, :1] + tf.range(height)
    columns = starts[:, 1:] + tf.range(width)
    padded = tf.gather(padded, rows, axis=1, batch_dims=1)
    return tf.gather(padded, columns, axis=2, batch_dims=1)
