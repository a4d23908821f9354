"""What Keras' `model.fit` and tfnet give on one replica and on several.

    python -m benchmarks.fit_comparison [--replicas 2] [--output FILE]

Each case trains a small network twice with `model.fit` under MirroredStrategy
and twice with tfnet, each time in a process of its own: on one replica and on
N logical CPU devices, from the same initial weights, on the same data in the
order of tfnet's first epoch, for two to four steps.
Prints a table in Markdown: the largest difference of a weight, trainable or
not, between N replicas and one, or how the training failed.

`fit` is used as Keras documents it: model and `compile` in the strategy's
scope, the global batch as `batch_size`, arrays without shuffling. TensorFlow
chooses itself whether `fit` uses oneDNN, which tfnet turns on, unless
TF_ENABLE_ONEDNN_OPTS says so for both.
"""

import argparse
import dataclasses
import functools
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

# Before tfnet is imported, which turns oneDNN on.
_ENVIRONMENT = dict(os.environ)

import tfnet  # noqa: E402
from tfnet.data.order import epoch_order, split_evenly  # noqa: E402

_IMAGE_SHAPE = (16, 16, 3)
_CLASSES = 3
_TIMEOUT_SECONDS = 300
_MESSAGE_LENGTH = 75
_SIDES = ("fit", "tfnet")


def _network(
    image_shape: tuple[int, int, int],
    num_classes: int,
    *,
    filters: int = 4,
    first: tuple = (),
    between: tuple = (),
    last: tuple = (),
    regularizer: Any = None,
) -> Any:
    """Builds a convolution and a dense layer, with others around them."""
    # Keras is imported late, everywhere here: tfnet must come before it.
    import keras

    return keras.Sequential(
        [
            keras.Input(image_shape),
            *first,
            keras.layers.Conv2D(
                filters, 3, activation="relu", kernel_regularizer=regularizer
            ),
            *between,
            keras.layers.Flatten(),
            keras.layers.Dense(num_classes, kernel_regularizer=regularizer),
            *last,
        ]
    )


plain = _network
wide = functools.partial(_network, filters=8)


def normalised(image_shape: tuple[int, int, int], num_classes: int) -> Any:
    """Builds the network with BatchNormalization as it comes."""
    import keras

    layers = (keras.layers.BatchNormalization(),)
    return _network(image_shape, num_classes, between=layers)


def synchronised(image_shape: tuple[int, int, int], num_classes: int) -> Any:
    """Builds the network with Keras' synchronised BatchNormalization."""
    import keras

    layers = (keras.layers.BatchNormalization(synchronized=True),)
    return _network(image_shape, num_classes, between=layers)


def dropping(image_shape: tuple[int, int, int], num_classes: int) -> Any:
    """Builds the network with Dropout."""
    import keras

    layers = (keras.layers.Dropout(0.5, name="draws"),)
    return _network(image_shape, num_classes, between=layers)


def flipping(image_shape: tuple[int, int, int], num_classes: int) -> Any:
    """Builds the network with RandomFlip before it."""
    import keras

    layers = (keras.layers.RandomFlip("horizontal", name="draws"),)
    return _network(image_shape, num_classes, first=layers)


def regularised(image_shape: tuple[int, int, int], num_classes: int) -> Any:
    """Builds the network with L2 on its kernels."""
    import keras

    regularizer = keras.regularizers.L2(0.01)
    return _network(image_shape, num_classes, regularizer=regularizer)


def float32_logits(image_shape: tuple[int, int, int], num_classes: int) -> Any:
    """Builds the network with logits in float32, for mixed precision."""
    import keras

    layers = (keras.layers.Activation("linear", dtype="float32"),)
    return _network(image_shape, num_classes, last=layers)


def _sgd(**settings: Any) -> tuple[str, dict[str, Any]]:
    return "SGD", {"learning_rate": 0.05, "momentum": 0.9, **settings}


@dataclasses.dataclass(frozen=True)
class Case:
    """A row of the table: what is trained, and what each side is told.

    Attributes:
      name: The row's name; `{shares}` stands for those of the last batch.
      measure: What is compared, a key of `_FIT` and `_TFNET`.
      model: The function of this module that builds the network.
      examples: How many training images there are.
      batch: Examples in a batch (the global batch).
      epochs: How often to go over them.
      optimizer: A class of keras.optimizers and its settings.
      loss: Settings of CategoricalCrossentropy on one-hot labels; None: none,
        and labels are numbers of classes.
      compile: More settings of `compile`.
      fit: More settings of `fit`.
      policy: Keras' dtype policy.
      tfnet: More fields of `tfnet.Config`.
    """

    name: str
    measure: str = "weights"
    model: str = "plain"
    examples: int = 32
    batch: int = 8
    epochs: int = 1
    optimizer: tuple[str, Mapping[str, Any]] = _sgd()
    loss: Mapping[str, Any] | None = None
    compile: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fit: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    policy: str = "float32"
    tfnet: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def row_name(self, replicas: int) -> str:
        """Returns the name, with the shares that the last batch has."""
        last = self.examples % self.batch or self.batch
        shares = map(str, split_evenly(last, replicas))
        return self.name.format(shares=" + ".join(shares))


_CASES = (
    Case("every batch divides"),
    Case("last batch of 3 ({shares})", examples=19),
    Case("last batch of 1 ({shares})", examples=17),
    Case(
        "every batch divides, BatchNormalization(synchronized=True)",
        model="synchronised",
    ),
    Case(
        "last batch of 1 ({shares}), BatchNormalization(synchronized=True)",
        model="synchronised",
        examples=17,
    ),
    Case(
        "every batch divides, BatchNormalization as it comes",
        model="normalised",
    ),
    Case(
        "last batch of 1 ({shares}), BatchNormalization as it comes",
        model="normalised",
        examples=17,
    ),
    Case("every batch of 5 ({shares})", examples=15, batch=5),
    Case("5 examples in all ({shares})", examples=5, epochs=2),
    Case("1 example in all ({shares})", examples=1, epochs=2),
    Case("Dropout", measure="draws", model="dropping"),
    Case("RandomFlip in the model", measure="draws", model="flipping"),
    Case(
        "clip by global norm 0.05",
        optimizer=_sgd(global_clipnorm=0.05),
        tfnet={"clip_norm": 0.05},
    ),
    Case(
        "accumulate 2 batches",
        optimizer=_sgd(gradient_accumulation_steps=2),
        tfnet={"accumulate_steps": 2},
    ),
    Case(
        "averaged weights (EMA 0.9)",
        # fit itself ends with the averages in place of the weights.
        optimizer=_sgd(use_ema=True, ema_momentum=0.9),
        tfnet={"ema": 0.9},
    ),
    Case("steps_per_execution=4", compile={"steps_per_execution": 4}),
    Case(
        "jit_compile=True",
        compile={"jit_compile": True},
        tfnet={"jit_compile": True},
    ),
    Case(
        "AdamW, weight decay 0.1",
        optimizer=("AdamW", {"learning_rate": 0.001, "weight_decay": 0.1}),
        tfnet={
            "optimizer": "adamw",
            "learning_rate": 0.001,
            "weight_decay": 0.1,
        },
    ),
    Case("L2 on the kernels", model="regularised"),
    Case(
        "class weights 1, 2, 3",
        fit={"class_weight": {0: 1.0, 1: 2.0, 2: 3.0}},
        tfnet={"class_weights": "1,2,3"},
    ),
    Case(
        "label smoothing 0.1",
        loss={"label_smoothing": 0.1},
        tfnet={"label_smoothing": 0.1},
    ),
    Case(
        "float16",
        # What both compute in float16 differs by its rounding, 1e-3.
        model="float32_logits",
        policy="mixed_float16",
        tfnet={"precision": "float16"},
    ),
    Case("a second strategy, a wider model", measure="second strategy"),
    Case("predict 1 image (difference of logits)", measure="logits"),
    Case("a device that is not there", measure="missing device"),
)


def _random_images(count: int) -> np.ndarray:
    """Returns uint8 [count, *_IMAGE_SHAPE]."""
    random = np.random.default_rng(0)
    return random.integers(0, 256, (count, *_IMAGE_SHAPE), dtype=np.uint8)


def _labels(count: int) -> np.ndarray:
    """Returns int32 [count]."""
    random = np.random.default_rng(1)
    return random.integers(0, _CLASSES, count, dtype=np.int32)


def _scaled(images: np.ndarray) -> np.ndarray:
    """Returns images as tfnet gives them to a model, in [-1, 1]."""
    return ((images / 255 - 0.5) / 0.5).astype(np.float32)


def _weights(*models: Any) -> dict[str, Any]:
    flat = [w.ravel() for model in models for w in model.get_weights()]
    return {"values": np.concatenate(flat).tolist()}


def _logits(model: Any) -> dict[str, Any]:
    images = _scaled(_random_images(1))
    return {"values": model.predict(images, verbose=0).ravel().tolist()}


def _mirrored(replicas: int) -> Any:
    """Returns a new strategy over logical devices that are there."""
    import tensorflow as tf

    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def _split_cpu(replicas: int) -> None:
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * replicas,
    )


def _fit(case: Case, strategy: Any) -> Any:
    """Trains with `model.fit`; returns the model."""
    import keras

    keras.config.set_dtype_policy(case.policy)
    keras.utils.set_random_seed(0)
    # What is left to rounding depends on the order: both sides get the same.
    order = epoch_order(case.examples, seed=0, epoch=0)
    images = _scaled(_random_images(case.examples)[order])
    labels = _labels(case.examples)[order]
    with strategy.scope():
        if case.loss is None:
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        else:
            labels = keras.utils.to_categorical(labels, _CLASSES)
            loss = keras.losses.CategoricalCrossentropy(
                from_logits=True, **case.loss
            )
        name, settings = case.optimizer
        model = globals()[case.model](_IMAGE_SHAPE, _CLASSES)
        model.compile(
            optimizer=getattr(keras.optimizers, name)(**settings),
            loss=loss,
            **case.compile,
        )
    model.fit(
        images,
        labels,
        batch_size=case.batch,
        epochs=case.epochs,
        shuffle=False,
        verbose=0,
        **case.fit,
    )
    return model


def _fit_weights(case: Case, replicas: int) -> dict[str, Any]:
    _split_cpu(replicas)
    return _weights(_fit(case, _mirrored(replicas)))


def _fit_draws(case: Case, replicas: int) -> dict[str, Any]:
    """Compares weights, and what the replicas draw for the same images."""
    import tensorflow as tf

    _split_cpu(replicas)
    strategy = _mirrored(replicas)
    model = _fit(case, strategy)
    outcome = _weights(model)
    layer = model.get_layer("draws")
    images = tf.constant(_scaled(_random_images(64)))

    @tf.function
    def draw() -> Any:
        return strategy.run(lambda: layer(images, training=True))

    drawn = strategy.experimental_local_results(draw())
    same = all(np.array_equal(drawn[0], other) for other in drawn[1:])
    outcome["note"] = f"the replicas draw {'the same' if same else 'apart'}"
    return outcome


def _fit_logits(case: Case, replicas: int) -> dict[str, Any]:
    _split_cpu(replicas)
    return _logits(_fit(case, _mirrored(replicas)))


def _fit_second_strategy(case: Case, replicas: int) -> dict[str, Any]:
    _split_cpu(replicas)
    wider = dataclasses.replace(case, model="wide")
    first = _fit(case, _mirrored(replicas))
    return _weights(first, _fit(wider, _mirrored(replicas)))


def _fit_missing_device(case: Case, replicas: int) -> dict[str, Any]:
    import tensorflow as tf

    model = _fit(case, tf.distribute.MirroredStrategy(["GPU:0"]))
    device = tf.DeviceSpec.from_string(model.weights[0].value.device)
    return {
        "text": "`MirroredStrategy(['GPU:0'])` without a GPU trains on"
        f" {device.device_type}:{device.device_index}"
    }


def _tfnet(case: Case, replicas: int, **settings: Any) -> Any:
    """Trains with tfnet; returns the model."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for split, count in {"train": case.examples, "test": 8}.items():
            np.save(place / f"{split}_images.npy", _random_images(count))
            np.save(place / f"{split}_labels.npy", _labels(count))
        (place / "classes.txt").write_text("a\nb\nc\n", encoding="utf-8")
        fields = {
            "dataset": directory,
            "image_size": _IMAGE_SHAPE[0],
            "model": f"benchmarks.fit_comparison:{case.model}",
            "epochs": case.epochs,
            "batch_size": case.batch,
            "learning_rate": 0.05,
            "devices": replicas,
            "logical_devices": replicas,
            "export": False,
            "run_dir": str(place / "run"),
        }
        config = tfnet.Config(**{**fields, **case.tfnet, **settings})
        return tfnet.run(config).model


def _tfnet_weights(case: Case, replicas: int) -> dict[str, Any]:
    return _weights(_tfnet(case, replicas))


def _tfnet_logits(case: Case, replicas: int) -> dict[str, Any]:
    return _logits(_tfnet(case, replicas))


def _tfnet_second_strategy(case: Case, replicas: int) -> dict[str, Any]:
    wider = dataclasses.replace(case, model="wide")
    return _weights(_tfnet(case, replicas), _tfnet(wider, replicas))


def _tfnet_missing_device(case: Case, replicas: int) -> dict[str, Any]:
    try:
        _tfnet(case, replicas, devices=2, logical_devices=1)
    except tfnet.ConfigError as error:
        return {"text": f"refuses: `{error}`"}
    return {"text": "--devices=2 with one device trains"}


_FIT: dict[str, Callable[[Case, int], dict[str, Any]]] = {
    "weights": _fit_weights,
    "draws": _fit_draws,
    "logits": _fit_logits,
    "second strategy": _fit_second_strategy,
    "missing device": _fit_missing_device,
}
_TFNET: dict[str, Callable[[Case, int], dict[str, Any]]] = {
    "weights": _tfnet_weights,
    "draws": _tfnet_weights,
    "logits": _tfnet_logits,
    "second strategy": _tfnet_second_strategy,
    "missing device": _tfnet_missing_device,
}


def _work(side: str, number: int, replicas: int) -> None:
    """Measures one training in this process; its last line is JSON."""
    case = _CASES[number]
    measures = {"fit": _FIT, "tfnet": _TFNET}[side]
    if side == "fit" and "TF_ENABLE_ONEDNN_OPTS" not in _ENVIRONMENT:
        # In time: TensorFlow is imported in the functions.
        del os.environ["TF_ENABLE_ONEDNN_OPTS"]
    try:
        outcome = measures[case.measure](case, replicas)
    except Exception as error:
        # How it fails is what the table shows.
        traceback.print_exc()
        outcome = {"error": f"{type(error).__name__}: {_message(error)}"}
    print(json.dumps(outcome), flush=True)


def _message(error: Exception) -> str:
    """Returns where a message of TensorFlow says what is wrong."""
    preamble = re.compile(
        r"$|Graph execution error|Detected at node|File |<stack traces"
        r"|\d+ root error|Exception encountered when calling"
    )
    colour = re.compile(r"\x1b\[\d*m")
    lines = colour.sub("", str(error)).splitlines()
    lines = [line.strip() for line in lines]
    first = next((line for line in lines if not preamble.match(line)), "")
    text = re.sub(r"^(\(0\) \w+:|\{\{.*?\}\})\s*", "", first)
    if isinstance(error, tfnet.Error) or len(text) <= _MESSAGE_LENGTH:
        return text
    return f"{text[:_MESSAGE_LENGTH]}..."


def _outcome(side: str, number: int, replicas: int) -> dict[str, Any]:
    """Measures one training in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.fit_comparison"]
    command += ["--worker", side, str(number), str(replicas)]
    quiet = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**_ENVIRONMENT, **quiet},
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no end after {_TIMEOUT_SECONDS} s"}
    if process.returncode:
        last = process.stderr.strip().rpartition("\n")[2]
        return {"error": f"exit status {process.returncode}: {last}"}
    return json.loads(process.stdout.splitlines()[-1])


def _failure(outcome: dict[str, Any]) -> str | None:
    if "error" in outcome:
        return "`{}`".format(outcome["error"].replace("`", "'"))
    return None if np.isfinite(outcome["values"]).all() else "NaN weights"


def _cell(side: str, number: int, replicas: int) -> str:
    """Returns what one side gives in one case, in the words of the table."""
    several = _outcome(side, number, replicas)
    if "text" in several:
        return several["text"]
    one = _outcome(side, number, 1)
    failure, failure_of_one = _failure(several), _failure(one)
    if failure is not None and failure == failure_of_one:
        return f"{failure}, with 1 replica too"
    if failure_of_one is not None:
        return f"{failure or 'trains'}; with 1 replica {failure_of_one}"
    if failure is not None:
        return failure
    differences = np.subtract(several["values"], one["values"])
    text = f"{np.abs(differences).max():.0e}"
    return "; ".join([text, *filter(None, [several.get("note")])])


def _row(number: int, replicas: int) -> str:
    cells = [_CASES[number].row_name(replicas)]
    cells += [_cell(side, number, replicas) for side in _SIDES]
    return "| {} |".format(" | ".join(c.replace("|", r"\|") for c in cells))


def _heading(replicas: int) -> list[str]:
    version = importlib.metadata.version
    onednn = _ENVIRONMENT.get("TF_ENABLE_ONEDNN_OPTS", "unset")
    return [
        f"TensorFlow {version('tensorflow')}, Keras {version('keras')},"
        f" tfnet {tfnet.__version__}, Python {platform.python_version()};"
        f" {replicas} replicas against 1;"
        f" TF_ENABLE_ONEDNN_OPTS {onednn}.",
        "",
        "| case | `model.fit` | tfnet |",
        "|---|---|---|",
    ]


def main() -> None:
    """Measures case by case, and prints each row when it is known."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    # All of them divide the batch of 8.
    parser.add_argument("--replicas", type=int, choices=(2, 4, 8), default=2)
    parser.add_argument("--output", type=Path, help="write the table here too")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        side, number, replicas = arguments.worker
        _work(side, int(number), int(replicas))
        return
    lines = _heading(arguments.replicas)
    print("\n".join(lines), flush=True)
    for number in range(len(_CASES)):
        lines.append(_row(number, arguments.replicas))
        print(lines[-1], flush=True)
    if arguments.output is not None:
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
