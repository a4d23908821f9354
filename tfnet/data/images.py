"""Images: one rule to decode, resize and scale them, for training and export.

The rule, stated for users in README: a file is decoded as JPEG, PNG, GIF
(first frame), BMP or WebP (without alpha) to 8 bits and three channels (grey
repeated, palette looked up, alpha dropped) and, where a JPEG, PNG or WebP file
says how the camera was held (EXIF), turned upright; the whole image is then
brought to a square, bilinear, antialiased when it shrinks, rounded to 8 bits.
"""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfnet.data.orientation import may_be_turned, upright
from tfnet.data.scaling import SEED, Scaling


def decode(encoded: Any) -> tf.Tensor:
    """Decodes one image file.

    Args:
      encoded: The bytes of a JPEG, PNG, GIF, BMP or WebP file: a scalar string.

    Returns:
      uint8 [height, width, 3], as the camera saw it.

    Raises:
      tf.errors.InvalidArgumentError: These bytes are no such image.
    """
    return _decode(encoded, _is_unusual(encoded))


def decode_all(encoded: Any, size: int) -> tf.Tensor:
    """Decodes image files, and brings them to one size.

    Args:
      encoded: Their bytes: string [n].
      size: Height and width to bring them to, in pixels.

    Returns:
      uint8 [n, size, size, 3].

    Raises:
      tf.errors.InvalidArgumentError: One of them is no image.
    """
    return tf.map_fn(
        lambda one: resize(_decode(*one), size),
        # What is asked of all at once takes no time of each.
        (encoded, _is_unusual(encoded)),
        fn_output_signature=tf.TensorSpec([size, size, 3], tf.uint8),
    )


def _is_unusual(encoded: Any) -> tf.Tensor:
    """Returns which files may need more than TensorFlow's decoder: bool."""
    is_bmp = tf.strings.substr(encoded, 0, 2) == b"BM"
    return is_bmp | may_be_turned(encoded)


def _decode(encoded: Any, is_unusual: Any) -> tf.Tensor:
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    image.set_shape([None, None, 3])
    result = tf.cond(
        is_unusual,
        lambda: upright(encoded, _with_palette(encoded, image)),
        lambda: image,
    )
    result.set_shape([None, None, 3])
    return result


def _with_palette(encoded: Any, image: Any) -> tf.Tensor:
    """Looks a BMP's palette up, whose entries TensorFlow gives as if grey."""
    bits = _bytes_at(encoded, 28, 2, tf.int16)
    has_palette = tf.logical_and(
        tf.strings.substr(encoded, 0, 2) == b"BM",
        tf.reduce_all(tf.equal(bits, 8)),
    )
    return tf.cond(has_palette, lambda: _look_up(encoded, image), lambda: image)


def _look_up(encoded: Any, image: Any) -> tf.Tensor:
    """Returns the colours of a BMP with 8 bits a pixel.

    The palette follows the file header (14 bytes) and the information header,
    whose first four bytes are its size; an entry is blue, green, red, 0.
    """
    size = _bytes_at(encoded, 14, 4, tf.int32)[0]
    palette = _bytes_at(encoded, 14 + size, 4 * 256, tf.uint8)
    colours = tf.reshape(palette, [-1, 4])[:, 2::-1]
    looked_up = tf.gather(colours, tf.cast(image[..., 0], tf.int32))
    looked_up.set_shape([None, None, 3])
    return looked_up


def _bytes_at(encoded: Any, start: Any, count: int, dtype: Any) -> tf.Tensor:
    part = tf.strings.substr(
        encoded, tf.minimum(start, tf.strings.length(encoded)), count
    )
    return tf.io.decode_raw(part, dtype)


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


def scale(images: Any, scaling: Scaling) -> tf.Tensor:
    """Scales pixels: (x / 255 - mean) / std.

    Args:
      images: From 0 to 255, uint8 or Keras' floatx, [..., 3].
      scaling: The scaling of the run; by the seed's, any shape will do.

    Returns:
      Keras' floatx (float32, or float64 in a float64 run) of that shape; by the
      seed's scaling, in [-1, 1].
    """
    images = tf.cast(images, keras.config.floatx())
    if scaling == SEED:
        return (images / 255.0 - 0.5) / 0.5
    # What was cut out is `zero`, to the bit, and so comes to 0 exactly.
    zero = tf.constant(scaling.zero, images.dtype)
    return (images - zero) / tf.constant(scaling.one, images.dtype)
