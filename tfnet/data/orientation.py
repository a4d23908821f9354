r"""How a camera was held: the EXIF orientation of a JPEG file, and undoing it.

Made of TensorFlow's operations alone, so that the exported model does it too.
A JPEG file is a row of segments: 0xFF, a marker, the length in two bytes that
count themselves, the contents. One with the marker 0xE1 whose contents begin
with "Exif\0\0" holds a TIFF file; the tag 0x0112 in its first directory is the
orientation, from 1 (upright) to 8 (Exif 2.32, JEITA CP-3451).
"""

from typing import Any

import tensorflow as tf

# The segments before the picture are looked at this far.
_HEAD_BYTES = 2**18
_EXIF = tuple(b"Exif\0\0")
_APP1 = 0xE1
# From here on the picture itself follows.
_SCAN = 0xDA
_TAG = 0x0112
_TAG_BYTES = 12


def turned(encoded: Any, image: Any) -> tf.Tensor:
    """Returns an image as the camera saw it.

    Args:
      encoded: The file that it was decoded from: a scalar string. What is no
        JPEG file, or has no valid orientation, is left as it is.
      image: uint8 [height, width, 3].

    Returns:
      uint8, [height, width, 3] or [width, height, 3].
    """
    head = tf.strings.substr(encoded, 0, _HEAD_BYTES)
    # Most files have none, and are told by this in a tenth of the time.
    is_jpeg = tf.strings.substr(encoded, 0, 2) == b"\xff\xd8"
    has_exif = is_jpeg & tf.strings.regex_full_match(head, r"\C*Exif\C*")
    result = tf.cond(
        has_exif, lambda: _turned(image, _orientation(head)), lambda: image
    )
    result.set_shape([None, None, 3])
    return result


def _turned(image: Any, orientation: Any) -> tf.Tensor:
    # From 5 on rows and columns are exchanged, before they are mirrored.
    image = tf.cond(orientation >= 5, lambda: _transposed(image), lambda: image)
    is_mirrored = [_is_among(orientation, (2, 3, 6, 7))]
    is_upside_down = [_is_among(orientation, (3, 4, 7, 8))]
    image = tf.reverse(image, tf.boolean_mask([1], is_mirrored))
    return tf.reverse(image, tf.boolean_mask([0], is_upside_down))


def _transposed(image: Any) -> tf.Tensor:
    """Exchanges rows and columns.

    Not by tf.transpose, about which oneDNN complains on the screen where it
    has no kernel for bytes.
    """
    height, width = tf.unstack(tf.shape(image)[:2])
    pixels = tf.reshape(image, [-1, 3])
    places = tf.range(height) * width + tf.range(width)[:, None]
    return tf.gather(pixels, places)


def _is_among(value: Any, values: tuple[int, ...]) -> tf.Tensor:
    return tf.reduce_any(value == tf.constant(values))


def _orientation(head: Any) -> tf.Tensor:
    """Returns the orientation, from 1 to 8: int32 scalar; 1 if none is set."""
    head = tf.cast(tf.io.decode_raw(head, tf.uint8), tf.int32)
    end = tf.size(head)

    def is_exif(at: Any) -> tf.Tensor:
        return tf.reduce_all(_bytes(head, at + 1, 1) == _APP1) & tf.reduce_all(
            _bytes(head, at + 4, 6) == tf.constant(_EXIF)
        )

    def goes_on(at: Any) -> tf.Tensor:
        marker = _bytes(head, at, 2)
        is_segment = (marker[0] == 0xFF) & (marker[1] != _SCAN)
        return (at < end) & is_segment & ~is_exif(at)

    def following(at: Any) -> tuple[tf.Tensor]:
        return (at + 2 + _number(_bytes(head, at + 2, 2)),)

    (at,) = tf.while_loop(goes_on, following, (tf.constant(2),))
    return tf.cond(
        (at < end) & is_exif(at), lambda: _of_tiff(head, at + 10), lambda: 1
    )


def _of_tiff(head: Any, start: Any) -> tf.Tensor:
    # "II" for low bytes first, "MM" for high bytes first.
    low_first = _bytes(head, start, 1)[0] == ord("I")

    def numbers(values: Any) -> tf.Tensor:
        ordered = tf.cond(
            low_first, lambda: tf.reverse(values, [-1]), lambda: values
        )
        return _number(ordered)

    directory = start + numbers(_bytes(head, start + 4, 4))
    # A damaged file may say anything.
    directory = tf.clip_by_value(directory, 0, tf.size(head))
    count = numbers(_bytes(head, directory, 2))
    table = tf.reshape(
        _bytes(head, directory + 2, _TAG_BYTES * count), [-1, _TAG_BYTES]
    )
    values = numbers(table[:, 8:10])
    found = tf.boolean_mask(values, numbers(table[:, :2]) == _TAG)
    value = tf.concat([found, [1]], 0)[0]
    return tf.where((value >= 1) & (value <= 8), value, 1)


def _bytes(head: Any, at: Any, count: Any) -> tf.Tensor:
    """Returns `count` bytes from `at` on; behind the end there are zeros."""
    places = at + tf.range(count)
    is_there = places < tf.size(head)
    read = tf.gather(head, tf.minimum(places, tf.size(head) - 1))
    return tf.where(is_there, read, 0)


def _number(values: Any) -> tf.Tensor:
    """Returns the numbers whose bytes stand in the last axis, high first."""
    total = tf.zeros_like(values[..., 0])
    for i in range(values.shape[-1]):
        total = total * 256 + values[..., i]
    return total
