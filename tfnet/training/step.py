"""The train step: one batch over all replicas, as if there were one.

Many steps run in one call of a compiled function, with no Python between
them. A step is the gradients of one or several batches (`gradients`) and one
update (`update`).
"""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfnet.data.aligned import is_aligned
from tfnet.data.augment import Augmentation
from tfnet.data.feed import Block
from tfnet.data.scaling import SEED, Scaling
from tfnet.training.gradients import ShareResult, share_gradients
from tfnet.training.lanes import Part, add_up, split
from tfnet.training.mixup import Partners
from tfnet.training.objective import Objective
from tfnet.training.share import Share, replica_id
from tfnet.training.state import TrainState
from tfnet.training.update import Clipping, update


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepRule:
    """What a step does, apart from the model and the optimizer.

    Attributes:
      seed: Fixes what layers and augmentation draw.
      objective: The loss of an example.
      augmentation: What is done to the images.
      scaling: What is done to their pixels after that.
      clipping: How the gradient is bounded.
      jit_compile: Whether XLA compiles forward and backward pass.
      mixup: Each example is mixed with another one of the step, by a weight
        from Beta(mixup, mixup); None: not.
    """

    seed: int
    objective: Objective = dataclasses.field(default_factory=Objective)
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)
    scaling: Scaling = SEED
    clipping: Clipping = dataclasses.field(default_factory=Clipping)
    jit_compile: bool = False
    mixup: float | None = None


class TrainFunction:
    """Trains on a block of steps, in one call of a compiled program.

    There are two programs, with and without padding, so that the usual one
    need not look at what counts in every step.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        state: TrainState,
        image_shape: tuple[int, int, int],
        rule: StepRule,
        *,
        accumulates: bool = False,
        lanes: int = 1,
        held: np.ndarray | None = None,
    ) -> None:
        """Makes the programs; each is traced when it is first used.

        Args:
          strategy: The strategy in whose scope the state was made.
          state: Model, optimizer and what belongs to them. The model takes
            scaled images and gives logits.
          image_shape: Height, width and channels of the images it is fed.
          rule: What a step does.
          accumulates: Whether a step may have several batches.
          lanes: In how many parts a replica works on its share at once. The
            model must take each example by itself.
          held: All images, to be held by every device: uint8 [examples,
            height, width, channels]. Blocks then say which of them are
            theirs. None: blocks bring images.

        Raises:
          tf.errors.ResourceExhaustedError: A device has no room for them.
        """
        self._devices = strategy.extended.worker_devices
        # Not tensors: no GPU gathers bytes from these.
        self._held = () if held is None else _variables(held, self._devices)
        self._programs = {
            is_padded: _compile(
                strategy,
                state,
                image_shape,
                rule,
                is_padded,
                accumulates,
                # What is padded is seldom, and may be too few for parts.
                1 if is_padded else lanes,
                self._held,
            )
            for is_padded in (False, True)
        }
        self._traced: dict[bool, Any] = {}
        self._lanes = lanes
        # Whether it takes blocks with partners.
        self.mixes = rule.mixup is not None
        # Whether it takes blocks that say where their images are.
        self.holds_images = held is not None

    def trace(self, is_padded: bool) -> Any:
        """Traces one of the programs ahead of its first use, and returns it."""
        if is_padded not in self._traced:
            program = self._programs[is_padded]
            self._traced[is_padded] = program.get_concrete_function()
        return self._traced[is_padded]

    def __call__(
        self, block: Block, epoch: int, rates: np.ndarray
    ) -> tuple[Any, Any]:
        """Trains.

        Args:
          block: The examples.
          epoch: The number of the epoch, from 0.
          rates: The learning rate of each step: float [steps].

        Returns:
          As NumPy arrays [steps], the mean loss of each step (float64) and
          how many of its examples were classified right (int64).
        """
        is_padded = block.is_padded or block.fewest_rows < self._lanes
        # Called by itself it starts a millisecond sooner than through its
        # tf.function, which looks for a trace that fits.
        losses, corrects = self.trace(is_padded)(
            place(block.images, self._devices),
            place(block.labels, self._devices),
            place(block.positions, self._devices),
            place(block.counts, self._devices),
            tf.constant(epoch, tf.int64),
            tf.constant(block.step_examples),
            tf.constant(rates, keras.config.floatx()),
            *(
                place(part, self._devices)
                for part in (block.partner_images, block.partner_labels)
                if self.mixes
            ),
        )
        # The parts are added up here, in float64 and in a fixed order.
        loss = sum(part.numpy().astype("float64") for part in losses)
        correct = sum(part.numpy().astype("int64") for part in corrects)
        return loss, correct


def place(parts: tuple[Any, ...], devices: tuple[str, ...]) -> tuple[Any, ...]:
    """Returns arrays as tensors, each on its device.

    On a CPU, an aligned array and its tensor are the same memory: it must not
    be written to any more.
    """
    placed = []
    for part, device in zip(parts, devices, strict=True):
        with tf.device(device):
            if is_aligned(part):
                capsule = part.__dlpack__()
                shared = tf.experimental.dlpack.from_dlpack(capsule)
                placed.append(tf.identity(shared))
            else:
                placed.append(tf.convert_to_tensor(part))
    return tuple(placed)


def _variables(
    array: np.ndarray, devices: tuple[str, ...]
) -> tuple[tf.Variable, ...]:
    """Returns an array as a variable on each device."""
    made = []
    for device in devices:
        with tf.device(device):
            made.append(tf.Variable(array, trainable=False))
    return tuple(made)


def _compile(
    strategy: tf.distribute.Strategy,
    state: TrainState,
    image_shape: tuple[int, int, int],
    rule: StepRule,
    is_padded: bool,
    accumulates: bool,
    lanes: int,
    held: tuple[tf.Variable, ...],
) -> Any:
    replicas = strategy.num_replicas_in_sync
    local = strategy.experimental_local_results
    floats = tf.as_dtype(keras.config.floatx())
    used: list[int] = []

    def fetched(part: Part) -> Part:
        """Puts images where only their rows are."""
        rows, labels, share, partners = part
        images = held[replica_id()]
        if partners is not None:
            partners = dataclasses.replace(
                partners, images=tf.gather(images, partners.images)
            )
        return tf.gather(images, rows), labels, share, partners

    def batch_of(feed: _Feed, step: Any, batch: Any) -> ShareResult:
        replica = replica_id()
        images = feed.images[replica][step, batch]
        labels = feed.labels[replica][step, batch]
        partners = None
        if rule.mixup is not None:
            partners = Partners(
                feed.partner_images[replica][step, batch],
                feed.partner_labels[replica][step, batch],
                rule.mixup,
            )
        real = None
        if is_padded:
            # What fills up a share goes; an empty one keeps a single row.
            count = feed.counts[replica][step, batch]
            rows = tf.maximum(count, 1)
            images, labels = images[:rows], labels[:rows]
            if partners is not None:
                # The other way round, so what fills up comes first.
                partners = dataclasses.replace(
                    partners,
                    images=partners.images[-rows:],
                    labels=partners.labels[-rows:],
                )
            real = tf.range(rows) < count
        share = Share(
            seed=rule.seed,
            epoch=feed.epoch,
            position=feed.positions[replica][step, batch],
            rows=tf.size(labels),
            real=real,
            # The first replica's share is where a batch begins.
            step_position=feed.positions[0][step, 0],
            step_examples=feed.step_examples,
            is_whole_step=replicas == 1 and not accumulates,
        )
        parts = [(images, labels, share, partners)]
        if lanes > 1:
            parts = split(*parts[0], lanes)
        if held:
            parts = [fetched(part) for part in parts]
        return add_up(
            [
                share_gradients(
                    state,
                    *part,
                    objective=rule.objective,
                    augmentation=rule.augmentation,
                    scaling=rule.scaling,
                    jit_compile=rule.jit_compile,
                )
                for part in parts
            ]
        )

    def add_batch(
        feed: _Feed, step: Any, batch: Any, sums: list[tuple] | None
    ) -> list[tuple]:
        """Adds a batch to the sums of a step, which each replica has."""

        def in_replica() -> list[Any]:
            result = batch_of(feed, step, batch)
            used[:] = result.used
            parts = [result.loss, result.correct, *result.gradients]
            if sums is None:
                return parts
            own = [part[replica_id()] for part in sums]
            return [a + b for a, b in zip(own, parts, strict=True)]

        return [local(part) for part in strategy.run(in_replica)]

    def one_step(feed: _Feed, step: Any) -> tuple[tuple, tuple]:
        sums = add_batch(feed, step, 0, None)
        if accumulates:
            _, sums = tf.while_loop(
                lambda batch, sums: batch < tf.shape(feed.labels[0])[1],
                lambda batch, sums: (
                    batch + 1,
                    add_batch(feed, step, batch, sums),
                ),
                (1, sums),
                parallel_iterations=1,
            )
        loss, correct, *gradients = sums
        update(
            strategy, state, used, gradients, feed.rates[step], rule.clipping
        )
        return loss, correct

    # One signature for all shapes: traced once.
    @tf.function(
        input_signature=_signature(
            replicas,
            image_shape,
            floats,
            mixes=rule.mixup is not None,
            holds_images=bool(held),
        ),
        autograph=False,
    )
    def train_steps(*inputs: Any) -> Any:
        feed = _Feed(*inputs)
        steps = tf.size(feed.rates)

        def body(step: Any, losses: tuple, corrects: tuple) -> tuple:
            loss, correct = one_step(feed, step)
            return (
                step + 1,
                _write(losses, step, loss),
                _write(corrects, step, correct),
            )

        _, losses, corrects = tf.while_loop(
            lambda step, losses, corrects: step < steps,
            body,
            (0, _arrays(floats, steps, replicas),
             _arrays(tf.int32, steps, replicas)),
            # Steps follow one another; more at once is only book-keeping.
            parallel_iterations=1,
        )  # fmt: skip
        return (
            tuple(array.stack() for array in losses),
            tuple(array.stack() for array in corrects),
        )

    return train_steps


@dataclasses.dataclass(frozen=True)
class _Feed:
    """What the program is called with; a tuple has a tensor a replica.

    Attributes:
      images: uint8 [steps, batches, rows, height, width, channels], or, where
        the devices hold all images, int64 [steps, batches, rows].
      labels: int32 [steps, batches, rows].
      positions: int64 [steps, batches].
      counts: int32 [steps, batches].
      epoch: int64 scalar.
      step_examples: int32 scalar.
      rates: float [steps].
      partner_images: As images, where examples are mixed.
      partner_labels: As labels, likewise.
    """

    images: tuple
    labels: tuple
    positions: tuple
    counts: tuple
    epoch: Any
    step_examples: Any
    rates: Any
    partner_images: tuple = ()
    partner_labels: tuple = ()


def _signature(
    replicas: int,
    image_shape: tuple,
    floats: Any,
    *,
    mixes: bool,
    holds_images: bool,
) -> list[Any]:
    def each(shape: list, dtype: Any) -> tuple:
        return (tf.TensorSpec(shape, dtype),) * replicas

    shape: list = [None, None, None]
    images = each([*shape, *image_shape], tf.uint8)
    examples = [
        each(shape, tf.int64) if holds_images else images,
        each(shape, tf.int32),
    ]
    return [
        *examples,
        each([None, None], tf.int64),
        each([None, None], tf.int32),
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([], tf.int32),
        tf.TensorSpec([None], floats),
        *(examples if mixes else ()),
    ]


def _arrays(dtype: Any, steps: Any, replicas: int) -> tuple:
    return tuple(tf.TensorArray(dtype, steps) for _ in range(replicas))


def _write(arrays: tuple, step: Any, values: tuple) -> tuple:
    return tuple(
        array.write(step, value)
        for array, value in zip(arrays, values, strict=True)
    )
