"""The rule for images, on files made by hand; see also test_kinds."""

import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf

from tfnet.data import images as rule
from tfnet.data.scaling import SEED

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


def test_scaling_is_the_formula_in_float32():
    pixels = np.arange(256, dtype=np.uint8)
    scaled = rule.scale(pixels, SEED).numpy()
    assert scaled.dtype == np.float32
    assert (scaled[0], scaled[255]) == (-1, 1)
    half = np.float32(0.5)
    want = (pixels.astype(np.float32) / np.float32(255) - half) / half
    np.testing.assert_array_equal(scaled, want)


def test_scaling_in_a_graph_differs_by_no_more_than_rounding():
    pixels = np.arange(256, dtype=np.uint8)
    scaled = tf.function(rule.scale)(pixels, SEED).numpy()
    assert scaled.dtype == np.float32
    assert (scaled[0], scaled[255]) == (-1, 1)
    # TensorFlow multiplies by 1/255 in a graph. That number is right to
    # 2**-24 of itself, the product to 2**-25 and the difference to 2**-26;
    # dividing by a half doubles them all: 7 * 2**-25.
    want = (np.arange(256) / 255 - 0.5) / 0.5
    assert np.abs(scaled - want).max() <= 7 * 2**-25


def test_scaling_keeps_the_shape(random):
    images = random.integers(0, 256, (2, 3, 5, 3)).astype(np.uint8)
    scaled = rule.scale(images, SEED).numpy()
    assert scaled.shape == images.shape
    np.testing.assert_array_equal(
        scaled, rule.scale(np.arange(256, dtype=np.uint8), SEED).numpy()[images]
    )


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_few_bits_a_pixel_come_to_eight(depth):
    # One byte holds 8 / depth pixels, the first in the high bits.
    values = [0b10110010 >> shift & 2**depth - 1
              for shift in range(8 - depth, -1, -depth)]  # fmt: skip
    byte = np.array([[[0b10110010]]])
    encoded = png(byte, GREY, depth=depth)
    # The header speaks of pixels, not bytes.
    header = struct.pack(">IIBBBBB", len(values), 1, depth, GREY, 0, 0, 0)
    head = b"IHDR" + header
    encoded = (
        encoded[:12] + head + struct.pack(">I", zlib.crc32(head)) + encoded[33:]
    )
    want = [[[value * 255 // (2**depth - 1)] * 3 for value in values]]
    assert rule.decode(encoded).numpy().tolist() == want


def test_a_grey_jpeg_gets_three_channels():
    flat = np.full((8, 16, 1), 90, np.uint8)
    decoded = rule.decode(tf.io.encode_jpeg(flat)).numpy()
    assert decoded.shape == (8, 16, 3)
    assert np.abs(decoded.astype(int) - 90).max() <= 1


def test_an_opaque_webp_is_decoded():
    # Lossless, one black pixel: nothing but a header and five constant codes.
    encoded = bytes.fromhex(
        "52494646 1a000000 57454250 5650384c 0d000000"
        "2f00000000 07101111 8888fe07 00"
    )
    assert rule.decode(encoded).numpy().tolist() == [[[0, 0, 0]]]


def test_decoding_is_the_same_eagerly_and_in_a_graph(random):
    rgb = random.integers(0, 256, (9, 17, 3)).astype(np.uint8)
    decode = tf.function(
        rule.decode, input_signature=[tf.TensorSpec([], tf.string)]
    )
    for encoded in (
        png(rgb, RGB),
        tf.io.encode_jpeg(rgb).numpy(),
        bmp(rgb),
        gif((1, 2, 3), (4, 5, 6)),
    ):
        np.testing.assert_array_equal(decode(encoded), rule.decode(encoded))
    assert decode.get_concrete_function().output_shapes == [None, None, 3]


@pytest.mark.parametrize("kind", ["jpeg", "png", "bmp"])
@pytest.mark.parametrize("part", [0.3, 0.7, 0.99])
def test_a_file_cut_short_is_an_error(kind, part, random):
    rgb = random.integers(0, 256, (32, 32, 3)).astype(np.uint8)
    encode = {
        "jpeg": lambda: tf.io.encode_jpeg(rgb).numpy(),
        "png": lambda: png(rgb, RGB),
        "bmp": lambda: bmp(rgb),
    }
    encoded = encode[kind]()
    with pytest.raises(tf.errors.InvalidArgumentError):
        rule.decode(encoded[: int(part * len(encoded))])


@pytest.mark.parametrize("axes", [3, 4])
def test_the_size_may_be_known_only_when_the_graph_runs(axes, random):
    unknown = [None] * (axes - 1) + [3]
    dynamic = tf.function(
        lambda images: rule.resize(images, 6),
        input_signature=[tf.TensorSpec(unknown, tf.uint8)],
    )
    for shape in ((6, 6), (6, 9), (3, 6), (13, 7)):
        images = random.integers(0, 256, (2, *shape, 3)).astype(np.uint8)
        images = images if axes == 4 else images[0]
        found = dynamic(images)
        assert found.dtype == tf.uint8
        assert found.shape[-3:] == (6, 6, 3)
        np.testing.assert_array_equal(found, rule.resize(images, 6))
        if shape == (6, 6):
            np.testing.assert_array_equal(found, images)


def test_one_image_is_resized_as_it_is_in_a_batch(random):
    batch = random.integers(0, 256, (3, 9, 17, 3)).astype(np.uint8)
    for size in (4, 9, 12, 20):
        together = rule.resize(batch, size).numpy()
        alone = [rule.resize(image, size).numpy() for image in batch]
        np.testing.assert_array_equal(together, alone)


def test_shrinking_weighs_by_a_triangle_two_pixels_wide_each_side():
    # Eight columns to four. Inside, the pixels at distances 1.5, 0.5, 0.5 and
    # 1.5 weigh 1/8, 3/8, 3/8, 1/8; at an edge one is missing: 3/7, 3/7, 1/7.
    row = np.array([0, 112, 56, 224, 168, 112, 0, 56])
    want = [
        (3 * row[0] + 3 * row[1] + row[2]) / 7,
        (row[1] + 3 * row[2] + 3 * row[3] + row[4]) / 8,
        (row[3] + 3 * row[4] + 3 * row[5] + row[6]) / 8,
        (row[5] + 3 * row[6] + 3 * row[7]) / 7,
    ]
    assert want == [56, 140, 133, 40]
    image = np.broadcast_to(row[None, :, None], (8, 8, 3)).astype(np.uint8)
    small = rule.resize(image, 4).numpy()
    np.testing.assert_array_equal(small[..., 0], [want] * 4)
    turned = rule.resize(image.transpose(1, 0, 2), 4).numpy()
    np.testing.assert_array_equal(turned, small.transpose(1, 0, 2))


def test_a_checkerboard_shrunk_by_two_is_grey():
    board = (np.indices((16, 16)).sum(0) % 2 * 255).astype(np.uint8)
    small = rule.resize(board[..., None].repeat(3, 2), 8).numpy()
    # Inside the four weights give 255 / 2; in a corner, where they are 3/7,
    # 3/7, 1/7 each way, 24/49 or 25/49 of 255: 124.9 or 130.1.
    assert set(np.unique(small[1:-1, 1:-1])) <= {127, 128}
    assert small.min() >= 124
    assert small.max() <= 131


def test_values_are_rounded_not_cut():
    # 0 and 3 grown to four: 0, 0.75, 2.25, 3.
    image = np.array([[0, 3], [0, 3]], np.uint8)[..., None].repeat(3, 2)
    assert rule.resize(image, 4)[0, :, 0].numpy().tolist() == [0, 1, 2, 3]


def test_the_whole_image_is_brought_to_a_square():
    # Left half black, right half white: neither is cropped away.
    wide = np.zeros((4, 16, 3), np.uint8)
    wide[:, 8:] = 255
    square = rule.resize(wide, 4).numpy()
    assert square.shape == (4, 4, 3)
    assert square[:, 0].max() == 0
    assert square[:, 3].min() == 255


def test_colours_are_not_mixed(random):
    image = random.integers(0, 256, (7, 7, 3)).astype(np.uint8)
    found = rule.resize(image, 5).numpy()
    for channel in range(3):
        grey = np.repeat(image[..., channel : channel + 1], 3, axis=2)
        alone = rule.resize(grey, 5).numpy()[..., 0]
        np.testing.assert_array_equal(found[..., channel], alone)


def test_palette_of_a_bmp_is_looked_up():
    import struct

    from tfnet.data import images as rule

    palette = b"".join(bytes([10, 20, 30 + i % 200, 0]) for i in range(256))
    rows = bytes([0, 1, 2, 3])
    encoded = (
        struct.pack("<2sIHHI", b"BM", 54 + 1024 + 4, 0, 0, 54 + 1024)
        + struct.pack("<IiiHHIIiiII", 40, 4, 1, 1, 8, 0, 4, 0, 0, 256, 0)
        + palette
        + rows
    )
    assert rule.decode(encoded).numpy().tolist() == [
        [[30, 20, 10], [31, 20, 10], [32, 20, 10], [33, 20, 10]]
    ]
