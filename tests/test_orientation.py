"""EXIF orientation, against Pillow, eagerly, in a graph and exported."""

import io

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


def jpeg(orientation=None, order="II", **settings):
    exif = Image.Exif()
    exif.endian = {"II": "<", "MM": ">"}[order]
    if orientation is not None:
        exif[0x010F] = "a camera"
        exif[0x0112] = orientation
        exif[0x0132] = "2026:01:01 00:00:00"
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(
        file, "jpeg", quality=95, subsampling=0, exif=exif, **settings
    )
    return file.getvalue()


def upright(encoded):
    image = Image.open(io.BytesIO(encoded))
    return np.asarray(ImageOps.exif_transpose(image)).astype(int)


IN_GRAPH = tf.function(
    rule.decode, input_signature=[tf.TensorSpec([], tf.string)]
)


@pytest.mark.parametrize("order", ["II", "MM"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_jpeg_is_turned_upright(orientation, order):
    encoded = jpeg(orientation, order)
    assert order.encode() + b"*\0"[:: 1 if order == "II" else -1] in encoded
    found = rule.decode(encoded).numpy()
    want = upright(encoded)
    assert found.shape == want.shape
    # Two decoders; the corners differ by 255.
    assert np.abs(found - want).max() <= 8
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


def test_damaged_exif_is_no_orientation():
    whole = jpeg(6)
    start = whole.index(b"Exif")
    size = int.from_bytes(whole[start - 2 : start], "big")
    plain = rule.decode(jpeg()).numpy()
    random = np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(whole)
        for place in random.integers(start, start + size - 2, 8):
            damaged[place] = random.integers(256)
        found = IN_GRAPH(bytes(damaged)).numpy()
        assert sorted(found.shape) == sorted(plain.shape)


def test_what_is_no_jpeg_is_left_as_it_is():
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(PIXELS).save(file, "png", exif=exif)
    np.testing.assert_array_equal(rule.decode(file.getvalue()), PIXELS)


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
    files = [jpeg(6), jpeg()]
    found = loaded.signatures["encoded"](encoded=tf.constant(files))["logits"]
    want = []
    for encoded in files:
        small = rule.resize(upright(encoded).astype(np.uint8), 4)
        want.append(model(rule.scale(small[None], SEED)).numpy()[0])
    np.testing.assert_allclose(found, want, atol=0.05)
    assert np.abs(want[0] - want[1]).max() > 0.1
