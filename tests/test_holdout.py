"""Which examples are kept for testing, against hashlib and arithmetic."""

import hashlib

import numpy as np
import pytest
from test_folder import make, values

import tfnet
from tfnet.data.folder import open_folder
from tfnet.data.holdout import held_out


def test_unset_is_every_fifth_of_each_class():
    labels = np.array([0, 1] * 11 + [2] * 4)
    found = np.flatnonzero(held_out(labels, None)).tolist()
    # The fifth and tenth of class 0 stand at 8 and 18, of class 1 one later.
    assert found == [8, 9, 18, 19]


@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.25, 0.5, 0.99])
def test_a_fraction_of_each_class_by_the_smallest_hashes(fraction):
    labels = np.repeat([0, 1, 2], [50, 7, 2])
    names = [b"%d.png" % number for number in range(59)]
    found = held_out(labels, fraction, names)
    for label, size in ((0, 50), (1, 7), (2, 2)):
        count = min(max(int(fraction * size + 0.5), 1), size - 1)
        members = [
            name
            for name, one in zip(names, labels, strict=True)
            if one == label
        ]
        ranked = sorted(members, key=lambda name: hashlib.sha256(name).digest())
        kept = [names[i] for i in np.flatnonzero(found & (labels == label))]
        assert sorted(kept) == sorted(ranked[:count])


def test_a_class_of_one_is_for_training():
    assert held_out(np.array([0, 0, 1]), 0.5)[2] == np.False_


def test_numbers_are_the_names_where_there_are_none():
    labels = np.zeros(20, int)
    names = [str(number).encode() for number in range(20)]
    np.testing.assert_array_equal(
        held_out(labels, 0.3), held_out(labels, 0.3, names)
    )


def test_the_split_of_a_folder_moves_with_it_and_stays_as_it_grows(tmp_path):
    paths = [f"{name}/{i}.png" for name in ("cat", "dog") for i in range(20)]
    make(tmp_path / "here", *paths)
    make(tmp_path / "there" / "train", *paths)
    source = open_folder(tmp_path / "here", test_fraction=0.3)
    assert source.counts == {"train": 28, "test": 12}
    images, labels = values(source, "test")
    assert labels == [0] * 6 + [1] * 6
    moved = open_folder(tmp_path / "there", test_fraction=0.3)
    assert values(moved, "test") == (images, labels)
    assert "0.3 of each class (--test_fraction)" in source.notes[0]
    # One more cat: of the six, rounded from 6.3, five at least are the same.
    make(tmp_path / "here", *paths, "cat/new.png")
    grown, _ = values(open_folder(tmp_path / "here", test_fraction=0.3), "test")
    assert len(set(grown) & set(images)) >= 11


def test_two_images_of_a_class_are_enough(tmp_path):
    make(tmp_path, "a/1.png", "a/2.png", "b/1.png")
    source = open_folder(tmp_path, test_fraction=0.1)
    assert source.counts == {"train": 2, "test": 1}


def test_a_fraction_is_refused_where_there_are_test_images(tmp_path):
    make(tmp_path, "train/a/1.png", "train/b/1.png", "val/a/1.png")
    with pytest.raises(tfnet.DataError) as caught:
        open_folder(tmp_path, test_fraction=0.2)
    assert "--test_fraction (0.2)" in str(caught.value)
    assert "val/" in str(caught.value)


@pytest.mark.parametrize("name", ["fashion_mnist_10k", "cifar10", None])
def test_a_fraction_is_refused_for_a_set_by_name(name, tmp_path):
    from tfnet.data import open_dataset

    with pytest.raises(tfnet.DataError, match="--test_fraction"):
        open_dataset(
            name,
            data_dir=str(tmp_path),
            cache_dir=str(tmp_path),
            image_size=4,
            dry_run=True,
            tell=print,
            test_fraction=0.2,
        )


def test_a_fraction_is_above_0_and_below_1():
    for value in (0, 1, -0.1, 2):
        with pytest.raises(tfnet.ConfigError, match="above 0 and below 1"):
            tfnet.Config(test_fraction=value)
