"""TensorFlow's custom training loop over a distributed data set.

As its tutorial on tf.distribute writes it, with many steps of the iterator
inside one tf.function.
"""

import time
from typing import Any

import tensorflow as tf

from benchmarks.peers import common
from benchmarks.peers.keras_fit import build, start_strategy

_BLOCK = 100


def main() -> None:
    """Trains, and prints what was measured."""
    parser = common.parser(__doc__)
    parser.add_argument("--logical_devices", type=int, default=2)
    arguments = parser.parse_args()
    work = common.read(arguments)
    strategy = start_strategy(arguments.logical_devices)
    import keras

    with strategy.scope():
        model = build(work)
        optimizer = keras.optimizers.SGD(work.rate, momentum=common.MOMENTUM)
        optimizer.build(model.trainable_variables)

    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model(images, training=True)
            )
            loss = tf.nn.compute_average_loss(
                losses, global_batch_size=work.batch_size
            )
        optimizer.apply(
            tape.gradient(loss, model.trainable_variables),
            model.trainable_variables,
        )
        return loss

    @tf.function
    def steps(iterator: Any, count: Any) -> Any:
        total = tf.constant(0.0)
        for _ in tf.range(count):
            losses = strategy.run(step, args=next(iterator))
            total += strategy.reduce(
                tf.distribute.ReduceOp.SUM, losses, axis=None
            )
        return total

    images, labels = work.scaled(), work.labels
    seconds, loss = [], 0.0
    for order in work.orders:
        batches = tf.data.Dataset.from_tensor_slices(
            (images[order], labels[order])
        )
        batches = batches.batch(work.batch_size, drop_remainder=True)
        batches = batches.prefetch(tf.data.AUTOTUNE)
        begin = time.perf_counter()
        iterator = iter(strategy.experimental_distribute_dataset(batches))
        total, left = 0.0, len(order) // work.batch_size
        while left:
            count = min(left, _BLOCK)
            total += float(steps(iterator, tf.constant(count)))
            left -= count
        loss = total / (len(order) // work.batch_size)
        seconds.append(time.perf_counter() - begin)
    common.show(len(labels), seconds, loss, "tensorflow")


if __name__ == "__main__":
    main()
