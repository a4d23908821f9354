import os

import numpy as np
import pytest
import tensorflow as tf

import tfnet
from tfnet.data.folder import open_folder
from tfnet.data.names import natural_order


def png(value=0, size=4):
    return tf.io.encode_png(np.full((size, size, 3), value, np.uint8)).numpy()


def make(root, *paths):
    """Makes images; the value of each is its number."""
    for value, path in enumerate(paths):
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(png(value % 256))
    return root


def values(source, split):
    chunks = list(source.read(split, 4, None))
    images = np.concatenate([images for images, _ in chunks])
    labels = np.concatenate([labels for _, labels in chunks])
    return images[:, 0, 0, 0].tolist(), labels.tolist()


def error_of(root):
    with pytest.raises(tfnet.DataError) as caught:
        source = open_folder(root)
        for split in ("train", "test"):
            list(source.read(split, 4, None))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_names_are_sorted_as_a_person_would():
    names = ["b", "10", "2", "a10", "a2", "B", "1b"]
    assert sorted(names, key=natural_order) == [
        "1b",
        "2",
        "10",
        "B",
        "a2",
        "a10",
        "b",
    ]


@pytest.mark.parametrize("test_name", ["test", "validation", "valid", "val"])
def test_a_folder_with_splits(test_name, tmp_path):
    make(
        tmp_path,
        "train/10/x.png",
        "train/2/y.jpg",
        "train/2/y10.png",
        "train/2/y9.png",
        f"{test_name}/2/z.png",
    )
    (tmp_path / "train" / "2" / ".hidden").write_text("no image")
    (tmp_path / ".git").mkdir()
    source = open_folder(tmp_path)
    assert source.class_names == ("2", "10")
    assert source.counts == {"train": 4, "test": 1}
    assert values(source, "train") == ([1, 3, 2, 0], [0, 0, 0, 1])
    assert values(source, "test") == ([4], [0])
    assert source.notes == ()


def test_a_folder_without_splits_keeps_every_fifth_of_each_class(tmp_path):
    make(
        tmp_path,
        *(f"cat/{i}.png" for i in range(1, 12)),
        *(f"dog/{i}.png" for i in range(1, 6)),
    )
    source = open_folder(tmp_path)
    # By number 5 and 10 of the cats (values 4 and 9), 5 of the dogs (15).
    assert values(source, "test") == ([4, 9, 15], [0, 0, 1])
    train, _ = values(source, "train")
    assert sorted([*train, 4, 9, 15]) == list(range(16))
    assert "every fifth" in source.notes[0]


def test_names_may_hold_anything(tmp_path):
    make(
        tmp_path,
        "train/a b/-x y.png",
        "train/ж/é\n.png",
        "train/new\nline/%s.png",
        "test/ж/1.png",
    )
    bad = os.fsencode(tmp_path / "train" / "a b") + b"/\xff.png"
    with open(bad, "wb") as file:
        file.write(png(9))
    source = open_folder(tmp_path)
    assert source.class_names == ("a b", "new\nline", "ж")
    assert sorted(values(source, "train")[0]) == [0, 1, 2, 9]


def test_links_are_followed(tmp_path):
    make(tmp_path / "real", "x.png")
    make(tmp_path / "root", "train/a/1.png", "test/a/1.png")
    (tmp_path / "root" / "train" / "b").symlink_to(tmp_path / "real")
    assert open_folder(tmp_path / "root").counts["train"] == 2


def test_a_limit_takes_examples_from_everywhere(tmp_path):
    make(
        tmp_path,
        *(f"train/a/{i}.png" for i in range(10)),
        *(f"train/b/{i}.png" for i in range(10)),
        "test/a/1.png",
    )
    ((images, labels),) = open_folder(tmp_path).read("train", 4, 4)
    assert labels.tolist() == [0, 0, 1, 1]
    assert images[:, 0, 0, 0].tolist() == [0, 5, 10, 15]


def test_other_sizes_are_brought_to_size(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    (tmp_path / "train" / "a" / "1.png").write_bytes(png(7, size=1))
    (tmp_path / "train" / "b" / "1.png").write_bytes(png(9, size=100))
    ((images, _),) = open_folder(tmp_path).read("train", 6, None)
    assert images.shape == (2, 6, 6, 3)
    assert images[0].min() == images[0].max() == 7
    assert images[1].min() == images[1].max() == 9


def test_what_is_no_folder_of_images_is_named(tmp_path):
    assert "is not a folder" in error_of(tmp_path / "nothing")
    assert "holds none" in error_of(tmp_path)
    make(tmp_path, "only/1.png")
    assert "holds only only" in error_of(tmp_path)
    (tmp_path / "second").mkdir()
    assert "second is a class without an image" in error_of(tmp_path)
    make(tmp_path, "second/deep/1.png")
    assert "deep is a folder inside a class" in error_of(tmp_path)


def test_a_test_folder_must_fit_the_training_one(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/c/1.png")
    assert "has the classes c" in error_of(tmp_path)
    make(tmp_path / "two", "train/a/1.png", "train/b/1.png")
    (tmp_path / "two" / "test").mkdir()
    assert "leaves no image to test on" in error_of(tmp_path / "two")


def test_too_few_images_for_a_split_are_told(tmp_path):
    make(tmp_path, "a/1.png", "b/1.png")
    assert "leaves no image to test on" in error_of(tmp_path)


@pytest.mark.parametrize("content", [b"", b"just text", png()[:30]])
def test_the_file_that_is_no_image_is_named_wherever_it_is(content, tmp_path):
    make(
        tmp_path,
        *(f"train/a/{i}.png" for i in range(1, 601)),
        *(f"train/b/{i}.png" for i in range(1, 301)),
        "test/a/1.png",
    )
    bad = tmp_path / "train" / "b" / "150.jpg"
    bad.write_bytes(content)
    message = error_of(tmp_path)
    assert str(bad) in message
    assert "is no image" in message


def test_a_broken_link_is_named(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    bad = tmp_path / "train" / "a" / "2.png"
    bad.symlink_to(tmp_path / "gone")
    assert str(bad) in error_of(tmp_path)


def test_a_test_folder_comes_before_a_validation_folder(tmp_path):
    make(
        tmp_path,
        "train/a/1.png",
        "train/b/1.png",
        "val/a/1.png",
        "validation/a/1.png",
        "test/a/1.png",
    )
    assert values(open_folder(tmp_path), "test") == ([4], [0])
    (tmp_path / "test").rename(tmp_path / "held back")
    assert values(open_folder(tmp_path), "test") == ([3], [0])


def test_hidden_names_are_passed_over_everywhere(tmp_path):
    make(
        tmp_path,
        "train/a/1.png",
        "train/a/.thumbnails/x.png",
        "train/b/1.png",
        "train/.cache/1.png",
        "test/a/1.png",
        "test/.cache/1.png",
    )
    (tmp_path / "train" / ".DS_Store").write_text("no image")
    (tmp_path / "test" / "a" / ".DS_Store").write_text("no image")
    source = open_folder(tmp_path)
    assert source.class_names == ("a", "b")
    assert values(source, "train") == ([0, 2], [0, 1])
    assert values(source, "test") == ([4], [0])


def test_a_class_with_hidden_files_only_has_no_image(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/.1.png", "test/a/1.png")
    message = error_of(tmp_path)
    assert str(tmp_path / "train" / "b") in message
    assert "without an image" in message


@pytest.mark.parametrize("count", [1, 4, 5, 9, 10, 12])
def test_every_fifth_by_natural_order_whatever_the_others(count, tmp_path):
    make(
        tmp_path,
        *(f"cat/{i}.png" for i in range(1, count + 1)),
        *(f"dog/{i}.png" for i in range(1, 6)),
    )
    # Values are positions in that list: cat number i has value i - 1.
    cats = [value for value in range(count) if value % 5 == 4]
    source = open_folder(tmp_path)
    images, labels = values(source, "test")
    assert images == [*cats, count + 4]
    assert labels == [0] * len(cats) + [1]
    assert source.counts["test"] == count // 5 + 1
    assert source.counts["train"] == count - count // 5 + 4
    again = open_folder(tmp_path)
    assert values(again, "test") == (images, labels)
    assert again.key == source.key


def test_files_are_followed_where_they_are_links(tmp_path):
    make(tmp_path / "real", "first.png", "second.png")
    make(tmp_path / "root", "train/a/1.png", "train/b/1.png", "test/a/1.png")
    (tmp_path / "root" / "train" / "a" / "2.png").symlink_to(
        tmp_path / "real" / "second.png"
    )
    assert values(open_folder(tmp_path / "root"), "train")[0] == [0, 1, 1]


def test_a_file_that_goes_after_the_listing_is_named(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    source = open_folder(tmp_path)
    gone = tmp_path / "train" / "b" / "1.png"
    gone.unlink()
    with pytest.raises(tfnet.DataError) as caught:
        list(source.read("train", 4, None))
    assert f"{gone} can't be read" in str(caught.value)


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif"])
def test_a_picture_cut_in_the_middle_is_named(kind, tmp_path):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (32, 32, 3)).astype(np.uint8)
    encoded = {
        "png": tf.io.encode_png,
        "jpeg": tf.io.encode_jpeg,
        # The head of a GIF and nothing after it.
        "gif": lambda _: tf.constant(b"GIF89a\x20\0\x20\0" * 2),
    }[kind](pixels).numpy()
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    bad = tmp_path / "test" / "a" / f"cut.{kind}"
    bad.write_bytes(encoded[: len(encoded) // 2])
    message = error_of(tmp_path)
    assert str(bad) in message
    assert "is no image" in message


def test_only_the_file_that_is_wrong_is_named(tmp_path):
    make(
        tmp_path,
        *(f"train/a/{i}.png" for i in range(1, 801)),
        "train/b/1.png",
        "test/a/1.png",
    )
    bad = tmp_path / "train" / "a" / "700.png"
    bad.write_bytes(b"no image")
    assert error_of(tmp_path).startswith(f"{bad} is no image")


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    real = os.scandir

    def refused(path):
        if os.fspath(path) == str(tmp_path / "train" / "b"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", refused)
    message = error_of(tmp_path)
    assert f"{tmp_path / 'train' / 'b'} can't be read" in message
    assert "Permission denied" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    bad = tmp_path / "train" / "a" / "1.png"
    bad.chmod(0)
    assert f"{bad} can't be read: Permission denied" in error_of(tmp_path)


def test_a_file_for_the_folder_is_named(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png())
    assert f"({path}) is not a folder" in error_of(path)


def test_a_limit_beyond_the_images_takes_them_all_once(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    ((images, labels),) = open_folder(tmp_path).read("train", 4, 100)
    assert images[:, 0, 0, 0].tolist() == [0, 1]
    assert labels.tolist() == [0, 1]


def test_the_key_changes_with_names_sizes_times_and_classes(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    path = tmp_path / "train" / "a" / "1.png"
    keys = [open_folder(tmp_path).key]
    times = path.stat().st_mtime_ns
    path.write_bytes(png(1) + b"x")
    os.utime(path, ns=(times, times))
    keys.append(open_folder(tmp_path).key)
    os.utime(path, ns=(times, times + 1))
    keys.append(open_folder(tmp_path).key)
    path.rename(path.with_name("2.png"))
    keys.append(open_folder(tmp_path).key)
    (tmp_path / "train" / "b").rename(tmp_path / "train" / "c")
    keys.append(open_folder(tmp_path).key)
    make(tmp_path, "test/a/2.png")
    keys.append(open_folder(tmp_path).key)
    assert len(set(keys)) == 6


def test_error_is_one_line_for_any_name(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    (tmp_path / "train/a/x\ny.png").write_text("no image")
    with pytest.raises(tfnet.DataError) as caught:
        list(open_folder(tmp_path).read("train", 4, None))
    assert "\n" not in str(caught.value)


def test_error_is_one_line_when_no_file_is_found_guilty(tmp_path, monkeypatch):
    from tfnet.data import image_list

    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    (tmp_path / "train/a/1.png").write_text("no image")
    monkeypatch.setattr(image_list, "_check_readable", lambda path: None)
    with pytest.raises(tfnet.DataError) as caught:
        list(open_folder(tmp_path).read("train", 4, None))
    assert "\n" not in str(caught.value)


def test_class_that_is_a_broken_link_is_named(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png")
    (tmp_path / "train/c").symlink_to(tmp_path / "gone")
    with pytest.raises(tfnet.DataError):
        open_folder(tmp_path)
