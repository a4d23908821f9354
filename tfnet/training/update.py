"""From the gradients of the replicas to new weights.

What depends on the whole gradient (the norm it is clipped by, whether it is
finite) is decided after the sum over the replicas, by the same numbers on
each of them.
"""

import dataclasses
import math
from typing import Any

import tensorflow as tf

from tfnet.training.share import replica_id
from tfnet.training.state import TrainState


@dataclasses.dataclass(frozen=True)
class Clipping:
    """How the gradient of a step is bounded, after the sum.

    Attributes:
      norm: The largest global norm; None: any. A longer gradient is scaled
        down to it (Pascanu et al., On the difficulty of training recurrent
        neural networks, 2013).
      value: The largest absolute value of an element, before the norm; None:
        any.
    """

    norm: float | None = None
    value: float | None = None

    def __call__(self, gradients: list[Any]) -> list[Any]:
        """Returns the gradients within the bounds."""
        if self.value is not None:
            gradients = [
                tf.clip_by_value(gradient, -self.value, self.value)
                for gradient in gradients
            ]
        if self.norm is not None:
            norm = _global_norm(gradients)
            gradients = [
                tf.clip_by_global_norm(
                    [gradient], self.norm, tf.cast(norm, gradient.dtype)
                )[0][0]
                for gradient in gradients
            ]
        return gradients


def _global_norm(gradients: list[Any]) -> Any:
    """Returns the norm of all of them, in the widest of their dtypes."""
    by_size = sorted((one.dtype for one in gradients), key=lambda d: d.size)
    return tf.linalg.global_norm(
        [tf.cast(gradient, by_size[-1]) for gradient in gradients]
    )


def update(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    used: list[int],
    gradients: list[tuple[Any, ...]],
    rate: Any,
    clipping: Clipping,
) -> None:
    """Takes one step, in the graph and outside of any replica.

    Args:
      strategy: The strategy of the model.
      state: Is changed.
      used: Which of the trainable variables have a gradient.
      gradients: For each of those, its part of the gradient on each replica.
      rate: The learning rate of this step: a scalar.
      clipping: Bounds the gradient.
    """
    variables = [state.model.trainable_variables[i] for i in used]
    averages = [state.averages[i] for i in used if state.averages]
    scale = state.loss_scale
    local = strategy.experimental_local_results

    def add_up() -> tuple[list[Any], Any]:
        summed = _sum_over_replicas(
            [part[replica_id()] for part in gradients],
            [variable.shape for variable in variables],
        )
        if scale is None:
            return clipping(summed), tf.constant(True)
        # The scale itself may be more than float16 holds.
        unscaled = [_divide(one, scale.scale) for one in summed]
        finite = [tf.reduce_all(tf.math.is_finite(one)) for one in unscaled]
        return clipping(unscaled), tf.reduce_all(finite)

    summed, finite = strategy.run(add_up)
    summed = [local(values) for values in summed]

    def apply() -> None:
        state.optimizer.apply(
            [values[replica_id()] for values in summed], variables
        )
        for average, variable in zip(averages, variables, strict=False):
            state.follow(average, variable.value)
        if scale is not None:
            scale.step_taken()

    def take(what: Any) -> int:
        # The optimizer asks for its rate while it is traced.
        state.rate = rate
        strategy.run(what)
        return 0

    if scale is None:
        take(apply)
    else:
        tf.cond(
            local(finite)[0],
            lambda: take(apply),
            lambda: take(scale.step_left_out),
        )


def _divide(gradient: Any, scale: Any) -> Any:
    wide = tf.float64 if gradient.dtype == tf.float64 else tf.float32
    quotient = tf.cast(gradient, wide) / tf.cast(scale, wide)
    return tf.cast(quotient, gradient.dtype)


def _sum_over_replicas(gradients: list[Any], shapes: list[Any]) -> list[Any]:
    """Sums each gradient over the replicas, all of them in one collective."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return gradients
    summed: dict[int, Any] = {}
    # One collective in all, unless layers of other dtypes need one of theirs.
    for dtype in dict.fromkeys(one.dtype for one in gradients):
        own = [i for i, one in enumerate(gradients) if one.dtype == dtype]
        flat = tf.concat([tf.reshape(gradients[i], [-1]) for i in own], 0)
        flat = context.all_reduce(tf.distribute.ReduceOp.SUM, flat)
        parts = tf.split(flat, [math.prod(shapes[i]) for i in own])
        for i, part in zip(own, parts, strict=True):
            summed[i] = tf.reshape(part, shapes[i])
    return [summed[i] for i in range(len(gradients))]
