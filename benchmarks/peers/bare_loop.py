"""A bare loop of many steps in one tf.function, with nothing around it.

No metrics but the loss, no log, no checkpoint, no validation: what is left of
a trainer when all is taken away that a user asks of one.
"""

import time

import tensorflow as tf

from benchmarks.peers import common
from benchmarks.peers.keras_fit import build, start_strategy

_BLOCK = 500


def main() -> None:
    """Trains, and prints what was measured."""
    parser = common.parser(__doc__)
    parser.add_argument("--intra_threads", type=int, default=1)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(
        arguments.intra_threads
    )
    work = common.read(arguments)
    start_strategy(1)
    model = build(work)
    variables = [variable.value for variable in model.trainable_variables]
    momenta = [tf.Variable(tf.zeros_like(one)) for one in variables]

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, 32, 32, 3], tf.uint8),
            tf.TensorSpec([None, None], tf.int64),
        ],
        autograph=False,
    )
    def steps(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        def step(number: tf.Tensor, total: tf.Tensor) -> tuple:
            inputs = tf.cast(images[number], tf.float32) / 127.5 - 1.0
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels[number], model(inputs, training=True)
                )
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, variables)
            for one, velocity, gradient in zip(
                variables, momenta, gradients, strict=True
            ):
                tf.raw_ops.ResourceApplyKerasMomentum(
                    var=one.handle,
                    accum=velocity.handle,
                    lr=work.rate,
                    grad=gradient,
                    momentum=common.MOMENTUM,
                )
            return number + 1, total + tf.reduce_sum(losses)

        _, total = tf.while_loop(
            lambda number, total: number < tf.shape(images)[0],
            step,
            (0, 0.0),
            parallel_iterations=1,
        )
        return total

    size = work.batch_size
    seconds, loss = [], 0.0
    for order in work.orders:
        begin = time.perf_counter()
        total = 0.0
        full = len(order) // size * size
        for start in range(0, full, size * _BLOCK):
            rows = order[start : min(start + size * _BLOCK, full)]
            total += float(
                steps(
                    work.images[rows].reshape(-1, size, 32, 32, 3),
                    work.labels[rows].reshape(-1, size),
                )
            )
        if full < len(order):
            rest = order[full:]
            total += float(
                steps(work.images[rest][None], work.labels[rest][None])
            )
        loss = total / len(order)
        seconds.append(time.perf_counter() - begin)
    common.show(len(work.labels), seconds, loss, "tensorflow")


if __name__ == "__main__":
    main()
