"""Packed copies: made once, used again, made anew when they do not fit."""

import dataclasses
import json
import os

import numpy as np
import pytest

import tfnet
from tfnet.data import arrays, image_list, open_dataset, pack
from tfnet.data.dataset import Examples
from tfnet.data.image_file import ImageFile
from tfnet.data.source import CHUNK, Source, from_examples


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

    monkeypatch.setattr(image_list, "_read", no_more)
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


def source_of(count=6, *, size=4, classes=3, tests=2, **changes):
    """A source in memory whose images and labels are counted through."""

    def part(first, number):
        values = np.arange(first, first + number)
        images = np.zeros((number, size, size, 3), np.uint8)
        images += (values % 256).astype(np.uint8)[:, None, None, None]
        return Examples(images, (values % classes).astype(np.int32))

    source = from_examples(
        {"train": part(0, count), "test": part(count, tests)},
        name="made",
        origin="made here",
        class_names=tuple("abcdefghij"[:classes]),
        key="1",
    )
    return dataclasses.replace(source, **changes)


def materialise(source, place, *, image_size=4, limit=None, tell=None):
    return pack.materialise(
        source,
        image_size=image_size,
        cache_dir=place,
        limit=limit,
        tell=tell or (lambda line: None),
    )


def everything(data):
    return [
        part.tolist()
        for examples in (data.train, data.test)
        for part in examples.take(np.arange(len(examples)))
    ]


def tree(place):
    """Every file below a place, with what it holds."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
    }


def test_what_is_cheap_and_small_stays_in_memory(tmp_path):
    data = materialise(source_of(), tmp_path / "cache")
    assert isinstance(data.train.images, np.ndarray)
    assert data.train.labels.dtype == np.int32
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("image_size", [4, 2, 7])
def test_memory_packed_and_in_the_file_are_the_same(
    image_size, tmp_path, monkeypatch
):
    source = source_of()
    want = materialise(source, tmp_path, image_size=image_size)
    assert want.image_shape == (image_size, image_size, 3)
    costly = dataclasses.replace(source, costly=True)
    copy = materialise(costly, tmp_path / "a", image_size=image_size)
    assert isinstance(copy.train.images, np.ndarray)
    # 6 and 2 images of at least 12 bytes.
    monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 8 * 12 - 1)
    large = materialise(source, tmp_path / "b", image_size=image_size)
    assert isinstance(large.train.images, ImageFile)
    for data in (copy, large):
        assert everything(data) == everything(want)
        assert data.fingerprint() == want.fingerprint()
        assert (data.name, data.origin, data.class_names) == (
            "made",
            "made here",
            ("a", "b", "c"),
        )
    for indices in ([], [5], [5, 0, 3, 3], [1, 2, 3]):
        chosen = np.array(indices, np.int64)
        for mine, other in zip(
            want.train.take(chosen), large.train.take(chosen), strict=True
        ):
            np.testing.assert_array_equal(mine, other)
            assert mine.dtype == other.dtype


@pytest.mark.parametrize("count", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
def test_no_image_is_lost_between_chunks(count, tmp_path):
    values = [value % 256 for value in range(count)]
    for costly in (False, True):
        source = source_of(count, size=1, costly=costly)
        data = materialise(source, tmp_path / str(costly), image_size=1)
        images, labels = data.train.take(np.arange(count))
        assert images[:, 0, 0, 0].tolist() == values
        assert labels.tolist() == [value % 3 for value in range(count)]


def test_a_large_folder_of_images_is_read_from_the_file(
    opened, tmp_path, monkeypatch
):
    want = opened()
    monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 100)
    large = opened()
    assert isinstance(want.train.images, np.ndarray)
    assert isinstance(large.train.images, ImageFile)
    assert everything(large) == everything(want)
    assert large.fingerprint() == want.fingerprint()


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_a_limit_reads_into_memory_and_writes_nothing(limit, tmp_path):
    read = []

    def counted(split, size, limit):
        for images, labels in source_of().read(split, size, limit):
            read.extend((split, label) for label in labels.tolist())
            yield images, labels

    source = source_of(costly=True, read=counted)
    data = materialise(source, tmp_path / "cache", limit=limit)
    assert len(data.train) == min(limit, 6)
    assert len(data.test) == min(limit, 2)
    assert len(read) == min(limit, 6) + min(limit, 2)
    assert not (tmp_path / "cache").exists()


def test_a_dry_run_reads_64_of_each_split_and_of_every_class(
    tmp_path, monkeypatch
):
    from test_folder import make

    root = make(
        tmp_path / "many",
        *(f"train/a/{i}.png" for i in range(60)),
        *(f"train/b/{i}.png" for i in range(40)),
        *(f"test/a/{i}.png" for i in range(65)),
    )
    listed = []
    real = image_list._read
    monkeypatch.setattr(
        image_list,
        "_read",
        lambda files, size: listed.append(len(files)) or real(files, size),
    )
    data = open_dataset(
        str(root),
        data_dir=None,
        cache_dir=str(tmp_path / "cache"),
        image_size=4,
        dry_run=True,
        tell=lambda line: None,
    )
    assert listed == [64, 64]
    assert (len(data.train), len(data.test)) == (64, 64)
    assert set(data.train.labels.tolist()) == {0, 1}
    assert [path.name for path in tmp_path.iterdir()] == ["many"]


@pytest.mark.parametrize("wrong", [-1, 3, 1000])
@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("costly", [False, True])
def test_a_label_out_of_range_is_named_and_nothing_kept(
    wrong, split, costly, tmp_path
):
    source = source_of(costly=costly)

    def read(asked, size, limit):
        for images, labels in source.read(asked, size, limit):
            if asked == split:
                labels = labels.copy()
                labels[-1] = wrong
            yield images, labels

    with pytest.raises(tfnet.DataError) as caught:
        materialise(dataclasses.replace(source, read=read), tmp_path / "cache")
    assert f"made here, {split}: label {wrong} is out" in str(caught.value)
    assert "from 0 to 2" in str(caught.value)
    assert not costly or list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        tfnet.DataError("in the middle"),
        RuntimeError("in the middle"),
        KeyboardInterrupt("in the middle"),
    ],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_failure_in_the_middle_leaves_nothing(error, split, tmp_path):
    source = source_of(costly=True)

    def read(asked, size, limit):
        yield from source.read(asked, size, limit)
        if asked == split:
            raise error

    broken = dataclasses.replace(source, read=read)
    cache = tmp_path / "cache"
    with pytest.raises(type(error), match="in the middle"):
        materialise(broken, cache)
    assert list(cache.iterdir()) == []
    materialise(source, cache)
    before = tree(cache)
    newer = dataclasses.replace(broken, key="2")
    with pytest.raises(type(error), match="in the middle"):
        materialise(newer, cache)
    assert tree(cache) == before
    assert len(list(cache.iterdir())) == 1
    # And it is good still.
    lines = []
    materialise(source, cache, tell=lines.append)
    assert lines == []


def test_a_full_disk_is_named_with_the_room_needed(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    source = source_of(512, size=64, costly=True, tests=512)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(tfnet.DataError) as caught:
        materialise(source, tmp_path / "cache", image_size=64)
    assert f"--cache_dir ({tmp_path / 'cache'})" in str(caught.value)
    assert "No space left" in str(caught.value)
    # 1,024 images of 64 x 64 x 3 bytes: 12 MiB.
    assert "(12 MiB)" in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "7",
        "{}",
        '{"sizes": {}}',
        '{"sizes": [1], "version": 1, "key": "1"}',
        '{"sizes": {"gone.npy": 1}, "version": 1, "key": "1"}',
        "\0\0\0\0",
    ],
)
def test_a_manifest_of_any_other_kind_is_told_as_damaged(text, tmp_path):
    source = source_of(costly=True)
    cache = tmp_path / "cache"
    want = everything(materialise(source, cache))
    good = tree(cache)
    (place,) = cache.iterdir()
    (place / "manifest.json").write_text(text)
    lines = []
    assert everything(materialise(source, cache, tell=lines.append)) == want
    assert (
        lines[0] == f"The packed copy in {place} is damaged; it is made anew."
    )
    assert tree(cache) == good


@pytest.mark.parametrize("name", ["train_images.npy", "train_labels.npy",
                                  "test_images.npy", "test_labels.npy",
                                  "classes.txt"])  # fmt: skip
@pytest.mark.parametrize("change", [lambda old: old[:-1],
                                    lambda old: old + b"x",
                                    lambda old: b""])  # fmt: skip
def test_a_file_of_another_length_is_told_as_damaged(name, change, tmp_path):
    source = source_of(costly=True)
    cache = tmp_path / "cache"
    want = everything(materialise(source, cache))
    good = tree(cache)
    (place,) = cache.iterdir()
    path = place / name
    path.write_bytes(change(path.read_bytes()))
    lines = []
    assert everything(materialise(source, cache, tell=lines.append)) == want
    assert "is damaged" in lines[0]
    assert tree(cache) == good


def test_another_version_of_the_rule_is_outdated(tmp_path, monkeypatch):
    source = source_of(costly=True)
    materialise(source, tmp_path)
    monkeypatch.setattr(pack, "_VERSION", pack._VERSION + 1)
    lines = []
    materialise(source, tmp_path, tell=lines.append)
    assert "is outdated" in lines[0]
    lines.clear()
    materialise(source, tmp_path, tell=lines.append)
    assert lines == []


def test_sets_of_the_same_name_do_not_share_a_copy(tmp_path):
    first = source_of(costly=True)
    other = dataclasses.replace(source_of(5, costly=True), origin="elsewhere")
    assert len(materialise(first, tmp_path).train) == 6
    assert len(materialise(other, tmp_path).train) == 5
    lines = []
    assert len(materialise(first, tmp_path, tell=lines.append).train) == 6
    assert lines == []


def test_notes_come_through(tmp_path):
    for costly in (False, True, True):
        source = source_of(costly=costly, notes=("one", "two"))
        assert isinstance(source, Source)
        assert materialise(source, tmp_path).notes == ("one", "two")


def test_a_file_in_the_way_of_the_cache_is_named(tmp_path):
    (tmp_path / "file").write_text("kept")
    source = source_of(costly=True)
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(tfnet.DataError) as caught:
            materialise(source, place)
        assert f"--cache_dir ({place})" in str(caught.value)
        assert f"{tmp_path / 'file'} is no directory" in str(caught.value)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("damage", ["zeros", "shape", "labels"])
def test_damage_that_keeps_the_length_is_made_anew(damage, tmp_path):
    source = source_of(costly=True)
    cache = tmp_path / "cache"
    want = everything(materialise(source, cache))
    (place,) = cache.iterdir()
    path = place / "train_images.npy"
    whole = path.read_bytes()
    if damage == "zeros":
        path.write_bytes(bytes(len(whole)))
    elif damage == "shape":
        path.write_bytes(whole.replace(b"(6, 4, 4, 3)", b"(6, 4, 3, 4)"))
    else:
        np.save(place / "train_labels.npy", np.full(6, 7, np.int32))
    assert everything(materialise(source, cache)) == want


def test_a_file_in_the_place_of_a_copy_is_replaced(tmp_path):
    source = source_of(costly=True)
    materialise(source, tmp_path / "cache")
    (place,) = (tmp_path / "cache").iterdir()
    for path in place.iterdir():
        path.unlink()
    place.rmdir()
    place.write_text("a file")
    materialise(source, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [
        place.name
    ]


def test_manifest_nested_too_deep_is_damaged(tmp_path):
    source = source_of(costly=True)
    cache = tmp_path / "cache"
    materialise(source, cache)
    (place,) = cache.iterdir()
    (place / "manifest.json").write_text("[" * 100_000)
    materialise(source, cache)


def test_cache_dir_that_may_not_be_entered_is_named(tmp_path, monkeypatch):
    from pathlib import Path

    real = os.stat

    def refused(path, *arguments, **keywords):
        if str(path).startswith(str(tmp_path / "locked" / "made")):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, "stat", refused)
    with pytest.raises(tfnet.DataError, match="--cache_dir"):
        materialise(source_of(costly=True), Path(tmp_path) / "locked")
