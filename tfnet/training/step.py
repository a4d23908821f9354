"""The train step: one batch over all replicas, as if there were one.

Each replica sums the losses of its own examples and divides by the size of
the global batch; the gradients are then summed over the replicas. So neither
uneven nor empty shares change the result (a mean of means would). Many steps
run in one call of a compiled function, with no Python between them.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfnet.data import images as image_rule
from tfnet.data.feed import Block

TrainFunction = Callable[[Block], tuple[Any, Any]]


def create_train_function(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    image_shape: tuple[int, int, int],
) -> TrainFunction:
    """Creates the function that trains on a block of batches.

    Args:
      strategy: The strategy in whose scope model and optimizer were made.
      model: Takes images scaled to [-1, 1] and gives logits.
      optimizer: Any Keras optimizer, built; its `update_step` is used. Its
        own clipping, accumulation and averaging are not: they would act on
        each replica before the sum.
      image_shape: Height, width and channels of the images it is fed.

    Returns:
      A function that takes a Block, trains one step on each of its batches,
      and returns, as NumPy arrays [steps], the mean loss of each batch
      (float64) and how many of its examples were classified right (int64).
    """
    # With and without an empty share: two programs, so that the usual one
    # need not look at the size of its share in every step.
    compiled = {
        has_empty: _compile(strategy, model, optimizer, image_shape, has_empty)
        for has_empty in (False, True)
    }
    devices = strategy.extended.worker_devices

    def train(block: Block) -> tuple[Any, Any]:
        images = place(block.images, devices)
        labels = place(block.labels, devices)
        losses, corrects = compiled[block.has_empty_share](
            images, labels, float(block.batch_size)
        )
        # The parts are added up here, in float64 and in a fixed order.
        loss = sum(part.numpy().astype("float64") for part in losses)
        correct = sum(part.numpy().astype("int64") for part in corrects)
        return loss, correct

    return train


def place(parts: tuple[Any, ...], devices: tuple[str, ...]) -> tuple[Any, ...]:
    """Returns arrays as tensors, each on its device."""
    placed = []
    for part, device in zip(parts, devices, strict=True):
        with tf.device(device):
            placed.append(tf.convert_to_tensor(part))
    return tuple(placed)


def _compile(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    image_shape: tuple[int, int, int],
    has_empty_share: bool,
) -> Any:
    replicas = strategy.num_replicas_in_sync
    image_spec = tf.TensorSpec([None, None, *image_shape], tf.uint8)
    label_spec = tf.TensorSpec([None, None], tf.int32)

    def replica_step(
        images: tuple, labels: tuple, step: Any, batch_size: Any
    ) -> tuple[Any, Any]:
        replica = replica_id()
        share = images[replica][step], labels[replica][step]
        gradients, loss, correct = _gradients(
            model, *share, batch_size, may_be_empty=has_empty_share
        )
        _apply(optimizer, model.trainable_variables, gradients)
        return loss, correct

    # One signature for all shapes: traced once.
    @tf.function(
        input_signature=[
            (image_spec,) * replicas,
            (label_spec,) * replicas,
            tf.TensorSpec([], tf.float32),
        ],
        autograph=False,
    )
    def train_steps(images: tuple, labels: tuple, batch_size: Any) -> Any:
        steps = tf.shape(labels[0])[0]

        def body(step: Any, losses: tuple, corrects: tuple) -> tuple:
            loss, correct = strategy.run(
                replica_step, args=(images, labels, step, batch_size)
            )
            return (
                step + 1,
                _write(losses, step, strategy.experimental_local_results(loss)),
                _write(
                    corrects, step, strategy.experimental_local_results(correct)
                ),
            )

        _, losses, corrects = tf.while_loop(
            lambda step, losses, corrects: step < steps,
            body,
            (0, _arrays(tf.float32, steps, replicas),
             _arrays(tf.int32, steps, replicas)),
            # Steps follow one another; more at once is only book-keeping.
            parallel_iterations=1,
        )  # fmt: skip
        return (
            tuple(array.stack() for array in losses),
            tuple(array.stack() for array in corrects),
        )

    return train_steps


def _arrays(dtype: Any, steps: Any, replicas: int) -> tuple:
    return tuple(tf.TensorArray(dtype, steps) for _ in range(replicas))


def _write(arrays: tuple, step: Any, values: tuple) -> tuple:
    return tuple(
        array.write(step, value)
        for array, value in zip(arrays, values, strict=True)
    )


def replica_id() -> int:
    """Returns the number of this replica, from 0, while it is traced.

    MirroredStrategy traces each replica by itself, so that a replica can pick
    its own share out of a tuple; the number is then a constant.
    """
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def _gradients(
    model: keras.Model,
    images: Any,
    labels: Any,
    batch_size: Any,
    *,
    may_be_empty: bool,
) -> tuple[list[Any], Any, Any]:
    """Returns this share's part of the gradients, the loss and the hits.

    Args:
      model: Gives logits.
      images: uint8 [share, height, width, 3].
      labels: int32 [share].
      batch_size: Size of the global batch: float32 scalar.
      may_be_empty: Whether a share can be 0. The model is then run only
        where it is not: some of oneDNN's kernels give wrong shapes for 0
        examples, and a layer's statistics must not see padding.
    """
    variables = [variable.value for variable in model.trainable_variables]
    used: list[int] = []

    def compute() -> list[Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            logits = model(image_rule.scale(images), training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, tf.cast(logits, tf.float32)
            )
            loss = tf.reduce_sum(losses) / batch_size
            objective = loss
            if model.losses:
                # Regularisation counts once in all: by this share's part.
                share = tf.cast(tf.size(labels), tf.float32) / batch_size
                objective += share * tf.add_n(model.losses)
        gradients = tape.gradient(objective, variables)
        used[:] = [i for i, g in enumerate(gradients) if g is not None]
        guesses = tf.argmax(logits, axis=-1, output_type=tf.int32)
        correct = tf.math.count_nonzero(guesses == labels, dtype=tf.int32)
        dense = [tf.convert_to_tensor(gradients[i]) for i in used]
        return [loss, correct, *dense]

    def nothing() -> list[Any]:
        zeros = [tf.zeros_like(variables[i]) for i in used]
        return [tf.constant(0.0), tf.constant(0), *zeros]

    if may_be_empty:
        results = tf.cond(tf.size(labels) > 0, compute, nothing)
    else:
        results = compute()
    loss, correct, *dense = results
    gradients: list[Any] = [None] * len(variables)
    for i, gradient in zip(used, dense, strict=True):
        gradients[i] = gradient
    return gradients, loss, correct


def _apply(
    optimizer: keras.optimizers.Optimizer,
    variables: list[keras.Variable],
    gradients: list[Any],
) -> None:
    """Sums the gradients over the replicas and lets the optimizer follow.

    Keras' own `apply` clips each replica's gradients before it sums them, so
    it is not used; its public `update_step` is, once for each copy of each
    variable.
    """
    pairs = [
        (variable, gradient)
        for variable, gradient in zip(variables, gradients, strict=True)
        if gradient is not None
    ]
    context = tf.distribute.get_replica_context()
    summed = [gradient for _, gradient in pairs]
    if context.num_replicas_in_sync > 1:
        summed = context.all_reduce(tf.distribute.ReduceOp.SUM, summed)
    rate = tf.convert_to_tensor(optimizer.learning_rate)

    def update(strategy: Any, summed: Any, rate: Any) -> None:
        for (variable, _), gradient in zip(pairs, summed, strict=True):
            strategy.extended.update(
                variable.value,
                _update_one,
                args=(gradient, rate, optimizer, variable.constraint),
                group=False,
            )

    context.merge_call(update, args=(summed, rate))
    optimizer.iterations.assign_add(1)


def _update_one(
    variable: Any, gradient: Any, rate: Any, optimizer: Any, constraint: Any
) -> None:
    if optimizer.weight_decay:
        decay = tf.cast(optimizer.weight_decay * rate, variable.dtype)
        variable.assign_sub(variable * decay)
    optimizer.update_step(gradient, variable, rate)
    if constraint is not None:
        variable.assign(constraint(variable))
