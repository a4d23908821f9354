"""Evaluation: every example once, whatever the replicas."""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfnet.data import images as image_rule
from tfnet.data.dataset import Examples
from tfnet.data.order import split_evenly
from tfnet.data.scaling import Scaling
from tfnet.training.lanes import bounds
from tfnet.training.objective import Objective, at_least_float32
from tfnet.training.share import replica_id
from tfnet.training.step import place

# Examples in one call for each replica: enough to keep a device busy.
_CHUNK = 1000
_CHUNK_BYTES = 2**25


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What a model does on some examples.

    Attributes:
      loss: Mean cross-entropy over the examples, in nats; neither smoothed
        nor weighted.
      confusion: int64 [classes, classes]: how many examples of the class of
        the row were taken for the class of the column.
    """

    loss: float
    confusion: np.ndarray
    top_5: int

    @property
    def accuracy(self) -> float:
        """The share of the examples classified right, in [0, 1]."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    @property
    def top_5_accuracy(self) -> float:
        """The share of the examples whose class is among the best five."""
        return float(self.top_5 / self.confusion.sum())

    @property
    def class_accuracy(self) -> list[float | None]:
        """The same for each class; None for a class without an example."""
        totals = self.confusion.sum(axis=1)
        return [
            float(self.confusion[i, i] / total) if total else None
            for i, total in enumerate(totals)
        ]


def create_evaluate_function(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    num_classes: int,
    scaling: Scaling,
    *,
    lanes: int = 1,
) -> Any:
    """Creates the compiled function that evaluates one chunk.

    Args:
      strategy: The strategy in whose scope the model was made.
      model: Takes scaled images and gives logits.
      num_classes: How many logits it gives.
      scaling: Scales the pixels for it.
      lanes: In how many parts a replica works on its share at once.

    Returns:
      A function of a tuple of images (uint8 [share, height, width, 3]) and a
      tuple of labels (int32 [share]), one of each for every replica, that
      returns for each replica the sum of the losses (float64), its part of
      the confusion matrix (int32 [classes, classes]) and how many of its
      examples are among the best five (int32).
    """

    def part_counts(share: Any, truth: Any) -> tuple[Any, ...]:
        def compute() -> tuple[Any, ...]:
            logits = model(image_rule.scale(share, scaling), training=False)
            logits = at_least_float32(logits)
            losses = Objective().losses(truth, logits)
            guess = tf.argmax(logits, axis=-1, output_type=tf.int32)
            counts = tf.math.bincount(
                truth * num_classes + guess,
                minlength=num_classes**2,
                maxlength=num_classes**2,
            )
            confusion = tf.reshape(counts, [num_classes, num_classes])
            own = tf.gather(logits, truth[:, tf.newaxis], batch_dims=1)
            larger = tf.math.count_nonzero(logits > own, axis=-1)
            return (
                tf.reduce_sum(tf.cast(losses, tf.float64)),
                confusion,
                tf.math.count_nonzero(larger < 5, dtype=tf.int32),
            )

        def nothing() -> tuple[Any, ...]:
            empty = tf.zeros([num_classes, num_classes], tf.int32)
            return tf.constant(0.0, tf.float64), empty, tf.constant(0)

        return tf.cond(tf.size(truth) > 0, compute, nothing)

    def replica_counts(images: tuple, labels: tuple) -> list[Any]:
        replica = replica_id()
        share, truth = images[replica], labels[replica]
        parts = [
            part_counts(share[begin:end], truth[begin:end])
            for begin, end in bounds(tf.size(truth), lanes)
        ]
        return [tf.add_n(counts) for counts in zip(*parts, strict=True)]

    @tf.function(reduce_retracing=True, autograph=False)
    def counts(images: tuple, labels: tuple) -> list[tuple]:
        parts = strategy.run(replica_counts, args=(images, labels))
        return [strategy.experimental_local_results(part) for part in parts]

    return counts


def evaluate(
    function: Any, strategy: tf.distribute.Strategy, examples: Examples
) -> Evaluation:
    """Evaluates a model on every example, each counted once.

    Args:
      function: What `create_evaluate_function` returned.
      strategy: The strategy it was created with.
      examples: What to evaluate on; not empty.
    """
    replicas = strategy.num_replicas_in_sync
    devices = strategy.extended.worker_devices
    chunk = replicas * max(1, min(_CHUNK, _CHUNK_BYTES // examples.image_bytes))
    total_loss, total, top_5 = 0.0, np.zeros([], np.int64), 0
    for start in range(0, len(examples), chunk):
        indices = np.arange(start, min(start + chunk, len(examples)))
        images, labels = examples.take(indices)
        cuts = np.cumsum(split_evenly(len(indices), replicas))[:-1]
        losses, confusions, hits = function(
            place(tuple(np.split(images, cuts)), devices),
            place(tuple(np.split(labels, cuts)), devices),
        )
        total_loss += sum(float(loss) for loss in losses)
        total = total + sum(
            confusion.numpy().astype(np.int64) for confusion in confusions
        )
        top_5 += sum(int(hit) for hit in hits)
    return Evaluation(total_loss / len(examples), total, top_5)
