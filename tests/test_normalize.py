"""--normalize=dataset: one scaling for whatever shows images to a model."""

import dataclasses
import json
import re
import shutil

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from harness import random_examples, train

import tfnet
from tfnet import Config, Run, parts
from tfnet.compare import differing_settings
from tfnet.data import Examples, dataset, images, scaling
from tfnet.data.augment import Augmentation
from tfnet.data.image_file import ImageFile
from tfnet.data.order import epoch_order
from tfnet.data.scaling import SEED, Scaling, scaling_of
from tfnet.lr_find import FindSettings, find

UNEVEN = Scaling((0.6, 0.25, 0.5), (0.2, 0.3, 0.05))
COUNT = 203


def noise(count, height, width, seed=0):
    """Images whose colours differ: bright red, dark green, pale blue."""
    random = np.random.default_rng(seed)
    made = np.empty((count, height, width, 3), np.uint8)
    for colour, (low, high) in enumerate([(90, 256), (0, 70), (200, 215)]):
        made[..., colour] = random.integers(low, high, made.shape[:3])
    return made


def by_numpy(pixels):
    # A colour at a time: along the other axis NumPy does not add in pairs.
    colours = [
        pixels[..., i].astype(np.float64).ravel() / 255 for i in (0, 1, 2)
    ]
    return [one.mean() for one in colours], [one.std() for one in colours]


def by_hand(pixels, scaling, dtype=np.float32):
    x = pixels.astype(np.float64) / 255
    return ((x - scaling.mean) / scaling.std).astype(dtype)


def labelled(pixels):
    return Examples(pixels, np.zeros(pixels.shape[0], np.int32))


@pytest.mark.parametrize("block", [1, 1000, 7 * 11 * 5 * 3 * 4, 2**20])
def test_statistics_are_numpys(block, tmp_path, monkeypatch):
    monkeypatch.setattr(scaling, "_BLOCK_BYTES", block)
    pixels = noise(101, 11, 5)
    np.save(tmp_path / "images.npy", pixels)
    np.save(tmp_path / "grey.npy", pixels[..., 0])
    grey = np.repeat(pixels[..., :1], 3, axis=-1)
    for given, seen in (
        (pixels, pixels),
        (ImageFile(tmp_path / "images.npy"), pixels),
        (ImageFile(tmp_path / "grey.npy"), grey),
    ):
        found, notes = scaling_of(labelled(given))
        mean, std = by_numpy(seen)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-13)
        np.testing.assert_allclose(found.std, std, rtol=1e-13)
        assert notes == []


def test_statistics_do_not_cancel():
    # One pixel in a million is 255 and all others are 254: the variance is
    # p (1 - p) of one grey level, 1e-11 of the mean square.
    pixels = np.full((100, 100, 100, 3), 254, np.uint8)
    pixels[3, 14, 15] = 255
    found, notes = scaling_of(labelled(pixels))
    p = 1e-6
    np.testing.assert_allclose(found.mean, (254 + p) / 255, rtol=1e-15)
    np.testing.assert_allclose(
        found.std, np.sqrt(p * (1 - p)) / 255, rtol=1e-14
    )
    assert notes == []
    # Half black and half white is what the seed's numbers are for.
    pixels[:50], pixels[50:] = 0, 255
    assert scaling_of(labelled(pixels)) == (SEED, [])


def test_a_colour_without_any_deviation_is_divided_by_1():
    pixels = noise(20, 4, 4)
    pixels[..., 1], pixels[..., 2] = 77, 0
    found, (note,) = scaling_of(labelled(pixels))
    assert found.mean[1:] == (77 / 255, 0)
    assert found.std[1:] == (1, 1)
    assert 0.1 < found.std[0] < 0.3
    assert "green (always 77) and blue (always 0)" in note
    scaled = images.scale(pixels, found).numpy()
    assert not scaled[..., 1:].any()
    assert scaled[..., 0].std() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scaling_is_the_formula(dtype, monkeypatch):
    pixels = np.arange(256, dtype=np.uint8)[:, None].repeat(3, axis=1)
    rounding = np.finfo(dtype).eps
    keras.config.set_floatx(dtype)
    try:
        for function in (images.scale, tf.function(images.scale)):
            found = function(tf.constant(pixels), UNEVEN).numpy()
            assert found.dtype == dtype
            # Of (0 or 255 - zero) / one, blue has the largest: 10.
            np.testing.assert_allclose(
                found, by_hand(pixels, UNEVEN, np.float64), atol=20 * rounding
            )
    finally:
        keras.config.set_floatx("float32")


def test_every_bit_is_kept_and_what_is_no_scaling_refused():
    odd = Scaling((1 / 3, np.pi / 4, 0.1), (5e-324, 1e-9, 0.7))
    assert Scaling.read(json.loads(json.dumps(odd.kept()))) == odd
    assert Scaling.read(None) == SEED
    assert SEED.formula == "(x / 255 - 0.5) / 0.5"
    assert SEED.zero == (127.5, 127.5, 127.5)
    for kept in (
        {"mean": [0, 0, 0], "std": [1, 1, 0]},
        {"mean": [0, 0, 0], "std": [1, 1, -1]},
        {"mean": [0, 0, np.nan], "std": [1, 1, 1]},
        {"mean": [0, 0, 0], "std": [1, 1, np.inf]},
        {"mean": [0, 0], "std": [1, 1, 1]},
    ):
        with pytest.raises(ValueError, match="a scaling"):
            Scaling.read(kept)


def test_another_word_is_refused_in_one_line():
    with pytest.raises(tfnet.ConfigError) as caught:
        Config.from_flags(["--normalize=imagenet"])
    assert str(caught.value) == (
        "--normalize (imagenet) must be seed or dataset; for example"
        " --normalize=seed."
    )


def linear():
    return keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(3)]
    )


def plain(rate):
    return keras.optimizers.SGD(rate)


@pytest.mark.parametrize("replicas", [1, 3])
def test_training_sees_the_scaled_images(replicas, strategy_of):
    """Softmax regression in NumPy, on images scaled by hand."""
    examples = random_examples(23)
    options = {
        "batch": 10, "make": plain, "rate": 0.02, "precision": "float64",
    }  # fmt: skip
    strategy = strategy_of(replicas)
    start = train(strategy, linear, examples, steps=0, **options)
    found = train(strategy, linear, examples, scaling=UNEVEN, **options)
    kernel, bias = start.weights
    order = epoch_order(23, seed=0, epoch=0)
    losses = []
    for chosen in (order[:10], order[10:20], order[20:]):
        x = by_hand(examples.images[chosen], UNEVEN, np.float64)
        x = x.reshape(len(chosen), -1)
        odds = np.exp(x @ kernel + bias)
        odds /= odds.sum(axis=1, keepdims=True)
        truth = np.eye(3)[examples.labels[chosen]]
        losses.append(-np.log((odds * truth).sum(axis=1)).mean())
        slope = (odds - truth) / len(chosen)
        kernel = kernel - 0.02 * x.T @ slope
        bias = bias - 0.02 * slope.sum(axis=0)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-10)
    np.testing.assert_allclose(found.weights[0], kernel, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.weights[1], bias, rtol=0, atol=1e-12)


def test_replicas_agree_where_images_are_augmented_and_mixed(strategy_of):
    one, three = (
        train(
            strategy_of(replicas),
            linear,
            random_examples(23),
            batch=10,
            precision="float64",
            augmentation=Augmentation(color=0.2, cutout=3),
            mixup=0.4,
            scaling=UNEVEN,
        )
        for replicas in (1, 3)
    )
    assert three.differs_from(one) < 1e-12


@pytest.mark.parametrize("used", [SEED, UNEVEN])
def test_what_is_cut_out_is_zero_once_scaled(used, strategy_of):
    # All of each image is cut out, so no weight of a pixel has a gradient.
    options = {"batch": 10, "make": plain, "rate": 0.1, "scaling": used}
    examples = random_examples(20)
    start = train(strategy_of(1), linear, examples, steps=0, **options)
    found = train(
        strategy_of(1),
        linear,
        examples,
        augmentation=Augmentation(cutout=16),
        mixup=0.4,
        **options,
    )
    np.testing.assert_array_equal(found.weights[0], start.weights[0])
    assert found.losses[0] == pytest.approx(np.log(3), rel=1e-6)
    assert not np.array_equal(found.weights[1], start.weights[1])


def make_data(place, seed=0, tint=(0, 0, 0)):
    """A folder of arrays, larger than they will be: five bright rows."""
    place.mkdir()
    for number, (split, count) in enumerate((("train", COUNT), ("test", 60))):
        pixels = noise(count, 20, 24, seed=seed + number).astype(int)
        labels = np.arange(count) % 5
        pixels[np.arange(count), labels * 4, :, :] += 40
        pixels = np.clip(pixels + tint, 0, 255).astype(np.uint8)
        np.save(place / f"{split}_images.npy", pixels)
        np.save(place / f"{split}_labels.npy", labels.astype(np.int32))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("normalize")
    make_data(place / "data")
    return place


def settings(place, name, **more):
    return {
        "dataset": str(place / "data"), "normalize": "dataset",
        "image_size": 16, "epochs": 2, "batch_size": 15, "learning_rate": 0.01,
        "logical_devices": 8, "devices": 1, "threads": 1, "export": False,
        "report": False,
        "run_dir": str(place / name), **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def run(place):
    return tfnet.run(Config(**settings(place, "whole", export=True)))


@pytest.fixture(scope="module")
def opened(run):
    return Run.open(run.directory)


@pytest.fixture(scope="module")
def expected(run):
    """Test images, and the logits of what NumPy makes of them."""
    shown, labels = run.dataset.test.take(np.arange(60))
    scaled = by_hand(shown, run.scaling)
    return shown, labels, run.model.predict(scaled, verbose=0)


def close(found, want):
    np.testing.assert_allclose(found, want, rtol=0, atol=2e-5)


def softmax(logits):
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def loss_of(logits, labels):
    return -np.log(softmax(logits)[np.arange(len(labels)), labels]).mean()


def test_a_run_has_the_statistics_of_its_training_images(run, opened):
    # 24 x 20 pixels became 16 x 16; the test images do not count.
    pixels, _ = run.dataset.train.take(np.arange(COUNT))
    assert pixels.shape == (COUNT, 16, 16, 3)
    mean, std = by_numpy(pixels)
    np.testing.assert_allclose(run.scaling.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(run.scaling.std, std, rtol=1e-13)
    assert min(np.abs(np.array(mean) - 0.5)) > 0.05
    assert opened.scaling == run.scaling
    assert opened.config.normalize == "dataset"
    assert differing_settings([opened.config, Config()])["normalize"] == [
        "dataset", "seed",
    ]  # fmt: skip


def test_a_run_and_its_evaluation_give_the_logits_of_scaled_images(
    run, opened, expected
):
    shown, labels, want = expected
    close(run.logits(run.dataset.test), want)
    close(opened.predict(shown), softmax(want))
    close(run.predict(shown), softmax(want))
    loss = loss_of(want, labels)
    assert run.record["test_loss"] == pytest.approx(loss, rel=1e-5)
    assert opened.evaluate().loss == pytest.approx(loss, rel=1e-5)
    # It has learnt something, so that a wrong scale would show.
    assert run.record["test_accuracy"] > 0.5


def test_other_data_are_scaled_as_the_training_images_were(opened, tmp_path):
    make_data(tmp_path / "other", seed=5, tint=(-40, 60, -100))
    other = opened.open_dataset(str(tmp_path / "other"))
    shown, labels = other.test.take(np.arange(60))
    logits = opened.model.predict(by_hand(shown, opened.scaling), verbose=0)
    found = opened.evaluate(other).loss
    assert found == pytest.approx(loss_of(logits, labels), rel=1e-5)
    theirs, _ = scaling_of(other.train)
    wrong = opened.model.predict(by_hand(shown, theirs), verbose=0)
    assert abs(found - loss_of(wrong, labels)) > 0.01


@pytest.fixture(scope="module")
def exported(run, place):
    formats = ["keras", "tflite", "tflite_int8", "onnx", "pytorch"]
    return place / "export", run.export(formats, place / "export")


def test_every_export_scales_inside(run, exported, expected):
    shown, _, want = expected
    place, done = exported
    loaded = tf.saved_model.load(str(run.directory / "saved_model"))
    serve = loaded.signatures["serving_default"]
    close(serve(images=tf.constant(shown))["logits"], want)
    loaded = keras.models.load_model(place / "model.keras")
    close(loaded(shown), want)
    close(loaded.layers[-1](by_hand(shown, run.scaling)), want)
    interpreter = Interpreter(str(place / "model.tflite"))
    close(interpreter.get_signature_runner()(images=shown)["logits"], want)
    session = onnxruntime.InferenceSession(place / "model.onnx")
    close(session.run(None, {"images": shown})[0], want)
    size = np.abs(want).max()
    for name, one in done.items():
        limit = 0.1 if name == "tflite_int8" else 1e-4
        assert one.max_difference < limit * max(1, size), name
        assert abs(one.accuracy - one.reference_accuracy) < 0.05, name


def test_the_numbers_are_said_where_pixels_are_scaled_outside(run, exported):
    place, _ = exported
    text = (place / "pytorch" / "net.py").read_text()
    for name, numbers in (
        ("MEAN", run.scaling.mean),
        ("STD", run.scaling.std),
    ):
        (line,) = re.findall(rf"^{name} = (.*)$", text, re.MULTILINE)
        assert line == str(numbers)
    card = (place / "README.md").read_text()
    for colour, mean, std in zip(
        ("red", "green", "blue"), run.scaling.mean, run.scaling.std, strict=True
    ):
        assert f"| {colour} | {mean} | {std} |" in card
    assert "| `--normalize` | dataset |" in card
    assert f"scaled to {run.scaling.formula}, is `model.layers[-1]`" in card
    assert "`transforms.Normalize(MEAN, STD)`" in card


def own(image_shape, num_classes):
    return keras.Sequential(
        [
            keras.Input(image_shape),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(num_classes),
        ]
    )


def test_whatever_scales_images_has_one_scaling(place, monkeypatch, capsys):
    """Training, mixup, the probe, evaluation, export and predictions."""
    seen = []
    scale = images.scale

    def watched(pixels, used):
        seen.append(used)
        return scale(pixels, used)

    monkeypatch.setattr(images, "scale", watched)
    run = tfnet.run(
        Config(
            **settings(
                place, "own", model="test_normalize:own", mixup=0.3, steps=5,
                export=True,
            ) | {"devices": 2}
        )
    )  # fmt: skip
    run.predict(noise(2, 9, 9))
    # Per replica two in a step and one in an evaluation; three in the probe;
    # the export, and what it is compared with; predictions.
    assert len(seen) >= 2 * 3 + 3 + 2 + 1
    assert set(seen) == {run.scaling}
    text = " ".join(capsys.readouterr().out.split())
    mean, std = (
        ", ".join(f"{one:.4f}" for one in numbers)
        for numbers in (run.scaling.mean, run.scaling.std)
    )
    assert (
        "scaling (x / 255 - mean) / std, by red, green and blue in the training"
        f" images: mean {mean}, std {std} run " in text
    )


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(run, place):
    broken = settings(place, "broken")
    tfnet.run(Config(**broken, steps=17))
    rest = tfnet.run(Config(**broken))
    assert rest.scaling == run.scaling
    assert rest.record["resumed"][0]["step"] == 17
    for one, other in zip(
        run.model.get_weights(), rest.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(
        tfnet.ConfigError, match="--normalize was dataset and is seed"
    ):
        tfnet.run(Config(**broken | {"normalize": "seed"}))


def test_an_image_that_the_fingerprint_missed_is_found(place, monkeypatch):
    monkeypatch.setattr(dataset, "_FINGERPRINT_IMAGES", 2)
    shutil.copytree(place / "data", place / "changing")
    changing = settings(place, "changed", steps=2)
    changing["dataset"] = str(place / "changing")
    tfnet.run(Config(**changing))
    pixels = np.load(place / "changing" / "train_images.npy")
    pixels[1] = 255 - pixels[1]
    np.save(place / "changing" / "train_images.npy", pixels)
    with pytest.raises(tfnet.ConfigError, match="holds a run on other data"):
        tfnet.run(Config(**changing | {"steps": 4}))


def test_weights_for_another_scale_are_named(run, exported, place):
    given = {"init_from": str(run.directory), "steps": 1}
    same = tfnet.run(Config(**settings(place, "same", **given)))
    assert not [n for n in same.record["notes"] if "another scale" in n]
    other = tfnet.run(
        Config(**settings(place, "seed", **given) | {"normalize": "seed"})
    )
    (note,) = [n for n in other.record["notes"] if "another scale" in n]
    assert note.startswith(f"--init_from ({run.directory}) gives weights for")
    assert f"has {run.scaling.formula}, and this run {SEED.formula}" in note
    assert Run.open(other.directory).scaling == SEED
    given["init_from"] = str(exported[0] / "pytorch" / "model.safetensors")
    last = tfnet.run(Config(**settings(place, "file", **given)))
    (note,) = [n for n in last.record["notes"] if "another scale" in n]
    assert f"PyTorch's tutorial has {SEED.formula}, and this run" in note
    assert run.scaling.formula in note


def test_a_record_without_the_numbers_is_refused(run, tmp_path):
    shutil.copytree(run.directory, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    kept = record.pop("scaling")
    for damaged, text in (
        (record, "lacks what --normalize=dataset found"),
        ({**record, "scaling": None}, "lacks what --normalize=dataset found"),
        ({**record, "scaling": {**kept, "std": 1}}, "run.json is damaged;"),
        ({**record, "scaling": {"std": kept["std"]}}, "run.json is damaged;"),
    ):
        (tmp_path / "run" / "run.json").write_text(json.dumps(damaged))
        with pytest.raises(tfnet.ConfigError, match=text):
            Run.open(tmp_path / "run")


def test_the_range_test_scales_as_the_run_would(run, place):
    given = settings(place, "none", steps=30, seed=3) | {"batch_size": COUNT}
    curve = find(FindSettings(**given, lowest_rate=1e-6, highest_rate=1e-5))
    pixels, labels = run.dataset.train.take(np.arange(COUNT))
    config = dataclasses.replace(run.config, seed=3)
    model = parts.build_model(config, 5)
    logits = model.predict(by_hand(pixels, run.scaling), verbose=0)
    assert curve.losses[0] == pytest.approx(loss_of(logits, labels), rel=1e-5)
    seeds = model.predict(by_hand(pixels, SEED), verbose=0)
    assert abs(curve.losses[0] - loss_of(seeds, labels)) > 1e-4
