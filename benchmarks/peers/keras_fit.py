"""Keras 3's `fit` on TensorFlow, from arrays in memory or from tf.data.

`steps_per_execution` and the threads of TensorFlow are options, as is
MirroredStrategy over logical devices. The order of the epochs is given, so
nothing is shuffled: one call of `fit` takes the batches of an epoch in turn.
"""

import time
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.peers import common
from benchmarks.peers.common import Work


def main() -> None:
    """Trains, and prints what was measured."""
    parser = common.parser(__doc__)
    parser.add_argument("--input", choices=("numpy", "tfdata"), default="numpy")
    parser.add_argument("--steps_per_execution", type=int, default=1)
    parser.add_argument("--intra_threads", type=int, default=0)
    parser.add_argument("--logical_devices", type=int, default=1)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(
        arguments.intra_threads
    )
    work = common.read(arguments)
    strategy = start_strategy(arguments.logical_devices)
    with strategy.scope():
        model = build(work)
        import keras

        model.compile(
            keras.optimizers.SGD(work.rate, momentum=common.MOMENTUM),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=arguments.steps_per_execution,
        )
    images, labels = work.scaled(), work.labels
    seconds = []
    for order in work.orders:
        # The order is not part of what is timed: a peer that shuffles by
        # itself has not much to do for it.
        epoch = images[order], labels[order]
        begin = time.perf_counter()
        loss = fit(model, epoch, work.batch_size, arguments.input)
        seconds.append(time.perf_counter() - begin)
    common.show(len(labels), seconds, loss, "keras", "tensorflow")


def start_strategy(logical_devices: int) -> Any:
    """Returns TensorFlow's default strategy, or a mirrored one."""
    if logical_devices == 1:
        return tf.distribute.get_strategy()
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * logical_devices
    )
    return tf.distribute.MirroredStrategy(
        [f"CPU:{number}" for number in range(logical_devices)]
    )


def build(work: Work) -> Any:
    """Returns the seed's network with the weights that are given."""
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(6, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(120, activation="relu"),
            layers.Dense(84, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.set_weights(keras_weights(work))
    return model


def keras_weights(work: Work) -> list[np.ndarray]:
    """Returns the weights as Keras has them: channels last, transposed."""
    given, found = work.weights, []
    for name in ("conv1", "conv2", "fc1", "fc2", "fc3"):
        kernel = given[f"{name}.weight"]
        if kernel.ndim == 4:
            kernel = kernel.transpose(2, 3, 1, 0)
        elif name == "fc1":
            # PyTorch flattens channels first.
            kernel = kernel.reshape(-1, 16, 5, 5).transpose(2, 3, 1, 0)
            kernel = kernel.reshape(400, -1)
        else:
            kernel = kernel.T
        found += [kernel, given[f"{name}.bias"]]
    return found


def fit(model: Any, epoch: tuple, batch_size: int, kind: str) -> float:
    """Trains one epoch; returns its mean loss."""
    if kind == "numpy":
        history = model.fit(
            *epoch, batch_size=batch_size, shuffle=False, verbose=0
        )
    else:
        batches = tf.data.Dataset.from_tensor_slices(epoch)
        batches = batches.batch(batch_size).prefetch(tf.data.AUTOTUNE)
        history = model.fit(batches, verbose=0)
    return history.history["loss"][0]


if __name__ == "__main__":
    main()
