"""What becomes of each kind of file, against Pillow: the table of README."""

import io

import numpy as np
import pytest
from PIL import Image
from test_folder import make

import tfnet
from tfnet.data import images as rule
from tfnet.data.folder import open_folder


def saved(image, kind, **settings):
    file = io.BytesIO()
    image.save(file, kind, **settings)
    return file.getvalue()


@pytest.fixture
def picture():
    random = np.random.default_rng(0)
    rough = random.integers(0, 256, (4, 4, 4)).astype(np.uint8)
    return Image.fromarray(rough).resize((32, 24), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA", "1"])
def test_every_mode_of_png(mode, picture):
    image = picture.convert("RGB").convert(mode)
    found = rule.decode(saved(image, "png"))
    np.testing.assert_array_equal(found, np.asarray(image.convert("RGB")))


def test_alpha_is_dropped_not_blended(picture):
    found = rule.decode(saved(picture, "png"))
    np.testing.assert_array_equal(found, np.asarray(picture)[..., :3])


def test_sixteen_bits_of_grey():
    random = np.random.default_rng(0)
    wide = random.integers(0, 65536, (5, 7)).astype(np.uint16)
    found = rule.decode(saved(Image.fromarray(wide), "png")).numpy()
    assert found.shape == (5, 7, 3)
    for channel in range(3):
        np.testing.assert_array_equal(found[..., channel], wide >> 8)


def test_a_jpeg_in_cmyk_as_adobe_writes_it(picture):
    encoded = saved(picture.convert("RGB").convert("CMYK"), "jpeg", quality=95)
    assert b"Adobe" in encoded
    found = rule.decode(encoded).numpy().astype(int)
    # Two decoders, and what JPEG loses.
    assert np.abs(found - np.asarray(picture)[..., :3]).max() <= 24


def test_the_first_frame_of_an_animation(picture):
    first = picture.convert("RGB").quantize(16)
    second = Image.new("P", first.size)
    encoded = saved(first, "gif", save_all=True, append_images=[second])
    found = rule.decode(encoded)
    np.testing.assert_array_equal(found, np.asarray(first.convert("RGB")))


def test_webp(picture):
    opaque = picture.convert("RGB")
    found = rule.decode(saved(opaque, "webp", lossless=True))
    np.testing.assert_array_equal(found, np.asarray(opaque))


def opened(root):
    source = open_folder(root)
    for split in ("train", "test"):
        list(source.read(split, 4, None))
    return source


@pytest.mark.parametrize(
    "kind", ["zero bytes", "text", "cut short", "alpha in webp", "tiff"]
)
def test_what_is_none_is_named(kind, picture, tmp_path):
    content = {
        "zero bytes": b"",
        "text": b"no image, but a long text. " * 50,
        "cut short": saved(picture.convert("RGB"), "jpeg")[:-200],
        "alpha in webp": saved(picture, "webp"),
        "tiff": saved(picture, "tiff"),
    }[kind]
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    (tmp_path / "train" / "a" / "bad one.jpg").write_bytes(content)
    with pytest.raises(tfnet.DataError) as caught:
        opened(tmp_path)
    assert "bad one.jpg is no image" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("labels.csv", ["labels.csv is no image that can be read (JPEG, PNG"]),
        ("README.txt", ["README.txt is no image", "mend it or remove it."]),
        ("a.tif", ["it is a TIFF; convert it to PNG or JPEG, or remove it."]),
        ("a.webp", ["it is a WebP with alpha; convert it to PNG or JPEG,"]),
        ("b.webp", ["it is a WebP with animation; convert it to PNG or"]),
    ],
)
def test_every_other_file_in_a_class_is_an_error(
    name, parts, picture, tmp_path
):
    second = Image.new("RGB", picture.size)
    content = {
        "a.tif": saved(picture, "tiff"),
        "a.webp": saved(picture, "webp"),
        "b.webp": saved(
            picture.convert("RGB"),
            "webp",
            save_all=True,
            append_images=[second],
        ),
    }.get(name, b"path,label")
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    # Beside the classes, a file is no example.
    for place in ("", "train", "test"):
        (tmp_path / place / name).write_bytes(content)
    assert opened(tmp_path).counts == {"train": 2, "test": 1}
    (tmp_path / "train" / "b" / name).write_bytes(content)
    with pytest.raises(tfnet.DataError) as caught:
        opened(tmp_path)
    for part in parts:
        assert part in str(caught.value)


def test_links_to_themselves_are_named(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    loop = tmp_path / "train" / "a" / "loop.png"
    loop.symlink_to(loop)
    with pytest.raises(tfnet.DataError, match="loop.png can't be read"):
        opened(tmp_path)
    loop.unlink()
    loop.symlink_to(tmp_path / "train")
    with pytest.raises(tfnet.DataError, match="folder inside a class"):
        opened(tmp_path)
    loop.unlink()
    folder = tmp_path / "train" / "c"
    folder.symlink_to(folder)
    with pytest.raises(tfnet.DataError, match="c can't be read: Too many"):
        opened(tmp_path)


def test_what_systems_leave_is_passed_over(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
        for place in ("train/a", "train", "test"):
            (tmp_path / place / name).write_bytes(b"no image")
    assert opened(tmp_path).counts == {"train": 2, "test": 1}
