"""Packed copies: made once, used again, made anew when they do not fit."""

import json
import os

import numpy as np
import pytest

import tfnet
from tfnet.data import folder, open_dataset


@pytest.fixture
def root(tmp_path):
    from test_folder import make

    return make(
        tmp_path / "pets",
        *(f"train/cat/{i}.png" for i in range(4)),
        *(f"train/dog/{i}.png" for i in range(3)),
        "test/cat/1.png",
    )


@pytest.fixture
def opened(root, tmp_path):
    lines = []

    def open_it(**keywords):
        settings = {
            "data_dir": None,
            "cache_dir": str(tmp_path / "cache"),
            "image_size": 4,
            "dry_run": False,
            "tell": lines.append,
            **keywords,
        }
        return open_dataset(str(root), **settings)

    open_it.lines = lines
    return open_it


def first_pixels(data):
    images, _ = data.train.take(np.arange(len(data.train)))
    return images[:, 0, 0, 0].tolist()


def packed(tmp_path):
    (place,) = (tmp_path / "cache").iterdir()
    return place


def test_files_are_decoded_once(opened, tmp_path, monkeypatch):
    data = opened()
    assert first_pixels(data) == [0, 1, 2, 3, 4, 5, 6]
    assert data.train.labels.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert data.class_names == ("cat", "dog")
    assert any("Reading 8 images" in line for line in opened.lines)
    opened.lines.clear()

    def no_more(*arguments):
        raise AssertionError("decoded again")

    monkeypatch.setattr(folder, "_read", no_more)
    again = opened()
    assert opened.lines == []
    assert first_pixels(again) == first_pixels(data)
    assert again.fingerprint() == data.fingerprint()
    assert again.class_names == data.class_names


def test_a_change_in_the_folder_is_noticed(opened, root, tmp_path):
    from test_folder import png

    opened()
    path = root / "train" / "cat" / "0.png"
    path.write_bytes(png(99))
    os.utime(path, ns=(1, 1))
    data = opened()
    assert any("outdated" in line for line in opened.lines)
    assert first_pixels(data)[0] == 99
    (root / "train" / "dog" / "9.png").write_bytes(png(50))
    assert first_pixels(opened())[-1] == 50
    # The old copies are gone.
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("kind", ["cut", "missing", "garbage", "no manifest"])
def test_a_damaged_copy_is_named_and_made_anew(kind, opened, tmp_path):
    opened()
    place = packed(tmp_path)
    if kind == "cut":
        path = place / "train_images.npy"
        path.write_bytes(path.read_bytes()[:-1])
    elif kind == "missing":
        (place / "test_labels.npy").unlink()
    elif kind == "garbage":
        (place / "manifest.json").write_text("[1")
    else:
        (place / "manifest.json").unlink()
    data = opened()
    assert any("damaged" in line for line in opened.lines)
    assert first_pixels(data) == [0, 1, 2, 3, 4, 5, 6]
    manifest = json.loads((packed(tmp_path) / "manifest.json").read_text())
    assert len(manifest["sizes"]) == 5


def test_a_failure_leaves_what_was_there(opened, root, tmp_path):
    opened()
    before = {
        path.name: path.read_bytes() for path in packed(tmp_path).iterdir()
    }
    (root / "train" / "dog" / "9.png").write_text("no image")
    with pytest.raises(tfnet.DataError, match="9[.]png"):
        opened()
    after = {
        path.name: path.read_bytes() for path in packed(tmp_path).iterdir()
    }
    assert after == before


def test_each_size_has_a_copy_of_its_own(opened, tmp_path):
    assert opened(image_size=4).image_shape == (4, 4, 3)
    assert opened(image_size=6).image_shape == (6, 6, 3)
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_place_that_cannot_be_written_is_named(opened, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(tfnet.DataError) as caught:
        opened(cache_dir=str(tmp_path / "file"))
    assert f"--cache_dir ({tmp_path / 'file'})" in str(caught.value)


def test_a_dry_run_reads_a_few_and_keeps_nothing(opened, tmp_path):
    data = opened(dry_run=True)
    assert len(data.train) == 7
    assert not (tmp_path / "cache").exists()
