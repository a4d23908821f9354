"""Folders of arrays, in memory and in the file."""

import hashlib

import numpy as np
import pytest

import tfnet
from tfnet.data import Dataset, Examples, arrays, open_dataset
from tfnet.data.image_file import ImageFile


def make(root, **changes):
    random = np.random.default_rng(0)
    content = {
        "train_images": random.integers(0, 256, (9, 4, 4, 3)).astype(np.uint8),
        "train_labels": np.arange(9) % 3,
        "test_images": random.integers(0, 256, (5, 4, 4, 3)).astype(np.uint8),
        "test_labels": np.arange(5) % 3,
        **changes,
    }
    root.mkdir(exist_ok=True)
    for name, array in content.items():
        if array is not None:
            np.save(root / f"{name}.npy", array)
    return content


def opened(root, *, image_size=4, **keywords):
    return open_dataset(
        str(root),
        data_dir=None,
        cache_dir=str(root / "cache"),
        image_size=image_size,
        **{"dry_run": False, **keywords},
        tell=print,
    )


@pytest.mark.parametrize("in_memory", [True, False])
def test_arrays_are_used_as_they_lie(in_memory, tmp_path, monkeypatch):
    if not in_memory:
        monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    content = make(tmp_path / "set")
    data = opened(tmp_path / "set")
    assert isinstance(data.train.images, ImageFile) != in_memory
    assert data.name == "set"
    assert data.class_names == ("0", "1", "2")
    for indices in ([], [0], [8, 0, 3], [2, 3, 4, 5], [1, 2, 2, 3, 0]):
        chosen = np.array(indices, np.uint32)
        images, labels = data.train.take(chosen)
        np.testing.assert_array_equal(images, content["train_images"][chosen])
        assert labels.tolist() == content["train_labels"][chosen].tolist()
        assert images.dtype == np.uint8
    assert not (tmp_path / "set" / "cache").exists()


def test_a_set_in_a_file_is_the_same_set(tmp_path, monkeypatch):
    make(tmp_path / "set")
    whole = opened(tmp_path / "set").fingerprint()
    monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    assert opened(tmp_path / "set").fingerprint() == whole


def test_a_change_in_what_is_looked_at_changes_the_fingerprint(tmp_path):
    content = make(tmp_path / "set")
    prints = [opened(tmp_path / "set").fingerprint()]
    for name in ("train_images", "test_labels"):
        array = content[name].copy()
        array.flat[-1] = (array.flat[-1] + 1) % 3
        make(tmp_path / "set", **{name: array})
        prints.append(opened(tmp_path / "set").fingerprint())
    assert len(set(prints)) == 3


@pytest.mark.parametrize("in_memory", [True, False])
def test_grey_images_get_three_channels(in_memory, tmp_path, monkeypatch):
    if not in_memory:
        monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    grey = np.arange(9 * 16).reshape(9, 4, 4).astype(np.uint8)
    make(tmp_path / "set", train_images=grey)
    images, _ = opened(tmp_path / "set").train.take(np.arange(9))
    np.testing.assert_array_equal(images, np.stack([grey] * 3, axis=-1))


def test_another_size_is_resized_by_the_rule(tmp_path):
    from tfnet.data.images import resize

    content = make(tmp_path / "set")
    images, _ = opened(tmp_path / "set", image_size=8).test.take(np.arange(5))
    np.testing.assert_array_equal(images, resize(content["test_images"], 8))


def test_classes_have_names_where_a_file_gives_them(tmp_path):
    make(tmp_path / "set")
    (tmp_path / "set" / "classes.txt").write_text("ä\nb c\nd\n")
    assert opened(tmp_path / "set").class_names == ("ä", "b c", "d")


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"train_images": np.zeros((9, 4, 4, 3))}, ["float64", "uint8 [n,"]),
        ({"train_images": np.zeros((9, 4, 4, 1), np.uint8)}, ["[9, 4, 4, 1]"]),
        ({"train_images": np.zeros((9, 4), np.uint8)}, ["[9, 4]"]),
        ({"train_labels": np.zeros(8, int)}, ["integers [9]"]),
        ({"train_labels": np.zeros(9)}, ["float64"]),
        ({"train_labels": np.array([0, 1, -1] * 3)}, ["label -1 is out"]),
        ({"test_images": None}, ["test_images.npy is missing"]),
        ({"train_labels": np.array([None] * 9)}, ["train_labels.npy"]),
        ({"train_images": np.array([None] * 9)}, ["train_images.npy"]),
        (
            {
                "train_images": np.zeros((0, 4, 4, 3), np.uint8),
                "train_labels": np.zeros(0, int),
            },
            ["no train examples"],
        ),
    ],
)
def test_arrays_that_are_something_else_are_named(changes, texts, tmp_path):
    make(tmp_path / "set", **changes)
    with pytest.raises(tfnet.DataError) as caught:
        opened(tmp_path / "set")
    for text in texts:
        assert text in str(caught.value)


def test_a_label_without_a_name_is_out_of_range(tmp_path):
    make(tmp_path / "set")
    (tmp_path / "set" / "classes.txt").write_text("a\nb\n")
    with pytest.raises(tfnet.DataError, match="label 2 is out of range"):
        opened(tmp_path / "set")


@pytest.mark.parametrize("left", [0, 20, 200])
def test_a_file_cut_short_is_named(left, tmp_path):
    make(tmp_path / "set")
    path = tmp_path / "set" / "train_images.npy"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(tfnet.DataError, match="images[.]npy is damaged"):
        opened(tmp_path / "set")


def test_a_file_cut_short_while_in_use_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    make(tmp_path / "set")
    data = opened(tmp_path / "set")
    path = tmp_path / "set" / "train_images.npy"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(tfnet.DataError, match="cut short"):
        data.train.take(np.array([8]))


@pytest.mark.parametrize("name", ["train_labels", "test_images", "test_labels"])
@pytest.mark.parametrize("image_size", [4, 8])
def test_the_file_that_is_missing_is_named(name, image_size, tmp_path):
    make(tmp_path / "set", **{name: None})
    with pytest.raises(tfnet.DataError) as caught:
        opened(tmp_path / "set", image_size=image_size)
    assert str(caught.value) == f"{tmp_path / 'set' / name}.npy is missing."


@pytest.mark.parametrize("name", ["train_images", "train_labels",
                                  "test_images", "test_labels"])  # fmt: skip
@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY", b"no array at all", bytes(4000)]
)
def test_a_file_that_is_no_array_is_named(name, content, tmp_path):
    make(tmp_path / "set")
    path = tmp_path / "set" / f"{name}.npy"
    path.write_bytes(content)
    with pytest.raises(tfnet.DataError) as caught:
        opened(tmp_path / "set")
    assert str(caught.value) == f"{path} is damaged or no .npy file."


@pytest.mark.parametrize("name", ["train_images", "train_labels"])
def test_a_pickled_array_is_refused_and_runs_nothing(
    name, tmp_path, monkeypatch
):
    from test_cifar10 import Attack

    monkeypatch.chdir(tmp_path)
    make(tmp_path / "set", **{name: np.array([Attack()] * 9, object)})
    with pytest.raises(tfnet.DataError, match=f"{name}.npy is damaged"):
        opened(tmp_path / "set")
    assert not (tmp_path / "attacked").exists()


@pytest.mark.parametrize(
    "kind", ["u1", "i1", "<i2", ">i4", "<u4", "<i8", ">u8"]
)
def test_labels_of_any_integer_type_are_taken(kind, tmp_path):
    make(tmp_path / "set", train_labels=(np.arange(9) % 3).astype(kind))
    labels = opened(tmp_path / "set").train.labels
    assert labels.tolist() == [0, 1, 2] * 3
    assert labels.dtype == np.int32


@pytest.mark.parametrize(
    "labels",
    [np.zeros((9, 1), int), np.zeros((9, 3), int), np.array(0),
     np.array(["a"] * 9), np.zeros(9, bool)],
)  # fmt: skip
def test_labels_of_another_kind_are_named(labels, tmp_path):
    make(tmp_path / "set", test_labels=labels[:5] if labels.ndim else labels)
    with pytest.raises(tfnet.DataError) as caught:
        opened(tmp_path / "set")
    assert f"{tmp_path / 'set' / 'test_labels.npy'} must be" in str(
        caught.value
    )
    assert "integers [5], one an image" in str(caught.value)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("image_size", [4, 8])
def test_a_negative_label_is_out_of_range(split, image_size, tmp_path):
    count = {"train": 9, "test": 5}[split]
    labels = np.arange(count) % 3
    labels[-1] = -1
    make(tmp_path / "set", **{f"{split}_labels": labels})
    with pytest.raises(tfnet.DataError) as caught:
        opened(tmp_path / "set", image_size=image_size)
    assert "label -1 is out of range" in str(caught.value)
    assert "from 0 to 2" in str(caught.value)
    assert str(tmp_path / "set") in str(caught.value)


def test_classes_are_counted_over_both_splits(tmp_path):
    make(tmp_path / "set", test_labels=np.array([0, 1, 2, 6, 0]))
    names = opened(tmp_path / "set").class_names
    assert names == ("0", "1", "2", "3", "4", "5", "6")


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("grey", [True, False])
@pytest.mark.parametrize("image_size", [2, 8])
def test_other_sizes_are_the_same_from_memory_and_from_the_file(
    in_memory, grey, image_size, tmp_path, monkeypatch
):
    from tfnet.data.images import resize

    images = np.random.default_rng(1).integers(0, 256, (9, 4, 5, 3))
    images = images.astype(np.uint8)
    make(tmp_path / "set", train_images=images[..., 0] if grey else images)
    if grey:
        images = np.repeat(images[..., :1], 3, axis=-1)
    if not in_memory:
        monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    data = opened(tmp_path / "set", image_size=image_size)
    assert isinstance(data.train.images, ImageFile) != in_memory
    found, labels = data.train.take(np.arange(9))
    np.testing.assert_array_equal(found, resize(images, image_size))
    assert labels.tolist() == [0, 1, 2] * 3
    # The folder of the user is left as it was, but for the cache asked for.
    names = {path.name for path in (tmp_path / "set").glob("*.npy")}
    assert len(names) == 4


def test_splits_of_different_sizes_are_brought_to_one(tmp_path):
    make(tmp_path / "set", test_images=np.full((5, 7, 7, 3), 9, np.uint8))
    data = opened(tmp_path / "set")
    assert data.train.image_shape == data.test.image_shape == (4, 4, 3)
    assert np.unique(data.test.take(np.arange(5))[0]).tolist() == [9]


def test_a_file_that_is_replaced_while_in_use_stays_the_one_opened(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    content = make(tmp_path / "set")
    data = opened(tmp_path / "set")
    path = tmp_path / "set" / "train_images.npy"
    np.save(tmp_path / "new.npy", np.zeros((9, 4, 4, 3), np.uint8))
    (tmp_path / "new.npy").replace(path)
    images, _ = data.train.take(np.arange(9))
    np.testing.assert_array_equal(images, content["train_images"])


def test_the_name_of_the_set_is_fit_for_a_file_name(tmp_path):
    place = tmp_path / "my set (2)"
    make(place)
    assert opened(place).name == "my_set_2_"
    assert opened(place).origin == str(place)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("\ufeffa\r\nb\r\nc\r\n", ("a", "b", "c")),
        ("a\nb\nc", ("a", "b", "c")),
        ("a\n\nc\n", None),
        ("a\nb\na\n", None),
    ],
)
def test_names_of_classes_are_one_a_line(text, names, tmp_path):
    make(tmp_path / "set")
    path = tmp_path / "set" / "classes.txt"
    path.write_bytes(text.encode())
    if names is not None:
        assert opened(tmp_path / "set").class_names == names
        return
    with pytest.raises(tfnet.DataError, match="empty or twice"):
        opened(tmp_path / "set")


def test_names_that_are_no_text_are_refused(tmp_path):
    make(tmp_path / "set")
    (tmp_path / "set" / "classes.txt").write_bytes(b"a\n\xff\nc\n")
    with pytest.raises(tfnet.DataError, match="UTF-8"):
        opened(tmp_path / "set")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"train_labels": np.array([0] * 8 + [10**7])}, "label 10000000"),
        ({"train_images": np.zeros((9, 0, 4, 3), np.uint8)}, "[9, 0, 4, 3]"),
        (
            {
                "train_labels": np.zeros(9, int),
                "test_labels": np.zeros(5, int),
            },
            "set: 1 class; there must be two",
        ),
    ],
)
def test_sets_with_nothing_to_learn_are_refused(changes, text, tmp_path):
    make(tmp_path / "set", **changes)
    with pytest.raises(tfnet.DataError) as caught:
        opened(tmp_path / "set")
    assert text in str(caught.value)


@pytest.mark.parametrize("in_memory", [True, False])
def test_fortran_order(in_memory, tmp_path, monkeypatch):
    if not in_memory:
        monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    content = make(tmp_path / "s")
    np.save(
        tmp_path / "s/train_images.npy",
        np.asfortranarray(content["train_images"]),
    )
    with pytest.raises(tfnet.DataError, match="train_images.npy.*Fortran"):
        opened(tmp_path / "s")


@pytest.mark.parametrize("label", [2**32, -(2**32)])
def test_label_that_wraps(label, tmp_path):
    make(tmp_path / "s", train_labels=np.array([0, 1, label] * 3))
    with pytest.raises(tfnet.DataError, match="out of range"):
        opened(tmp_path / "s")


@pytest.mark.parametrize("name", ["train_images", "train_labels"])
@pytest.mark.parametrize("kind", ["npz", "bad zip", "header", "header 2"])
def test_damage_of_other_kinds(name, kind, tmp_path):
    content = make(tmp_path / "s")
    path = tmp_path / "s" / f"{name}.npy"
    whole = path.read_bytes()
    if kind == "npz":
        np.savez(tmp_path / "x.npz", content[name])
        (tmp_path / "x.npz").replace(path)
    elif kind == "bad zip":
        path.write_bytes(b"PK\x03\x04junk")
    elif kind == "header":
        path.write_bytes(whole.replace(b"), }", b"), {", 1))
    else:
        path.write_bytes(
            whole.replace(b"'descr': '<i8'", b"'descr': '<08'").replace(
                b"'descr': '|u1'", b"'descr': '<08'"
            )
        )
    with pytest.raises(tfnet.DataError, match=f"{name}.npy"):
        opened(tmp_path / "s")


def test_new_labels_are_noticed_in_a_packed_set(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    make(tmp_path / "s")
    opened(tmp_path / "s", image_size=8)
    new = np.arange(9)[::-1] % 3
    np.save(tmp_path / "s/train_labels.npy", new)
    labels = opened(tmp_path / "s", image_size=8).train.labels
    assert labels.tolist() == new.tolist()


def test_new_test_images_are_noticed_in_a_packed_set(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    make(tmp_path / "s")
    opened(tmp_path / "s", image_size=8)
    np.save(tmp_path / "s/test_images.npy", np.full((5, 4, 4, 3), 9, np.uint8))
    data = opened(tmp_path / "s", image_size=8)
    assert np.unique(data.test.take(np.arange(5))[0]).tolist() == [9]


def test_a_dry_run_takes_a_few(tmp_path):
    make(
        tmp_path / "s",
        train_images=np.zeros((200, 4, 4, 3), np.uint8),
        train_labels=np.arange(200) % 3,
    )
    data = opened(tmp_path / "s", dry_run=True)
    assert len(data.train) == 64


def test_fingerprint_of_arrays_in_another_order():
    pixels = np.arange(240, dtype=np.uint8).reshape(5, 4, 4, 3)
    labels = np.zeros(5, np.int32)
    prints = set()
    for images in (pixels, np.asfortranarray(pixels)):
        one = Examples(images, labels)
        prints.add(Dataset("n", "o", ("c",), one, one).fingerprint())
    assert len(prints) == 1


def split_by_hand(labels, fraction):
    kept = np.zeros(len(labels), bool)
    for label in set(labels.tolist()):
        places = np.flatnonzero(labels == label).tolist()
        if fraction is None:
            kept[places[4::5]] = True
            continue
        places.sort(key=lambda i: hashlib.sha256(b"%d" % i).digest())
        kept[places[: round(fraction * len(places))]] = True
    return kept


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("image_size", [4, 8])
@pytest.mark.parametrize("fraction", [None, 0.25])
def test_arrays_without_test_images_are_split(
    in_memory, image_size, fraction, tmp_path, monkeypatch
):
    from tfnet.data.images import resize

    if not in_memory:
        monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 3))
    pixels, labels = pixels.astype(np.uint8), np.arange(40)[::-1] % 2
    make(tmp_path / "s", train_images=pixels, train_labels=labels,
         test_images=None, test_labels=None)  # fmt: skip
    data = opened(tmp_path / "s", image_size=image_size, test_fraction=fraction)
    kept = split_by_hand(labels, fraction)
    assert kept.sum() == (8 if fraction is None else 10)
    for examples, those in ((data.train, ~kept), (data.test, kept)):
        assert isinstance(examples.images, ImageFile) != in_memory
        count = int(those.sum())
        assert examples.images.shape == (count, image_size, image_size, 3)
        for order in (np.arange(count), np.arange(count)[::-2]):
            images, found = examples.take(order)
            want = resize(pixels[those], image_size).numpy()[order]
            np.testing.assert_array_equal(images, want)
            assert found.tolist() == labels[those][order].tolist()
    told = "0.25 of each class" if fraction else "every fifth image of each"
    assert f"No test images in the folder: {told}" in data.notes[0]


def test_a_large_file_is_split_without_being_read(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    make(tmp_path / "s", test_images=None, test_labels=None)
    monkeypatch.setattr(ImageFile, "take", None)
    data = opened(tmp_path / "s", test_fraction=0.5)
    assert (len(data.train), len(data.test)) == (3, 6)


def test_test_images_that_come_later_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    make(tmp_path / "s", test_images=None, test_labels=None)
    opened(tmp_path / "s", image_size=8, test_fraction=0.5)
    with pytest.raises(tfnet.DataError, match="no image to test on; it needs"):
        opened(tmp_path / "s", image_size=8)
    make(tmp_path / "s")
    assert len(opened(tmp_path / "s", image_size=8).test) == 5
    with pytest.raises(tfnet.DataError, match="--test_fraction .0.5.*which"):
        opened(tmp_path / "s", image_size=8, test_fraction=0.5)
