"""Augmentation: other views of the training images, drawn for each example.

What is drawn depends on the seed, the epoch and the example's place in it,
and on nothing else; it is new in every epoch.
"""

import dataclasses
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from tfnet.data.scaling import SEED

# What red, green and blue weigh in the grey of a colour (ITU-R BT.601).
_GREY = (0.299, 0.587, 0.114)


class Draws(Protocol):
    """Where the random numbers come from."""

    def uniform(self, *shape: Any) -> tf.Tensor:
        """Draws from [0, 1): float32 of `shape`, whose first axis is rows."""


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What is done to the training images, in this order.

    Attributes:
      flip: Whether every other image, at random, is mirrored left to right.
      crop: Every image is moved by up to this many pixels in height and in
        width, and black fills what becomes free: a random crop of the image
        with a border of that width.
      color: Brightness, contrast and saturation of every image change, each
        by a factor from [1 - color, 1 + color]: x becomes brightness * x,
        then contrast * x + (1 - contrast) * (the mean of the image's grey),
        then saturation * x + (1 - saturation) * (the grey of the pixel), each
        held within 0 and 255 and not rounded. Grey is 0.299 red + 0.587
        green + 0.114 blue.
      cutout: A square of so many pixels a side, with its middle anywhere in
        the image and cut off at its borders, is set to what is scaled to 0
        (DeVries and Taylor, Improved Regularization of Convolutional Neural
        Networks with Cutout, 2017): grey, or the mean colour of the training
        images.
    """

    flip: bool = False
    crop: int = 0
    color: float = 0.0
    cutout: int = 0

    def __call__(
        self,
        images: Any,
        draws: Draws,
        zero: tuple[float, ...] = SEED.zero,
    ) -> Any:
        """Returns the images changed: [rows, height, width, channels].

        They are uint8, or, after `crop`, `color` or `cutout`, Keras' floatx
        from 0 to 255.

        Args:
          images: uint8 [rows, height, width, channels].
          draws: Draws for these rows.
          zero: The pixel that is scaled to 0: what is cut out becomes this.
        """
        rows = tf.shape(images)[0]
        if self.flip:
            mirrored = draws.uniform(rows, 1, 1, 1) < 0.5
            images = tf.where(mirrored, tf.reverse(images, [2]), images)
        if self.crop or self.color or self.cutout:
            # Before the crop: no GPU gathers bytes.
            images = tf.cast(images, keras.config.floatx())
        if self.crop:
            width = 2 * self.crop + 1
            drawn = tf.floor(draws.uniform(rows, 2) * width)
            images = _crop(images, tf.cast(drawn, tf.int32), self.crop)
        if self.color:
            drawn = tf.cast(draws.uniform(rows, 3), images.dtype)
            factors = 1 + self.color * (2 * drawn - 1)
            images = _recolor(images, factors)
        if self.cutout:
            height, width = images.shape[1:3]
            drawn = tf.floor(draws.uniform(rows, 2) * [height, width])
            middles = tf.cast(drawn, tf.int32)
            images = _cut_out(images, middles, self.cutout, zero)
        return images


@dataclasses.dataclass
class _Anew:
    """Draws anew in each call, for whoever looks and does not train."""

    seed: int
    calls: int = 0

    def uniform(self, *shape: Any) -> tf.Tensor:
        self.calls += 1
        return tf.random.stateless_uniform(shape, [self.seed, self.calls])


def draw_views(
    augmentation: Augmentation,
    images: np.ndarray,
    zero: tuple[float, ...],
    *,
    times: int,
    seed: int,
) -> np.ndarray:
    """Returns what augmentation makes of images, several times over.

    Args:
      augmentation: What is done to them.
      images: uint8 [n, height, width, 3].
      zero: The pixel that is scaled to 0.
      times: How many views of each.
      seed: Fixes what is drawn, which is not what training draws.

    Returns:
      uint8 [n, times, height, width, 3].
    """
    repeated = np.repeat(images, times, axis=0)
    views = augmentation(tf.constant(repeated), _Anew(seed), zero).numpy()
    views = np.rint(views).astype(np.uint8)
    return views.reshape(len(images), times, *images.shape[1:])


def _crop(images: Any, starts: Any, border: int) -> Any:
    """Cuts each image out of itself with a border, from its `starts`."""
    height, width = images.shape[1:3]
    sides = [border, border]
    padded = tf.pad(images, [[0, 0], sides, sides, [0, 0]])
    rows = starts[:, :1] + tf.range(height)
    columns = starts[:, 1:] + tf.range(width)
    padded = tf.gather(padded, rows, axis=1, batch_dims=1)
    return tf.gather(padded, columns, axis=2, batch_dims=1)


def _recolor(images: Any, factors: Any) -> Any:
    """Applies brightness, contrast and saturation: factors [rows, 3]."""
    brightness, contrast, saturation = (
        factors[:, i, None, None, None] for i in range(3)
    )
    weights = tf.constant(_GREY, images.dtype)

    def grey(images: Any) -> Any:
        return tf.reduce_sum(images * weights, axis=-1, keepdims=True)

    def held(images: Any) -> Any:
        return tf.clip_by_value(images, 0, 255)

    images = held(brightness * images)
    mean = tf.reduce_mean(grey(images), axis=[1, 2], keepdims=True)
    images = held(contrast * images + (1 - contrast) * mean)
    return held(saturation * images + (1 - saturation) * grey(images))


def _cut_out(
    images: Any, middles: Any, side: int, zero: tuple[float, ...]
) -> Any:
    """Fills a square around each of `middles`: [rows, (row, column)]."""
    height, width = images.shape[1:3]
    first = middles - side // 2

    def within(places: Any, first: Any) -> Any:
        return (places >= first) & (places < first + side)

    rows = within(tf.range(height), first[:, :1])
    columns = within(tf.range(width), first[:, 1:])
    is_cut = rows[:, :, None, None] & columns[:, None, :, None]
    return tf.where(is_cut, tf.constant(zero, images.dtype), images)
