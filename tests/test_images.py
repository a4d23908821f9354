"""The rule for images, on files made by hand: Pillow is no dependency."""

import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf

from tfnet.data import images as rule

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6


def png(pixels, color, depth=8, palette=None):
    """A PNG file of `pixels`: integers [height, width, channels]."""

    def chunk(name, data):
        check = zlib.crc32(name + data)
        return (
            struct.pack(">I", len(data))
            + name
            + data
            + struct.pack(">I", check)
        )

    height, width = pixels.shape[:2]
    kind = ">u2" if depth == 16 else "u1"
    rows = b"".join(b"\0" + row.astype(kind).tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    parts = [b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header)]
    if palette is not None:
        parts.append(chunk(b"PLTE", palette.astype("u1").tobytes()))
    parts += [chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"".join(parts)


def gif(first, second):
    """A GIF of two frames, one pixel each, of the colours given."""

    def frame(index):
        # LZW with 3-bit codes: clear (4), the index, end (5), low bits first.
        bits = 4 | index << 3 | 5 << 6
        data = bits.to_bytes(2, "little")
        return (
            b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0)
            + b"\x02" + bytes([len(data)]) + data + b"\0"
        )  # fmt: skip

    colours = bytes([*first, *second, 0, 0, 0, 0, 0, 0])
    head = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x81, 0, 0)
    return head + colours + frame(0) + frame(1) + b"\x3b"


def bmp(pixels):
    """A BMP file of 24 bits: rows bottom up, blue first, padded to 4."""
    height, width = pixels.shape[:2]
    padding = b"\0" * (-3 * width % 4)
    rows = b"".join(
        row[:, ::-1].astype("u1").tobytes() + padding for row in pixels[::-1]
    )
    info = struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(rows), 0, 0, 0, 0
    )
    return struct.pack("<2sIHHI", b"BM", 54 + len(rows), 0, 0, 54) + info + rows


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_png_kinds_come_to_three_channels_of_eight_bits(random):
    grey = random.integers(0, 256, (3, 5, 1))
    rgb = random.integers(0, 256, (3, 5, 3))
    alpha = random.integers(0, 256, (3, 5, 1))
    wide = random.integers(0, 65536, (3, 5, 3))
    palette = random.integers(0, 256, (4, 3))
    index = random.integers(0, 4, (3, 5, 1))
    for encoded, want in [
        (png(rgb, RGB), rgb),
        (png(grey, GREY), np.repeat(grey, 3, axis=2)),
        (png(np.concatenate([rgb, alpha], 2), RGBA), rgb),
        (
            png(np.concatenate([grey, alpha], 2), GREY_ALPHA),
            np.repeat(grey, 3, axis=2),
        ),
        (png(index, PALETTE, palette=palette), palette[index[..., 0]]),
        # The high byte of 16 bits.
        (png(wide, RGB, depth=16), wide // 256),
    ]:
        np.testing.assert_array_equal(rule.decode(encoded), want)


def test_other_kinds_of_file(random):
    rgb = random.integers(0, 256, (3, 5, 3))
    np.testing.assert_array_equal(rule.decode(bmp(rgb)), rgb)
    first = rule.decode(gif((10, 20, 30), (200, 210, 220))).numpy()
    assert first.tolist() == [[[10, 20, 30]]]
    # A constant JPEG keeps its value to rounding.
    flat = np.full((16, 16, 3), 90, np.uint8)
    decoded = rule.decode(tf.io.encode_jpeg(flat)).numpy()
    assert decoded.shape == (16, 16, 3)
    assert np.abs(decoded.astype(int) - 90).max() <= 1


@pytest.mark.parametrize(
    "encoded", [b"", b"text", png(np.zeros((2, 2, 3)), 2)[:40]]
)
def test_what_is_no_image_is_an_error(encoded):
    with pytest.raises(tf.errors.InvalidArgumentError):
        rule.decode(encoded)


def test_images_of_the_size_are_left_as_they_are(random):
    batch = random.integers(0, 256, (2, 6, 6, 3)).astype(np.uint8)
    dynamic = tf.function(
        lambda images: rule.resize(images, 6),
        input_signature=[tf.TensorSpec([None, None, None, 3], tf.uint8)],
    )
    for found in (
        rule.resize(batch, 6),
        rule.resize(batch[0], 6)[tf.newaxis],
        dynamic(batch),
    ):
        np.testing.assert_array_equal(found, batch[: len(found)])


def test_a_constant_image_stays_constant():
    flat = np.full((7, 13, 3), 201, np.uint8)
    for size in (1, 5, 13, 32):
        assert np.unique(rule.resize(flat, size)).tolist() == [201]


def test_growing_is_bilinear_by_the_centres_of_the_pixels():
    # Centres of 4 pixels on 2: -0.25, 0.25, 0.75, 1.25, held at the edges:
    # weights of the second pixel 0, 1/4, 3/4, 1.
    image = np.array([[0, 80], [160, 240]], np.uint8)[..., None].repeat(3, 2)
    weight = np.array([0, 0.25, 0.75, 1])
    rows = 160 * weight[:, None]
    want = rows + 80 * weight[None, :]
    np.testing.assert_array_equal(rule.resize(image, 4)[..., 0], want)


def test_shrinking_is_antialiased():
    board = (np.indices((32, 32)).sum(0) % 2 * 255).astype(np.uint8)
    small = rule.resize(board[..., None].repeat(3, 2), 8).numpy()
    # Sampling without a filter would give 0 or 255.
    assert np.abs(small[1:-1, 1:-1].astype(int) - 127).max() <= 8


def test_resizing_is_the_same_eagerly_and_in_a_graph(random):
    image = random.integers(0, 256, (9, 17, 3)).astype(np.uint8)
    in_graph = tf.function(lambda image: rule.resize(image, 12))
    np.testing.assert_array_equal(rule.resize(image, 12), in_graph(image))


def test_a_stream_of_files_is_decoded_in_order(random):
    pixels = random.integers(0, 256, (7, 4, 4, 3))
    encoded = [png(image, RGB) for image in pixels]
    files = tf.data.Dataset.from_tensor_slices((encoded, list(range(7))))
    chunks = list(rule.decoded_chunks(files, 4, 3))
    assert [len(labels) for _, labels in chunks] == [3, 3, 1]
    np.testing.assert_array_equal(
        np.concatenate([images for images, _ in chunks]), pixels
    )
    labels = np.concatenate([labels for _, labels in chunks])
    assert labels.tolist() == list(range(7))
