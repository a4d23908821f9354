"""What a program gives at the library's boundary: taken, or refused."""

from pathlib import Path

import numpy as np
import pytest

import tfnet
from tfnet import Config, ConfigError, DataError, Run


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return tfnet.run(
        Config(
            dataset=data,
            image_size=16,
            batch_size=15,
            steps=3,
            devices=1,
            logical_devices=8,
            export=False,
            run_dir=str(tmp_path_factory.mktemp("arguments") / "run"),
        )
    )


IMAGES = np.random.default_rng(0).integers(0, 256, (4, 20, 16, 3))
IMAGES = IMAGES.astype(np.uint8)
GREY = np.repeat(IMAGES[..., :1], 3, axis=3)


@pytest.mark.parametrize(
    ("given", "same"),
    [
        (list(IMAGES), IMAGES),
        (GREY[..., 0], GREY),
        (GREY[..., :1], GREY),
    ],
)
def test_images_are_taken_as_in_training(given, same, run):
    np.testing.assert_array_equal(run.predict(given), run.predict(same))


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (IMAGES / 255, ["float64", "(images * 255).round().astype('uint8')"]),
        (IMAGES.astype(int), ["int64", "images.astype('uint8')"]),
        (IMAGES.astype(int) + 9, ["to 264. Bring its values there."]),
        (IMAGES.astype(int) - 9, ["from -9 to", "Bring its values there."]),
        (IMAGES * np.nan, ["float64", "Bring its values there."]),
        (IMAGES > 9, ["bool", "(images * 255).astype('uint8')"]),
        (IMAGES.tolist(), ["np.asarray(images).astype('uint8')"]),
        (list(IMAGES / 255), ["(np.asarray(images) * 255).round()"]),
        (IMAGES[0], ["[20, 16, 3]", "np.asarray(images)[np.newaxis]"]),
        (IMAGES[:0], ["one image at least", "[0, 20, 16, 3]"]),
        (np.repeat(GREY, 2, 3)[..., :4], ["[4, 20, 16, 4]", "[..., :3]"]),
        (IMAGES[..., :2], ["grey and alpha", "[..., :1]"]),
        (IMAGES.transpose(0, 3, 1, 2), ["images.transpose(0, 2, 3, 1)"]),
        ([IMAGES[0], IMAGES[1, :9]], ["must be one array"]),
        (np.array([None, 1]), ["an array of objects"]),
        (["frog.png"], ["an array of text; decode files before"]),
        (None, ["it is None"]),
        ({}, ["of type dict"]),
        ("frog.png", ["of type str"]),
    ],
)
def test_images_are_refused_as_in_training(given, parts, run):
    with pytest.raises(DataError, match="^images must ") as caught:
        run.predict(given)
    text = str(caught.value)
    assert "\n" not in text
    for part in parts:
        assert part in text
    if "np.newaxis" not in text:
        with pytest.raises(DataError) as again:
            tfnet.run(run.config, data=(given, [0, 1, 0, 1]))
        assert str(again.value) == text


def test_formats_are_one_text_or_a_row(run, tmp_path):
    assert list(run.export("keras", tmp_path)) == ["keras"]
    done = run.export("keras,saved_model", tmp_path)
    assert list(done) == ["keras", "saved_model"]
    assert list(run.export(("keras",), tmp_path)) == ["keras"]


@pytest.mark.parametrize(
    "formats",
    ["", "oops", "keras,", "keras,keras", [], ["keras", "oops"],
     ["keras", "keras"], [5], 5, None],
)  # fmt: skip
def test_other_formats_are_refused_before_the_work(formats, run, tmp_path):
    with pytest.raises(ConfigError, match=r"^formats \(.*\) must be some of"):
        run.export(formats, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_is_given_or_named(run, data, tmp_path):
    want = run.evaluate()
    assert run.evaluate(data).loss == want.loss
    assert run.evaluate(Path(data)).loss == want.loss
    assert run.evaluate(run.open_dataset(Path(data))).loss == want.loss
    assert run.export("keras", tmp_path, dataset=data)["keras"].images == 101


def test_a_data_set_of_another_size_is_refused(run, data):
    other = Run(
        config=Config(dataset=data, image_size=20),
        record=run.record,
        directory=None,
    )
    with pytest.raises(DataError, match=r"--image_size \(16\).* 20 x 20"):
        run.evaluate(other.dataset)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda run: Run.open(5), "directory (5) must be the path"),
        (lambda run: Run.open(None), "directory (None) must be the path"),
        (lambda run: Run.open(b"r"), "directory (b'r') must be the path"),
        (lambda run: Run.open(""), "directory ('') must be the path"),
        (lambda run: Run.open("a\0"), "directory ('a\\x00') must be the path"),
        (lambda run: Run.open("~no_such_user/r"), "~no_such_user is the home"),
        (lambda run: run.report(5), "directory (5) must be the path"),
        (lambda run: run.export("keras", 5), "directory (5) must be the path"),
        (lambda run: run.export("keras", tell=5), "tell (5) must be a func"),
        (lambda run: run.export("keras", dataset=5), "dataset (5) must be"),
        (lambda run: run.evaluate(5), "dataset (5) must be what --dataset"),
        (lambda run: run.evaluate(""), "--dataset () must be text"),
        (lambda run: run.open_dataset(5), "--dataset (5) must be text"),
        (lambda run: run.open_dataset("x", 5), "--data_dir (5) must be text"),
        (lambda run: run.logits(IMAGES), "examples (of type ndarray) must be"),
        (lambda run: tfnet.run("x"), "config ('x') must be a tfnet.Config"),
        (lambda run: tfnet.run(None), "config (None) must be a tfnet.Config"),
        (lambda run: Config.from_flags("--epochs=1"), "must be a list of"),
        (lambda run: Config.from_flags(5), "arguments (5) must be a list"),
        (lambda run: Config.from_flags([5]), "arguments ([5]) must be a list"),
        (lambda run: Config(cache_dir="~no_such_user/c"),
         "--cache_dir (~no_such_user/c) must be a path that can be found"),
    ],
)  # fmt: skip
def test_what_is_of_another_kind_is_named(call, text, run):
    with pytest.raises(ConfigError) as caught:
        call(run)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("names", [5, [], [1, 2], "ab", ["a", ""]])
def test_class_names_of_another_kind_are_refused(names, run):
    with pytest.raises(DataError, match="must be a list of names, none empty"):
        tfnet.run(run.config, data=(IMAGES, [0, 1, 0, 1]), class_names=names)
