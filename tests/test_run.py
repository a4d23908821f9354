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
from tfnet.data import arrays

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


def only_norm(image_shape, num_classes):
    return keras.Sequential([
        keras.Input(image_shape),
        keras.layers.BatchNormalization(),
        keras.layers.Flatten(),
        keras.layers.Dense(num_classes),
    ])


def drawing(image_shape, num_classes):
    return keras.Sequential([
        keras.Input(image_shape),
        keras.layers.RandomFlip("horizontal"),
        keras.layers.RandomTranslation(0.1, 0.1),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.5),
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


def test_a_users_layers_give_the_same_run_on_more_devices(own_model, here):
    one, many = (
        tfnet.run(
            Config(
                **{
                    **QUICK,
                    "model": f"{own_model}:with_norm",
                    "devices": devices,
                    "batch_size": 30,
                    "learning_rate": 0.01,
                },
                precision="float64",
                flip=True,
                accumulate_steps=2,
                steps=10,
                export=False,
            )
        )
        for devices in (1, 4)
    )
    for first, other in zip(
        one.model.get_weights(), many.model.get_weights(), strict=True
    ):
        assert first.dtype == np.float64
        np.testing.assert_allclose(other, first, rtol=0, atol=1e-12)
    # Accumulated batches have moments of their own, on one device too.
    for run in (one, many):
        (note,) = run.record["notes"]
        assert "moments of each accumulated batch" in note


def test_a_model_that_draws_is_exported(own_model, here):
    run = tfnet.run(
        Config(**{**QUICK, "model": f"{own_model}:drawing"}, steps=3)
    )
    loaded = tf.saved_model.load(str(run.directory / "saved_model"))
    image = np.zeros((1, 32, 32, 3), np.uint8)
    first, again = (
        loaded.signatures["serving_default"](images=tf.constant(image))
        for _ in range(2)
    )
    np.testing.assert_array_equal(first["logits"], again["logits"])


def test_own_moments_are_evaluated_as_they_are_exported(own_model, here):
    run = tfnet.run(
        Config(
            **{**QUICK, "model": f"{own_model}:with_norm", "devices": 4},
            sync_batch_norm=False,
            steps=20,
        )
    )
    from tfnet.data import open_dataset

    data = open_dataset(
        "fashion_mnist_10k", data_dir=None, cache_dir=None, image_size=32,
        dry_run=False, tell=print,
    )  # fmt: skip
    images, labels = data.test.take(np.arange(2000))
    loaded = tf.saved_model.load(str(run.directory / "saved_model"))
    served = loaded.signatures["serving_default"](images=tf.constant(images))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels, served["logits"]
    )
    assert run.record["test_loss"] == pytest.approx(
        float(np.mean(losses)), rel=1e-5
    )


def test_layers_that_differ_by_replica_are_told(own_model, here, capsys):
    tfnet.run(
        Config(
            **{**QUICK, "model": f"{own_model}:with_norm", "devices": 2},
            sync_batch_norm=False,
            steps=2,
            export=False,
        )
    )
    out = " ".join(capsys.readouterr().out.split())
    assert "(BatchNormalization) takes each replica's own moments" in out
    assert "the numbers differ from those of one" in out


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "float64"])
def test_a_precision_is_had_and_given_back(here, precision):
    run = tfnet.run(
        Config(**QUICK, precision=precision, steps=20, run_dir=precision)
    )
    import keras

    kept = "float64" if precision == "float64" else "float32"
    assert {weight.dtype.name for weight in run.model.get_weights()} == {kept}
    assert run.model.layers[0].compute_dtype == precision
    assert run.record["skipped_steps"] == 0
    assert np.isfinite(run.record["test_loss"])
    loaded = tf.saved_model.load(str(run.directory / "saved_model"))
    outputs = loaded.signatures["serving_default"](
        images=tf.zeros([1, 32, 32, 3], tf.uint8)
    )
    assert outputs["logits"].dtype == kept
    assert keras.config.floatx() == "float32"
    assert keras.config.dtype_policy().name == "float32"


def test_a_precision_is_given_back_after_a_failure(own_model, here):
    import keras

    with pytest.raises(tfnet.RunError):
        tfnet.run(
            Config(**{**QUICK, "model": f"{own_model}:failing"},
                   precision="float64")
        )  # fmt: skip
    assert keras.config.floatx() == "float32"
    assert keras.config.dtype_policy().name == "float32"


def test_the_averages_are_what_is_evaluated_and_exported(here):
    run = tfnet.run(Config(**QUICK, ema=0.9, steps=60, run_dir="r"))
    plain = tfnet.run(Config(**QUICK, steps=60, run_dir="p", export=False))
    assert run.record["test_loss"] != plain.record["test_loss"]
    confusion = np.loadtxt(
        run.directory / "confusion.csv",
        delimiter=",",
        skiprows=1,
        usecols=range(1, 11),
        dtype=int,
    )
    assert confusion.sum() == 2000
    assert run.record["test_accuracy"] == np.trace(confusion) / 2000
    from tfnet.data.sample import open_sample

    source = open_sample()
    chunks = list(source.read("test", 32, None))
    images = np.concatenate([images for images, _ in chunks])
    labels = np.concatenate([labels for _, labels in chunks])
    loaded = tf.saved_model.load(str(run.directory / "saved_model"))
    outputs = loaded.signatures["serving_default"](images=tf.constant(images))
    found = np.zeros((10, 10), int)
    np.add.at(found, (labels, outputs["class_id"].numpy()), 1)
    assert found.tolist() == confusion.tolist()


def test_the_learning_rate_is_logged_as_the_schedule_has_it(here):
    run = tfnet.run(
        Config(
            **{**QUICK, "log_every": 1},
            schedule="cosine",
            warmup_steps=2,
            steps=4,
            export=False,
            run_dir="r",
        )
    )
    with open(run.directory / "metrics.csv", newline="") as file:
        rates = [
            float(row["learning_rate"])
            for row in csv.DictReader(file)
            if row["split"] == "train"
        ]
    # Up to 0.02 in two steps, then (1 + cos(0)) / 2 and (1 + cos(pi / 2)) / 2.
    assert rates == pytest.approx([0.01, 0.02, 0.02, 0.01])


def test_class_weights_need_one_a_class(here):
    with pytest.raises(tfnet.ConfigError, match="each of the 10 classes"):
        tfnet.run(Config(**QUICK, class_weights="1,2"))


def test_balanced_weights_are_those_worked_out_by_hand():
    from tfnet.training import balanced_weights

    # 6 examples of 3 classes, one without any: 6 / (3 * 4), 6 / (3 * 2).
    labels = np.array([0, 0, 2, 0, 0, 2], np.int32)
    assert balanced_weights(labels, 3) == (0.5, 0.0, 1.0)


OPTIMIZERS = """
import keras


def good(learning_rate):
    return keras.optimizers.SGD(learning_rate, momentum=0.9)


def clipping(learning_rate):
    return keras.optimizers.SGD(learning_rate, clipnorm=1.0)


def fading(learning_rate):
    rate = keras.optimizers.schedules.CosineDecay(learning_rate, 10)
    return keras.optimizers.SGD(rate)


def slower(learning_rate):
    return keras.optimizers.SGD(learning_rate / 10)


def factor(learning_rate):
    return keras.optimizers.SGD(learning_rate, loss_scale_factor=1000.0)


def scaling(learning_rate):
    return keras.optimizers.LossScaleOptimizer(good(learning_rate))


def raising(learning_rate):
    raise ValueError("not today")


def other(learning_rate):
    return "sgd"
"""


@pytest.fixture
def own_optimizer(here, monkeypatch):
    (here / "own_optimizer_for_tests.py").write_text(OPTIMIZERS)
    monkeypatch.syspath_prepend(here)
    return "own_optimizer_for_tests"


def test_a_users_own_optimizer_trains(own_optimizer, here):
    settings = {**QUICK, "steps": 10, "export": False}
    own = tfnet.run(
        Config(**settings, optimizer=f"{own_optimizer}:good", run_dir="own")
    )
    ours = tfnet.run(Config(**settings, run_dir="ours"))
    for first, other in zip(
        own.model.get_weights(), ours.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("clipping", "must not set clipnorm.*use --clip_norm"),
        ("scaling", "must not set inner_optimizer.*--precision=float16"),
        ("factor", "must not set loss_scale_factor"),
        ("fading", "must have the learning rate that it is called with"),
        ("slower", "must have the learning rate that it is called with"),
        ("raising", "raised ValueError: not today"),
        ("other", "must return a Keras 3 optimizer; it returned a str"),
        ("missing", "can't be imported"),
    ],
)
def test_a_users_optimizer_that_is_none_is_one_line(
    own_optimizer, here, name, text
):
    with pytest.raises(tfnet.ConfigError, match=text) as caught:
        tfnet.run(Config(**QUICK, optimizer=f"{own_optimizer}:{name}"))
    assert f"--optimizer ({own_optimizer}:{name})" in str(caught.value)


TWICE = """
import sys
import numpy as np
import tfnet
for replicas in (1, 2, 4):
    runs = [
        tfnet.run(tfnet.Config(
            dataset="fashion_mnist_10k", steps=12, batch_size=30,
            model="own_model_for_tests:with_norm", flip=True,
            logical_devices=4, devices=replicas, deterministic=True,
            export=False,
        ))
        for _ in range(2)
    ]
    assert runs[0].record["deterministic"] is True
    pairs = zip(*(run.model.get_weights() for run in runs), strict=True)
    print(all(np.array_equal(a, b) for a, b in pairs))
"""


def test_deterministic_runs_are_equal_to_the_last_bit(own_model, here):
    # In a process of its own: it can't be switched off again.
    done = subprocess.run(
        [sys.executable, "-c", TWICE], capture_output=True, text=True, cwd=here
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in ("True", "False")] == ["True"] * 3


def test_a_users_model_that_fails_is_named(own_model, here):
    with pytest.raises(tfnet.RunError) as caught:
        tfnet.run(Config(**{**QUICK, "model": f"{own_model}:failing"}))
    message = str(caught.value)
    assert f"--model ({own_model}:failing) failed: ValueError" in message
    assert "\n" not in message


def test_images_kept_on_the_devices_change_no_bit(here):
    brought, held = (
        tfnet.run(
            Config(**{**QUICK, "devices": 2, "data_on_device": on, "crop": 2})
        )
        for on in (False, True)
    )
    for a, b in zip(
        brought.model.get_weights(), held.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_images_that_stay_in_their_file_are_not_kept_on_devices(
    here, monkeypatch
):
    for name, count in (("train", 9), ("test", 4)):
        np.save(here / f"{name}_images.npy", np.zeros((count, 32, 32, 3), "u1"))
        np.save(here / f"{name}_labels.npy", np.arange(count) % 2)
    monkeypatch.setattr(arrays, "IN_MEMORY_BYTES", 10)
    with pytest.raises(
        tfnet.ConfigError,
        match=r"^--data_on_device is .*; these are 0 MiB, .* Leave it out\.$",
    ):
        tfnet.run(
            Config(**{**QUICK, "dataset": str(here), "data_on_device": True})
        )


def test_a_device_without_room_for_the_images_is_told(here, monkeypatch):
    def no_room(array, devices):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM")

    monkeypatch.setattr("tfnet.training.step._variables", no_room)
    with pytest.raises(
        tfnet.ConfigError,
        match=r"^--data_on_device needs room .* MiB\) .*; leave it out\.$",
    ):
        tfnet.run(Config(**{**QUICK, "data_on_device": True}))


@pytest.mark.parametrize(
    ("function", "devices"), [("drawing", 1), ("only_norm", 2)]
)
@pytest.mark.parametrize("run_dir", [None, "new"])
def test_what_xla_cant_have_is_refused_before_anything_is_written(
    own_model, here, function, devices, run_dir
):
    model = f"{own_model}:{function}"
    with pytest.raises(
        tfnet.ConfigError, match=f"^--jit_compile is not for --model={model}:"
    ):
        tfnet.run(
            Config(
                **{**QUICK, "model": model, "devices": devices},
                run_dir=run_dir,
                jit_compile=True,
            )
        )
    assert not (here / "new").exists()
    runs = here / "runs"
    assert not runs.exists() or list(runs.iterdir()) == []


def test_a_directory_that_was_there_stays_when_a_run_is_refused(here):
    (here / "mine").mkdir()
    with pytest.raises(tfnet.ConfigError):
        tfnet.run(Config(**{**QUICK, "devices": 9}, run_dir="mine"))
    assert list(here.iterdir()) == [here / "mine"]


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
