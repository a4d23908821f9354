"""What is said about a data set, against counts made by hand."""

import dataclasses

import numpy as np
import pytest

import tfnet
from tfnet import parts
from tfnet.data import Dataset, Examples
from tfnet.data.remarks import duplicates, imbalance


def dataset(train, test=(0,), names=("a", "b", "c")):
    """A data set of these labels; every image is another."""

    def examples(labels, first):
        values = first + np.arange(len(labels))
        pixels = np.broadcast_to(
            values[:, None, None, None], (len(labels), 2, 2, 3)
        )
        return Examples(pixels.astype(np.uint8), np.array(labels, np.int32))

    return Dataset(
        "name", "origin", names, examples(train, 0), examples(test, 100)
    )


def test_three_times_as_many_are_told():
    assert imbalance(dataset([0] * 8 + [1] * 3 + [2] * 4)) == []
    (note,) = imbalance(dataset([0] * 4 + [1] * 3 + [2] * 9))
    assert "class c has 9" in note
    assert "b 3;" in note
    assert "--class_weights=balanced" in note


def test_a_class_without_an_example_is_told():
    assert "no training image of the class b." in imbalance(dataset([0, 2]))[0]
    assert "class b and 1 more." in imbalance(dataset([0, 0]))[0]


def test_the_same_pixels_on_both_sides_are_counted():
    data = dataset([0, 1, 2] * 4, [0, 1, 2, 0])
    assert duplicates(data) == []
    images = data.test.images.copy()
    images[1] = data.train.images[5]
    images[3] = data.train.images[5]
    twice = dataclasses.replace(data, test=Examples(images, data.test.labels))
    (note,) = duplicates(twice)
    assert note.startswith("2 of the 4 test images are")
    images[3, 0, 0, 0] += 1
    assert duplicates(twice)[0].startswith("1 of the 4 test images is")


def test_the_sample_has_neither():
    from tfnet.data.pack import in_memory
    from tfnet.data.sample import open_sample

    data = in_memory(open_sample(), 28, None)
    assert imbalance(data) == []
    assert duplicates(data) == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, True),
        ({"class_weights": "balanced"}, False),
        ({"class_weights": "1,2,3"}, False),
        ({"dry_run": True}, False),
    ],
)
def test_it_is_told_where_nothing_is_done_about_it(settings, told):
    data = dataset([0] * 9 + [1] * 3 + [2] * 3)
    found = parts._remarks(tfnet.Config(**settings), data)
    assert bool(found) == told
