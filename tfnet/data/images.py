"""Images: one rule to decode, resize and scale them, for training and export.

The rule, stated for users in README: a file is decoded as JPEG, PNG, GIF
(first frame), BMP or WebP to 8 bits and three channels (grey repeated, palette
looked up, alpha dropped); the whole image is then brought to a square,
bilinear, antialiased when it shrinks, rounded to 8 bits.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf


def decode(encoded: Any) -> tf.Tensor:
    """Decodes one image file.

    Args:
      encoded: The bytes of a JPEG, PNG, GIF, BMP or WebP file: a scalar string.

    Returns:
      uint8 [height, width, 3].

    Raises:
      tf.errors.InvalidArgumentError: These bytes are no such image.
    """
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    image.set_shape([None, None, 3])
    return image


def resize(images: Any, size: int) -> tf.Tensor:
    """Brings images to `size` x `size` pixels.

    Args:
      images: uint8 [..., height, width, 3], with 3 or 4 axes.
      size: Height and width to bring them to, in pixels.

    Returns:
      uint8 [..., size, size, 3]; the same values where nothing changes.
    """
    images = tf.convert_to_tensor(images)
    if images.shape[-3:-1] == [size, size]:
        return images

    def resized() -> tf.Tensor:
        values = tf.image.resize(images, [size, size], antialias=True)
        values = tf.clip_by_value(tf.round(values), 0, 255)
        return tf.cast(values, tf.uint8)

    same = tf.reduce_all(tf.equal(tf.shape(images)[-3:-1], size))
    result = tf.cond(same, lambda: images, resized)
    result.set_shape([*images.shape[:-3], size, size, 3])
    return result


def decoded_chunks(
    files: Any, size: int, chunk: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Decodes and resizes image files, in order, on all cores.

    Args:
      files: A tf.data.Dataset of pairs: the bytes of a file, and a label.
      size: Height and width to bring the images to, in pixels.
      chunk: How many images to give at a time.

    Yields:
      Images, uint8 [n, size, size, 3], and labels, int32 [n].

    Raises:
      tf.errors.OpError: A file can't be read, or is no image.
    """

    def bring(encoded: Any, label: Any) -> tuple[Any, Any]:
        return resize(decode(encoded), size), tf.cast(label, tf.int32)

    dataset = files.map(
        bring, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    yield from dataset.batch(chunk).prefetch(1).as_numpy_iterator()


def scale(images: Any) -> tf.Tensor:
    """Scales pixels as the seed does: (x / 255 - 0.5) / 0.5.

    Args:
      images: uint8, any shape.

    Returns:
      float32 of that shape, in [-1, 1].
    """
    return (tf.cast(images, tf.float32) / 255.0 - 0.5) / 0.5
