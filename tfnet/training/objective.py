"""The loss of an example: what training makes small."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Objective:
    """Cross-entropy, with what may be added to it.

    Attributes:
      label_smoothing: From 0 to below 1. The target is 1 - label_smoothing
        for the right class, plus label_smoothing / classes for every class
        (Szegedy et al., Rethinking the Inception Architecture, 2016).
      class_weights: What an example of each class counts; None: 1. A batch's
        loss is the sum of its weighted losses divided by its examples, not
        by its weights, as in Keras (PyTorch divides by the weights).
    """

    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] | None = None

    def losses(self, labels: Any, logits: Any) -> tf.Tensor:
        """Returns the loss of each example, in nats.

        Args:
          labels: int32 [examples].
          logits: float [examples, classes].

        Returns:
          [examples], float64 where the logits are, else float32.
        """
        logits = at_least_float32(logits)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        if self.label_smoothing:
            every = -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1)
            losses += self.label_smoothing * (every - losses)
        if self.class_weights is not None:
            weights = tf.constant(self.class_weights, logits.dtype)
            losses *= tf.gather(weights, labels)
        return losses


def at_least_float32(values: Any) -> tf.Tensor:
    """Returns half-precision values as float32, others as they are."""
    if values.dtype == tf.float64:
        return values
    return tf.cast(values, tf.float32)


def balanced_weights(labels: Any, num_classes: int) -> tuple[float, ...]:
    """Returns weights under which every class counts the same in all.

    They are examples / (classes * examples of the class), as in scikit-learn;
    0 for a class without an example.

    Args:
      labels: int32 [examples].
      num_classes: How many classes there are.
    """
    counts = np.bincount(labels, minlength=num_classes)
    weights = len(labels) / (num_classes * np.maximum(counts, 1))
    return tuple(float(one) for one in np.where(counts > 0, weights, 0.0))
