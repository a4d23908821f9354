"""Arrays given in Python."""

import numpy as np
import pytest

import tfnet
from tfnet.data import open_dataset


def opened(data, class_names=None, *, name=None, **keywords):
    settings = {"image_size": 6, "dry_run": False, **keywords}
    return open_dataset(
        name,
        data_dir=None,
        cache_dir="/nowhere",
        tell=print,
        given=data,
        class_names=class_names,
        **settings,
    )


def error_of(data, class_names=None, **keywords):
    with pytest.raises(tfnet.DataError) as caught:
        opened(data, class_names, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def images():
    random = np.random.default_rng(0)
    return random.integers(0, 256, (20, 6, 6, 3)).astype(np.uint8)


LABELS = np.arange(20) % 2


def test_four_arrays_are_taken_as_they_are(images):
    data = opened((images[:15], LABELS[:15], images[15:], LABELS[15:]))
    np.testing.assert_array_equal(data.train.images, images[:15])
    np.testing.assert_array_equal(data.test.images, images[15:])
    assert data.train.labels.tolist() == LABELS[:15].tolist()
    assert data.train.labels.dtype == np.int32
    assert data.class_names == ("0", "1")
    assert data.notes == ()
    # A column of labels, as keras.datasets gives them, in a list.
    again = opened(
        [images[:15], LABELS[:15, None], images[15:], LABELS[15:].tolist()]
    )
    assert again.fingerprint() == data.fingerprint()


def test_two_arrays_are_split(images):
    data = opened((images, LABELS))
    # The fifth and tenth of each class: at 8, 18 and 9, 19.
    np.testing.assert_array_equal(data.test.images, images[[8, 9, 18, 19]])
    assert data.test.labels.tolist() == [0, 1, 0, 1]
    assert len(data.train) == 16
    assert "every fifth" in data.notes[0]
    assert len(opened((images, LABELS), test_fraction=0.4).test) == 8


@pytest.mark.parametrize("shape", [(20, 6, 6), (20, 6, 6, 1)])
def test_grey_is_repeated(shape):
    grey = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    data = opened((grey, LABELS, grey, LABELS))
    for channel in range(3):
        np.testing.assert_array_equal(
            data.train.images[..., channel], grey.reshape(20, 6, 6)
        )


def test_other_sizes_are_brought_to_size():
    flat = np.full((20, 9, 13, 3), 7, np.uint8)
    data = opened((flat, LABELS))
    assert data.image_shape == (6, 6, 3)
    assert np.unique(data.train.images).tolist() == [7]


def test_labels_may_be_names(images):
    words = np.where(LABELS, "10", "2")
    for labels in (words, words.astype(object), words.tolist()):
        data = opened((images, labels))
        assert data.class_names == ("2", "10")
        assert data.test.labels.tolist() == [0, 1, 0, 1]
    data = opened((images, words), ["10", "2", "none"])
    assert data.class_names == ("10", "2", "none")
    assert data.test.labels.tolist() == [1, 0, 1, 0]
    assert opened((images, LABELS), ["cat", "dog"]).class_names == (
        "cat",
        "dog",
    )


def test_arrays_are_not_those_of_the_caller(images):
    data = opened((images, LABELS, images, LABELS))
    before = data.fingerprint()
    images[:] = 0
    assert data.fingerprint() == before


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda x: x, ["(images, labels)"]),
        (lambda x: (x,), ["(images, labels)"]),
        (lambda x: (x / 255, LABELS), ["float64", "(images * 255).round()"]),
        (
            lambda x: ((x / np.float32(127.5) - 1), LABELS),
            ["float32", "((images + 1) * 127.5).round()"],
        ),
        (lambda x: (x * 1.0, LABELS), ["images.round().astype('uint8')"]),
        (lambda x: (x * -9.0, LABELS), ["Bring its values there"]),
        (lambda x: (x.astype(int), LABELS), ["int64", "astype('uint8')"]),
        (lambda x: (x, LABELS, x / 255, LABELS), ["test_images must be uint8"]),
        (lambda x: (x[0], LABELS), ["labels must be [6]"]),
        (lambda x: (x[..., :2], LABELS), ["[20, 6, 6, 2]"]),
        (lambda x: (x[:0], LABELS[:0]), ["[0, 6, 6, 3]"]),
        (lambda x: ([x[0], x[1, :3]], LABELS), ["one array"]),
        (lambda x: (x, LABELS[:19]), ["labels must be [20]", "[19]"]),
        (lambda x: (x, np.eye(2)[LABELS]), ["labels.argmax(axis=1)"]),
        (lambda x: (x, LABELS * 1.0), ["integers or all strings", "float64"]),
        (lambda x: (x, LABELS - 1), ["from -1 to 0"]),
        (lambda x: (x, LABELS * 20), ["from 0 to 20"]),
        (lambda x: (x, LABELS * 0), ["1 class"]),
        (lambda x: (x, [""] * 20), ["empty"]),
        (lambda x: (x[:4], LABELS[:4]), ["no image to test on"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_the_remedy(make, parts, images):
    message = error_of(make(images))
    for part in parts:
        assert part in message


def test_class_names_must_fit(images):
    assert "0 to 0 at most, with 1 name;" in error_of(
        (images, LABELS), ["only"]
    )
    assert "each class once" in error_of((images, LABELS), ["a", "a"])
    assert "none empty" in error_of((images, LABELS), ["a", ""])
    assert "list of names" in error_of((images, LABELS), "ab")
    words = np.where(LABELS, "a", "b")
    assert "'b' is not" in error_of((images, words), ["a", "c"])


def test_a_data_set_and_arrays_are_one_too_many(images):
    message = error_of((images, LABELS), name="cifar10")
    assert "--dataset (cifar10) must be left out" in message
    four = (images, LABELS, images, LABELS)
    assert "--test_fraction" in error_of(four, test_fraction=0.2)
    assert "data=(images, labels)" in error_of(None, name="given_in_python")
    assert "class_names" in error_of(None, ["a", "b"])


def test_a_run_on_arrays_and_its_flagfile(
    images, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    config = tfnet.Config(
        steps=3, log_every=1, export=False, devices=1, logical_devices=8
    )
    run = tfnet.run(config, data=(images, LABELS), class_names=["cat", "dog"])
    assert run.record["dataset"]["classes"] == ["cat", "dog"]
    assert "from arrays given in Python" in capsys.readouterr().out
    assert run.directory.name.startswith("given_in_python-net-")
    file = run.directory / "config.flags"
    assert "only with the arrays" in file.read_text().splitlines()[0]
    again = tfnet.Config.from_flags([f"--flagfile={file}"])
    second = tfnet.run(again, data=(images, LABELS), class_names=["cat", "dog"])
    assert second.record["test_loss"] == run.record["test_loss"]
    # Given as a flagfile alone, it is no other data set.
    with pytest.raises(tfnet.DataError, match="that a program gives"):
        tfnet.run(again)
