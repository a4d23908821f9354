"""Trains a fresh model under a strategy, as `tfnet.train` does."""

import dataclasses

import keras
import numpy as np

from tfnet import training
from tfnet.data import Examples
from tfnet.data.augment import Augmentation
from tfnet.models.precision import computing_in


@dataclasses.dataclass
class Trained:
    """What training left: arrays, all of them copies."""

    weights: list
    optimizer: list
    averages: list
    losses: np.ndarray
    corrects: np.ndarray
    notes: list
    state: training.TrainState

    def differs_from(self, other):
        """The largest difference in anything that training leaves.

        Of an array whose largest number is above 1, in that: rounding is
        relative, and a case drawn at random may train to 1e11.
        """
        pairs = [
            *zip(self.weights, other.weights, strict=True),
            *zip(self.optimizer, other.optimizer, strict=True),
            *zip(self.averages, other.averages, strict=True),
            (self.losses, other.losses),
        ]
        assert self.corrects.tolist() == other.corrects.tolist()
        largest = 0.0
        for ours, theirs in pairs:
            assert np.isfinite(ours).all()
            assert ours.shape == theirs.shape
            if ours.size:
                size = max(1.0, float(np.abs(theirs).max()))
                difference = float(np.abs(ours - theirs).max())
                largest = max(largest, difference / size)
        return largest


def random_examples(count, *, size=8, classes=3, seed=0):
    """Returns noise with labels: every gradient is busy."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, size, size, 3))
    labels = random.integers(0, classes, count)
    return Examples(images.astype(np.uint8), labels.astype(np.int32))


def sgd(rate):
    return training.create_optimizer("sgd", learning_rate=rate, momentum=0.9)


def train(
    strategy,
    build,
    examples,
    *,
    batch,
    batches=1,
    epochs=1,
    steps=None,
    make=sgd,
    rate=0.05,
    schedule=None,
    precision="float32",
    seed=0,
    sync=True,
    ema=None,
    augmentation=None,
    flip=False,
    crop=0,
    block=None,
    lanes=1,
    held=False,
    **rule,
):
    """Trains what `build` returns; `block` is the most steps in a block."""
    with computing_in(precision):
        with strategy.scope():
            keras.utils.set_random_seed(0)
            model = build()
            notes = training.synchronise(
                model,
                replicas=strategy.num_replicas_in_sync,
                batch_statistics=sync,
                accumulates=batches > 1,
            )
            state = training.TrainState(
                model, make(rate), ema=ema, scales_loss=precision == "float16"
            )
        function = training.TrainFunction(
            strategy,
            state,
            examples.image_shape,
            training.StepRule(
                seed=seed,
                augmentation=augmentation or Augmentation(flip=flip, crop=crop),
                **rule,
            ),
            accumulates=batches > 1,
            lanes=lanes,
            held=examples.images if held else None,
        )
        per_epoch = -(-len(examples) // (batch * batches))
        total = per_epoch * epochs if steps is None else steps
        losses, corrects = [], []
        for epoch in range(-(-total // per_epoch)):
            for result in training.train_epoch(
                function,
                examples,
                seed=seed,
                epoch=epoch,
                batch_size=batch,
                batches=batches,
                replicas=strategy.num_replicas_in_sync,
                steps=total - epoch * per_epoch,
                until_stop=lambda step: block or 1000,
                learning_rate=schedule
                or training.Schedule(
                    kind="constant", rate=rate, total_steps=total
                ),
            ):
                losses.extend(result.loss)
                corrects.extend(result.correct)
    return Trained(
        [np.array(weight) for weight in model.get_weights()],
        [np.array(v.numpy()) for v in state.optimizer.variables],
        [np.array(average.numpy()) for average in state.averages],
        np.array(losses),
        np.array(corrects),
        notes,
        state,
    )


def nodes_of(function):
    """All operations of a traced function, those of inner ones included."""
    graph = function.graph.as_graph_def()
    inner = (node for f in graph.library.function for node in f.node_def)
    return [*graph.node, *inner]
