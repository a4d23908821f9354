"""`tfnet.run` as a notebook uses it: several runs in one process."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tfnet
from tfnet import Config

QUICK = {
    "dataset": "fashion_mnist_10k",
    "logical_devices": 8,
    "devices": 1,
    "batch_size": 32,
    "learning_rate": 0.02,
    "epochs": 1,
    "log_every": 50,
    "threads": 1,
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One real run on the bundled sample, that many tests look at."""
    place = tmp_path_factory.mktemp("runs") / "trained"
    return tfnet.run(Config(**QUICK, run_dir=str(place)))


def test_the_run_learns_and_says_so(trained):
    # Guessing gives 10 %; softmax regression on Fashion-MNIST about 80 %.
    assert trained.record["test_accuracy"] > 0.7
    assert trained.record["exit_reason"] == "finished"
    assert trained.record["steps"] == 250
    assert trained.record["images_per_second"] > 0


def test_the_record_is_what_run_json_holds(trained):
    path = trained.directory / "run.json"
    assert json.loads(path.read_text()) == trained.record


def test_the_recorded_figures_are_the_models(trained):
    from tfnet.data import open_dataset

    data = open_dataset(
        "fashion_mnist_10k",
        data_dir=None,
        cache_dir=None,
        image_size=32,
        dry_run=False,
        tell=print,
    )
    images, labels = data.test.take(np.arange(2000))
    scaled = ((images / 255 - 0.5) / 0.5).astype(np.float32)
    logits = trained.model.predict(scaled, batch_size=500, verbose=0)
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    loss = -log_p[np.arange(2000), labels].mean()
    guesses = logits.argmax(axis=1)
    assert trained.record["test_loss"] == pytest.approx(loss, abs=1e-5)
    assert trained.record["test_accuracy"] == (guesses == labels).mean()
    for number, name in enumerate(data.class_names):
        of_class = labels == number
        assert trained.record["class_accuracy"][name] == pytest.approx(
            (guesses[of_class] == number).mean()
        )


def test_metrics_have_a_row_a_window_and_the_test_figures(trained):
    with open(trained.directory / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], row["split"]) for row in rows] == [
        *((str(step), "train") for step in (50, 100, 150, 200, 250)),
        ("250", "test"),
    ]
    assert float(rows[0]["loss"]) > float(rows[-2]["loss"])
    assert float(rows[-1]["loss"]) == pytest.approx(
        trained.record["test_loss"], abs=1e-6
    )


def test_config_flags_repeats_the_run(trained, here):
    again = tfnet.run(
        Config.from_flags(
            [
                f"--flagfile={trained.directory / 'config.flags'}",
                "--noexport",
                f"--run_dir={here / 'again'}",
            ]
        )
    )
    for first, other in zip(
        trained.model.get_weights(), again.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(first, other)
    assert again.record["test_loss"] == trained.record["test_loss"]
    assert not (again.directory / "saved_model").exists()


def test_the_model_of_a_run_is_an_ordinary_one(here):
    run = tfnet.run(Config(**{**QUICK, "devices": 4}, run_dir="r", steps=5))
    # One image: with the strategy, three of four replicas would get nothing.
    image = np.zeros((1, 32, 32, 3), np.float32)
    logits = run.model.predict(image, verbose=0)
    run.model.compile("sgd", "mse")
    run.model.fit(image, logits, verbose=0)
    loaded = tf.saved_model.load(str(run.directory / "saved_model"))
    # 0 in [-1, 1] is between the bytes 127 and 128.
    low, high = (
        loaded.signatures["serving_default"](
            images=tf.constant(np.full((1, 32, 32, 3), byte, np.uint8))
        )["logits"].numpy()
        for byte in (127, 128)
    )
    np.testing.assert_allclose(logits, (low + high) / 2, atol=1e-2)


@pytest.mark.parametrize("replicas", [2, 4, 7])
def test_more_devices_give_the_same_run(here, replicas):
    # 10 steps: beyond that, float32 lets a last bit grow (max-pooling picks
    # another of four inputs), also between two orders of sums on one device.
    settings = {**QUICK, "steps": 10, "export": False}
    one = tfnet.run(Config(**settings, run_dir="one"))
    many = tfnet.run(
        Config(**{**settings, "devices": replicas}, run_dir="many")
    )
    assert many.record["replicas"] == replicas
    assert many.record["test_loss"] == pytest.approx(
        one.record["test_loss"], abs=1e-5
    )
    for first, other in zip(
        one.model.get_weights(), many.model.get_weights(), strict=True
    ):
        np.testing.assert_allclose(first, other, rtol=0, atol=1e-6)


def test_another_seed_is_another_run(trained, here):
    run = tfnet.run(Config(**QUICK, seed=1, steps=50, export=False))
    assert np.any(run.model.get_weights()[0] != trained.model.get_weights()[0])
    assert run.directory.parent == here / "runs"
    assert run.record["steps"] == 50


def test_a_second_run_of_another_size_works_in_the_same_process(here):
    run = tfnet.run(
        Config(
            **{**QUICK, "devices": 4, "image_size": 40},
            run_dir="r",
            steps=3,
        )
    )
    # fc1 sees 16 * 7 * 7 features instead of 16 * 5 * 5: 384 * 120 more.
    assert run.record["parameters"] == 62006 + 384 * 120


RELOADING = """
import importlib, sys
import tfnet
settings = dict(
    dataset="fashion_mnist_10k", steps=2, export=False, logical_devices=2
)
tfnet.run(tfnet.Config(**settings))
for name in ("tfnet", "tfnet.train", "tfnet.config", "tfnet.devices.start",
             "tfnet.training.step", "tfnet.runs.log"):
    importlib.reload(sys.modules[name])
tfnet.run(tfnet.Config(**settings))
for name in [name for name in sys.modules if name.split(".")[0] == "tfnet"]:
    del sys.modules[name]
import tfnet
run = tfnet.run(tfnet.Config(**settings, image_size=40))
print(run.record["steps"], run.record["replicas"])
"""


def test_modules_can_be_reloaded(here):
    done = subprocess.run(
        [sys.executable, "-c", RELOADING], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2 2"


def test_a_dry_run_does_everything_and_writes_nothing(here, capsys):
    run = tfnet.run(Config(**QUICK, dry_run=True))
    assert run.directory is None
    assert run.record["steps"] == 2
    assert run.record["dataset"]["train"] == 64
    assert "test_loss" in run.record
    assert list(here.iterdir()) == []
    assert "nothing was written" in capsys.readouterr().out


def test_evaluation_can_wait_for_the_end(here):
    run = tfnet.run(
        Config(
            **{**QUICK, "epochs": 3, "dry_run": False, "batch_size": 4000},
            eval_every=2,
            run_dir="r",
            export=False,
        )
    )
    with open(run.directory / "metrics.csv", newline="") as file:
        tests = [
            row["epoch"]
            for row in csv.DictReader(file)
            if row["split"] == "test"
        ]
    assert tests == ["2", "3"]


def test_a_loss_that_is_not_finite_stops_the_run(here):
    with pytest.raises(tfnet.RunError, match="not finite in epoch 1, step"):
        tfnet.run(Config(**{**QUICK, "learning_rate": 1e37}, run_dir="r"))
    record = json.loads((here / "r" / "run.json").read_text())
    assert "not finite" in record["exit_reason"]
    assert not (here / "r" / "saved_model").exists()


MODEL = """
import keras


def with_norm(image_shape, num_classes):
    return keras.Sequential([
        keras.Input(image_shape),
        keras.layers.Conv2D(4, 3, strides=4),
        keras.layers.BatchNormalization(),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(num_classes),
    ])


class Failing(keras.layers.Layer):
    def call(self, inputs, training=False):
        if training:
            raise ValueError("only when trained\\nand more")
        return inputs


def failing(image_shape, num_classes):
    return keras.Sequential([
        keras.Input(image_shape),
        Failing(),
        keras.layers.Flatten(),
        keras.layers.Dense(num_classes),
    ])
"""


@pytest.fixture
def own_model(here, monkeypatch):
    (here / "own_model_for_tests.py").write_text(MODEL)
    monkeypatch.syspath_prepend(here)
    return "own_model_for_tests"


def test_a_users_own_model_is_trained_and_exported(own_model, here, capsys):
    run = tfnet.run(
        Config(**{**QUICK, "model": f"{own_model}:with_norm"}, steps=60)
    )
    assert run.directory.name.startswith("fashion_mnist_10k-with_norm-")
    assert run.record["test_accuracy"] > 0.3
    norm = run.model.layers[1]
    assert np.any(norm.moving_mean.numpy() != 0)
    loaded = tf.saved_model.load(str(run.directory / "saved_model"))
    assert "serving_default" in loaded.signatures


def test_layers_that_differ_by_replica_are_told(own_model, here, capsys):
    tfnet.run(
        Config(
            **{**QUICK, "model": f"{own_model}:with_norm", "devices": 2},
            steps=2,
            export=False,
        )
    )
    out = " ".join(capsys.readouterr().out.split())
    assert "batch_normalization" in out
    assert "differ from those of one device" in out


def test_a_users_model_that_fails_is_named(own_model, here):
    with pytest.raises(tfnet.RunError) as caught:
        tfnet.run(Config(**{**QUICK, "model": f"{own_model}:failing"}))
    message = str(caught.value)
    assert f"--model ({own_model}:failing) failed: ValueError" in message
    assert "\n" not in message


def test_more_devices_than_there_are(here):
    with pytest.raises(tfnet.ConfigError, match="must be at most 8"):
        tfnet.run(Config(**{**QUICK, "devices": 9}))
    assert list(here.iterdir()) == []


def test_a_run_leaves_argv_and_flags_alone(here, monkeypatch):
    from absl import flags

    before = set(flags.FLAGS)
    argv = ["notebook", "-f", "/run/kernel.json"]
    monkeypatch.setattr(sys, "argv", list(argv))
    tfnet.run(Config(**QUICK, dry_run=True))
    assert sys.argv == argv
    assert {
        name for name in set(flags.FLAGS) - before if name in QUICK
    } == set()
