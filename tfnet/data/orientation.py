r"""How a camera was held: the EXIF orientation of a file, and undoing it.

Made of TensorFlow's operations alone, so that the exported model does it too.
The orientation, from 1 (upright) to 8, is the tag 0x0112 in the first directory
of a TIFF file (Exif 2.32, JEITA CP-3451) that lies inside another:

* JPEG is a row of segments: 0xFF, a marker, the length in two bytes that count
  themselves, the contents. It is in one with the marker 0xE1 whose contents
  begin with "Exif\0\0".
* PNG is a row of chunks: the length of the contents in four bytes, high first,
  a name, the contents, a checksum. It is in eXIf, before or behind the picture.
* WebP is a row of chunks: a name, the length in four bytes, low first, the
  contents, made even. It is in EXIF, where the first chunk, VP8X, says so.

What is damaged, or says no such number, is left as it is, as Pillow does.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_APP1 = 0xE1
# From here on the picture itself follows.
_SCAN = 0xDA
# Some repeat it inside a chunk that says so by its name.
_PREFIX = rb"^(Exif\x00\x00)+"
# A file of 100 MB in chunks of 8 KiB has fewer; none is made to be walked
# through for long.
_MOST_CHUNKS = 2**14
_TAG = 0x0112
_TAG_BYTES = 12
# Bytes of one value, by the type of a tag; 0 where there is no such type.
_UNITS = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8)
# Those that are whole numbers, but for bytes.
_INTEGERS = (3, 4, 6, 8, 9, 13, 16)


def may_be_turned(encoded: Any) -> tf.Tensor:
    """Returns which files may say how the camera was held.

    Args:
      encoded: Image files: string of any shape.

    Returns:
      bool of that shape. Most files say nothing, and are told by this in
      little time: a search for letters is several times faster than one for a
      pattern.
    """
    rest = encoded
    for name in ("Exif", "eXIf"):
        rest = tf.strings.regex_replace(rest, name, "", replace_global=False)
    has_name = tf.strings.length(rest) < tf.strings.length(encoded)
    is_extended = tf.strings.regex_full_match(
        tf.strings.substr(encoded, 0, 16), r"RIFF\C{8}VP8X"
    )
    return has_name | is_extended


# A function that is not spread out in the graph: of a branch that is not taken,
# TensorFlow passes over every operation, one by one.
@tf.function(
    input_signature=[
        tf.TensorSpec([], tf.string),
        tf.TensorSpec([None, None, 3], tf.uint8),
    ],
    autograph=False,
    experimental_attributes={"_noinline": True},
)
def upright(encoded: Any, image: Any) -> tf.Tensor:
    """Returns an image as the camera saw it.

    Args:
      encoded: The file that it was decoded from: a scalar string. What is no
        JPEG, PNG or WebP file, or has no valid orientation, is left as it is.
      image: uint8 [height, width, 3].

    Returns:
      uint8, [height, width, 3] or [width, height, 3].
    """
    return _turned(image, _orientation(_tiff(encoded)))


def _tiff(encoded: Any) -> tf.Tensor:
    """Returns the TIFF file in an image; empty where there is none."""
    kinds = [
        tf.strings.substr(encoded, 0, 2) == b"\xff\xd8",
        tf.strings.substr(encoded, 0, 4) == b"\x89PNG",
        tf.strings.substr(encoded, 0, 4) == b"RIFF",
        tf.constant(True),
    ]
    found = tf.switch_case(
        tf.argmax(kinds, output_type=tf.int32),
        [
            lambda: _of_jpeg(encoded),
            lambda: _of_png(encoded),
            lambda: _of_webp(encoded),
            lambda: tf.constant(b""),
        ],
    )
    return tf.strings.regex_replace(found, _PREFIX, b"")


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
    return tf.reduce_any(value == tf.constant(values, value.dtype))


def _of_jpeg(file: Any) -> tf.Tensor:
    """Returns what the first segment for EXIF of a JPEG file holds."""

    def is_exif(head: Any) -> tf.Tensor:
        return (head[1] == _APP1) & _is(head[4:], b"Exif\0\0")

    def goes_on(at: Any) -> tf.Tensor:
        head = _bytes(file, at, 10)
        is_segment = (head[0] == 0xFF) & (head[1] != _SCAN)
        return is_segment & ~is_exif(head)

    def following(at: Any) -> tuple[tf.Tensor]:
        return (at + 2 + _number(_bytes(file, at + 2, 2)),)

    (at,) = _walk(goes_on, following, 2)
    head = _bytes(file, at, 10)
    size = tf.where(is_exif(head), _number(head[2:4]) - 8, 0)
    return _part(file, at + 10, size)


def _of_png(file: Any) -> tf.Tensor:
    """Returns what the last eXIf of a PNG file holds."""
    end = _length(file)

    def goes_on(at: Any, start: Any, size: Any) -> tf.Tensor:
        return at < end

    def following(at: Any, start: Any, size: Any) -> tuple[tf.Tensor, ...]:
        head = _bytes(file, at, 8)
        length = _number(head[:4])
        after = at + 12 + length
        is_it = _is(head[4:], b"eXIf") & (after <= end)
        return (
            tf.where(_is(head[4:], b"IEND"), end, after),
            tf.where(is_it, at + 8, start),
            tf.where(is_it, length, size),
        )

    _, start, size = _walk(goes_on, following, 8, 0, 0)
    return _part(file, start, size)


def _of_webp(file: Any) -> tf.Tensor:
    """Returns what the first EXIF of a WebP file holds."""
    head = _bytes(file, 0, 21)
    has_flag = _is(head[12:16], b"VP8X") & (head[20] // 8 % 2 == 1)
    # What stands behind the end that it names is not read.
    end = tf.minimum(_length(file), 8 + _number(head[7:3:-1]))

    def goes_on(at: Any, start: Any, size: Any) -> tf.Tensor:
        return has_flag & (at < end) & (start == 0)

    def following(at: Any, start: Any, size: Any) -> tuple[tf.Tensor, ...]:
        head = _bytes(file, at, 8)
        length = _number(head[:3:-1])
        after = at + 8 + length + length % 2
        is_it = _is(head[:4], b"EXIF") & (after <= end)
        return (
            after,
            tf.where(is_it, at + 8, start),
            tf.where(is_it, length, size),
        )

    _, start, size = _walk(goes_on, following, 12, 0, 0)
    return _part(file, start, size)


def _walk(
    goes_on: Callable[..., tf.Tensor],
    following: Callable[..., tuple[tf.Tensor, ...]],
    *start: Any,
) -> tuple[tf.Tensor, ...]:
    """Goes from one chunk to the next; the place and what else is int64."""
    return tf.while_loop(
        goes_on,
        following,
        tuple(tf.cast(one, tf.int64) for one in start),
        maximum_iterations=_MOST_CHUNKS,
    )


def _orientation(tiff: Any) -> tf.Tensor:
    """Returns the orientation, from 1 to 8: int64 scalar; 1 if none is set."""
    head = _bytes(tiff, 0, 8)
    # "II" for low bytes first, "MM" for high bytes first, then the number 42,
    # in any order.
    low_first = _is(head[:2], b"II")
    is_tiff = (low_first | _is(head[:2], b"MM")) & (
        _is(head[2:4], b"\0*") | _is(head[2:4], b"*\0")
    )

    def number(values: Any) -> tf.Tensor:
        return _number(tf.where(low_first, values[..., ::-1], values))

    directory = number(head[4:])
    first = directory + 2
    count = number(_bytes(tiff, directory, 2))
    # A damaged file may say anything.
    room = tf.maximum(_length(tiff) - first, 0) // _TAG_BYTES
    count = tf.minimum(count, room)
    table = tf.io.decode_raw(_part(tiff, first, _TAG_BYTES * count), tf.uint8)
    table = tf.cast(tf.reshape(table, [-1, _TAG_BYTES]), tf.int64)
    kinds = number(table[:, 2:4])
    known = tf.where(kinds < len(_UNITS), kinds, 0)
    sizes = number(table[:, 4:8]) * tf.gather(
        tf.constant(_UNITS, tf.int64), known
    )
    # Four bytes stand in the table, more stand elsewhere.
    offsets = number(table[:, 8:])
    is_far = sizes > 4
    inside = _are_read(is_far, offsets, sizes, _length(tiff))
    is_it = (number(table[:, :2]) == _TAG) & (sizes > 0) & inside
    rows = tf.where(is_it)[:, 0]
    places = tf.where(is_far, offsets, first + _TAG_BYTES * tf.range(count) + 8)

    def value() -> tf.Tensor:
        row = rows[0]
        unit = tf.gather(_UNITS, known[row])
        read = _bytes(tiff, places[row], 8)[:unit]
        read = tf.pad(tf.where(low_first, read[::-1], read), [[8 - unit, 0]])
        read.set_shape([8])
        found = _number(read)
        is_valid = (
            _is_among(known[row], _INTEGERS) & (found >= 1) & (found <= 8)
        )
        return tf.where(is_valid, found, 1)

    none = tf.constant(1, tf.int64)
    return tf.cond(is_tiff & (tf.size(rows) > 0), value, lambda: none)


def _are_read(is_far: Any, offsets: Any, sizes: Any, limit: Any) -> tf.Tensor:
    """Returns which tags Pillow reads: bool [tags].

    One that with those before it is larger than the file is left out; one that
    begins inside the file and ends outside ends the reading.
    """
    total = tf.cumsum(tf.where(is_far, sizes, 0))
    is_left_out = is_far & (total > limit)
    ends = is_far & ~is_left_out & (offsets + sizes > limit)
    has_ended = tf.cumsum(tf.cast(ends, tf.int64)) > 0
    return ~is_left_out & ~has_ended


def _bytes(text: Any, at: Any, count: int) -> tf.Tensor:
    """Returns `count` bytes: int64; behind the end there are zeros."""
    part = _part(text, at, count)
    return tf.cast(
        tf.io.decode_raw(part, tf.uint8, fixed_length=count), tf.int64
    )


def _part(text: Any, at: Any, count: Any) -> tf.Tensor:
    """Returns a part of a string, as far as it is there."""
    at = tf.minimum(tf.cast(at, tf.int64), _length(text))
    count = tf.maximum(tf.cast(count, tf.int64), 0)
    return tf.strings.substr(text, at, count)


def _length(text: Any) -> tf.Tensor:
    return tf.cast(tf.strings.length(text), tf.int64)


def _is(found: Any, text: bytes) -> tf.Tensor:
    return tf.reduce_all(found == tf.constant(list(text), tf.int64))


def _number(values: Any) -> tf.Tensor:
    """Returns the numbers whose bytes stand in the last axis, high first."""
    total = tf.zeros_like(values[..., 0])
    for i in range(values.shape[-1]):
        total = total * 256 + values[..., i]
    return total
