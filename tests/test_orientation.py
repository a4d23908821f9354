"""EXIF orientation, against Pillow, eagerly, in a graph and exported."""

import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from tfnet.data import images as rule
from tfnet.data.scaling import SEED

# Wide, and no two of its views are alike.
PIXELS = np.zeros((16, 32, 3), np.uint8)
PIXELS[:8, :8] = (255, 0, 0)
PIXELS[:8, 24:] = (0, 255, 0)


KINDS = {
    "jpeg": {"quality": 95, "subsampling": 0},
    "png": {},
    "webp": {"lossless": True},
}


def saved(kind, orientation=None, order="II"):
    exif = Image.Exif()
    exif.endian = {"II": "<", "MM": ">"}[order]
    if orientation is not None:
        exif[0x010F] = "a camera"
        exif[0x0112] = orientation
        exif[0x0132] = "2026:01:01 00:00:00"
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, kind, exif=exif, **KINDS[kind])
    return file.getvalue()


def jpeg(orientation=None):
    return saved("jpeg", orientation)


def upright(encoded):
    image = Image.open(io.BytesIO(encoded))
    turned = ImageOps.exif_transpose(image).convert("RGB")
    return np.asarray(turned).astype(int)


IN_GRAPH = tf.function(
    rule.decode, input_signature=[tf.TensorSpec([], tf.string)]
)


@pytest.mark.parametrize("order", ["II", "MM"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_turned_upright(kind, orientation, order):
    encoded = saved(kind, orientation, order)
    assert order.encode() + b"*\0"[:: 1 if order == "II" else -1] in encoded
    found = rule.decode(encoded).numpy()
    want = upright(encoded)
    assert found.shape == want.shape
    # Two decoders of JPEG; the corners differ by 255.
    assert np.abs(found - want).max() <= (8 if kind == "jpeg" else 0)
    np.testing.assert_array_equal(IN_GRAPH(encoded), found)


@pytest.mark.parametrize("orientation", [None, 0, 9, 65535])
def test_no_valid_orientation_is_none(orientation):
    found = rule.decode(jpeg(orientation)).numpy()
    np.testing.assert_array_equal(found, rule.decode(jpeg()).numpy())
    assert found.shape == (16, 32, 3)


def test_exif_is_found_behind_other_segments():
    encoded = jpeg(6)
    xmp = b"http://ns.adobe.com/xap/1.0/\0" + b"x" * 3000
    other = b"\xff\xe1" + (len(xmp) + 2).to_bytes(2, "big") + xmp
    comment = b"\xff\xfe\x00\x08hello!"
    more = encoded[:2] + comment + other + encoded[2:]
    np.testing.assert_array_equal(rule.decode(more), rule.decode(encoded))
    assert rule.decode(more).shape == (32, 16, 3)


def chunk(name, content):
    check = zlib.crc32(name + content).to_bytes(4, "big")
    return len(content).to_bytes(4, "big") + name + content + check


def png(*, before=b"", after=b""):
    """A PNG file with more chunks before and behind the picture."""
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "png")
    whole = file.getvalue()
    start, end = whole.index(b"IDAT") - 4, whole.index(b"IEND") - 4
    return whole[:start] + before + whole[start:end] + after + whole[end:]


def tiff(orientation=6, order="II"):
    encoded = saved("png", orientation, order)
    start = encoded.index(b"eXIf") + 4
    size = int.from_bytes(encoded[start - 8 : start - 4], "big")
    return encoded[start : start + size]


def webp(content, *, flags=8, name=b"EXIF", more=b""):
    """A WebP file of the extended kind with a chunk behind the picture."""
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "webp", lossless=True)
    picture = file.getvalue()[12:]
    height, width, _ = PIXELS.shape
    canvas = b"".join((n - 1).to_bytes(3, "little") for n in (width, height))
    head = b"VP8X" + bytes([10, 0, 0, 0, flags, 0, 0, 0]) + canvas
    size = len(content).to_bytes(4, "little")
    last = name + size + content + b"\0" * (len(content) % 2)
    body = b"WEBP" + head + picture + more + last
    return b"RIFF" + len(body).to_bytes(4, "little") + body


PLACES = {
    "png": lambda content: png(before=chunk(b"eXIf", content)),
    "png behind": lambda content: png(after=chunk(b"eXIf", content)),
    "png, longer": lambda content: png(
        before=chunk(b"tEXt", b"a\0b" * 9999),
        after=chunk(b"teSt", b"eXIf") + chunk(b"eXIf", content),
    ),
    "png, prefix": lambda content: png(
        before=chunk(b"eXIf", b"Exif\0\0" + content)
    ),
    "webp": webp,
    "webp, other flags": lambda content: webp(content, flags=0x2C),
    "webp, prefix": lambda content: webp(b"Exif\0\0" + content),
    "webp, more": lambda content: webp(
        content, more=b"ABCD\3\0\0\0EXI\0" + b"EXIf\0\0\0\0"
    ),
    "webp, odd": lambda content: webp(content + b"\0"),
}


@pytest.mark.parametrize("order", ["II", "MM"])
@pytest.mark.parametrize("place", PLACES)
def test_exif_is_found_where_pillow_finds_it(place, order):
    encoded = PLACES[place](tiff(6, order))
    want = upright(encoded)
    assert want.shape == (32, 16, 3)
    np.testing.assert_array_equal(IN_GRAPH(encoded), want)


def entry(kind, count, value, *, tag=0x0112):
    """An entry of a directory, low bytes first."""
    parts = ((tag, 2), (kind, 2), (count, 4))
    return b"".join(n.to_bytes(size, "little") for n, size in parts) + value


def directory(*entries, behind=b""):
    count = len(entries).to_bytes(2, "little")
    return b"II*\0\x08\0\0\0" + count + b"".join(entries) + behind


SIX = b"\6\0\0\0"
FAR = (26).to_bytes(4, "little")
LARGE = (10**6).to_bytes(4, "little")
UNUSUAL = {
    "short": (directory(entry(3, 1, SIX)), True),
    "long": (directory(entry(4, 1, SIX)), True),
    "signed": (directory(entry(9, 1, SIX)), True),
    "two numbers": (directory(entry(3, 2, b"\6\0\3\0")), True),
    "three, elsewhere": (
        directory(entry(3, 3, FAR), behind=SIX + b"\6\0\0\0\0\0"),
        True,
    ),
    "the first of two": (directory(entry(3, 1, SIX), entry(3, 1, FAR)), True),
    "behind one that is too large": (
        directory(entry(2, 10**6, LARGE, tag=1), entry(3, 1, SIX)),
        True,
    ),
    "behind one that ends outside": (
        directory(entry(2, 9, LARGE, tag=1), entry(3, 1, SIX)),
        False,
    ),
    "bytes": (directory(entry(1, 1, SIX)), False),
    "text": (directory(entry(2, 2, b"6\0\0\0")), False),
    "no number": (directory(entry(3, 0, SIX)), False),
    "no such type": (directory(entry(77, 1, SIX)), False),
    "elsewhere, outside": (directory(entry(3, 3, LARGE)), False),
    "seven, of more": (directory(entry(4, 1, b"\7\1\0\0")), False),
    "cut short": (directory(entry(3, 1, SIX))[:-3], False),
    "directory outside": (b"II*\0\xff\xff\xff\xff", False),
    "no directory": (b"II*\0\x08\0\0\0", False),
}


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("place", [png, webp])
def test_unusual_exif_is_taken_as_pillow_takes_it(name, place):
    content, is_turned = UNUSUAL[name]
    encoded = PLACES[place.__name__](content)
    want = upright(encoded)
    assert (want.shape == (32, 16, 3)) == is_turned
    np.testing.assert_array_equal(IN_GRAPH(encoded), want)


@pytest.mark.parametrize(
    "encoded",
    [
        webp(tiff(), flags=0),
        webp(tiff(), name=b"exif"),
        webp(b"", more=b"EXIF\0\0\0\0"),
        png(before=chunk(b"exIf", tiff())),
        png(after=chunk(b"IEND", b"") + chunk(b"eXIf", tiff())),
        png(before=chunk(b"eXIf", b"")),
        saved("webp") + b"EXIF" + len(tiff()).to_bytes(4, "little") + tiff(),
        png() + chunk(b"eXIf", tiff()),
    ],
    ids=["no flag", "small letters", "empty", "png, other name", "behind the"
         " end", "png, empty", "behind the file", "png, behind the file"],
)  # fmt: skip
def test_what_is_no_exif_is_left(encoded):
    np.testing.assert_array_equal(upright(encoded), PIXELS)
    np.testing.assert_array_equal(IN_GRAPH(encoded), PIXELS)


def test_the_last_of_two_in_png_and_the_first_in_webp():
    two = chunk(b"eXIf", tiff(6)), chunk(b"eXIf", tiff(3))
    encoded = png(before=two[0], after=two[1])
    np.testing.assert_array_equal(upright(encoded), PIXELS[::-1, ::-1])
    np.testing.assert_array_equal(IN_GRAPH(encoded), upright(encoded))
    size = len(tiff()).to_bytes(4, "little")
    encoded = webp(tiff(6), more=b"EXIF" + size + tiff(3))
    np.testing.assert_array_equal(upright(encoded), PIXELS[::-1, ::-1])
    np.testing.assert_array_equal(IN_GRAPH(encoded), upright(encoded))


def damaged(kind, random):
    """A file with wrong bytes in its EXIF, or in how it lies in the file."""
    content = tiff(6, random.choice(["II", "MM"]))
    if kind == "jpeg":
        whole = bytearray(jpeg(6))
        start = whole.index(b"Exif") + 6
    elif kind == "webp":
        whole = bytearray(webp(content))
        # The name and the length of the chunk, too.
        start = whole.index(b"EXIF")
    elif kind == "png behind":
        whole = bytearray(png(after=chunk(b"eXIf", content)))
        start = whole.index(b"eXIf") - 4
    else:
        # Pillow refuses a wrong checksum before the picture.
        whole, start = bytearray(content), 0
    end = start + len(content)
    for place in random.integers(start, end, random.integers(1, 4)):
        whole[place] = random.choice([0, 1, 3, 6, 255, random.integers(256)])
    if kind == "png":
        return png(before=chunk(b"eXIf", bytes(whole)))
    return bytes(whole)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("kind", ["jpeg", "png", "png behind", "webp"])
def test_damaged_exif_is_taken_as_pillow_takes_it(kind):
    random = np.random.default_rng(0)
    shapes = []
    for _ in range(250):
        encoded = damaged(kind, random)
        try:
            plain = tf.io.decode_image(encoded, 3, expand_animations=False)
        except tf.errors.InvalidArgumentError:
            # No image at all.
            continue
        found = IN_GRAPH(encoded).numpy()
        assert sorted(found.shape) == sorted(plain.shape)
        try:
            want = upright(encoded)
        except (SyntaxError, OSError, ValueError, struct.error):
            # Pillow reads no such file.
            continue
        assert found.shape == want.shape
        assert np.abs(found - want).max() <= (8 if kind == "jpeg" else 0)
        shapes.append(found.shape)
    assert shapes.count((32, 16, 3)) > 20
    assert shapes.count((16, 32, 3)) > 20


def test_a_file_of_very_many_chunks_is_soon_done():
    encoded = png(before=chunk(b"teSt", b"") * 200_000 + chunk(b"eXIf", tiff()))
    # It is not walked to its end.
    np.testing.assert_array_equal(IN_GRAPH(encoded), PIXELS)


def test_the_exported_model_turns_it_too(tmp_path):
    import keras

    from tfnet import exports

    model = keras.Sequential(
        [keras.Input((4, 4, 3)), keras.layers.Flatten(), keras.layers.Dense(2)]
    )
    exports.export(
        "saved_model",
        tmp_path / "model",
        model,
        ("a", "b"),
        scaling=SEED,
        image_size=4,
        examples=np.zeros((1, 4, 4, 3), np.uint8),
        labels=np.zeros(1, np.int32),
    )
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    files = [jpeg(6), jpeg(), saved("png", 8), saved("webp", 7)]
    found = loaded.signatures["encoded"](encoded=tf.constant(files))["logits"]
    want = []
    for encoded in files:
        small = rule.resize(upright(encoded).astype(np.uint8), 4)
        want.append(model(rule.scale(small[None], SEED)).numpy()[0])
    np.testing.assert_allclose(found, want, atol=0.05)
    assert np.abs(want[0] - want[1]).max() > 0.1
