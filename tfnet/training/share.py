"""The share of a batch that a replica works on, and random numbers for it.

What a layer draws for an example is a function of the seed of the run, the
epoch and the example's position in it: the same on any number of replicas,
in batches or in parts of batches, in one run or after a stop. It comes from
the counter-based generator Philox-4x32-10 (Salmon et al., Parallel random
numbers: as easy as 1, 2, 3; SC 2011), whose stream can be entered anywhere.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

_PHILOX = 1
_STATELESS = {
    tf.raw_ops.StatelessRandomUniformV2: tf.random.stateless_uniform,
    tf.raw_ops.StatelessRandomNormalV2: tf.random.stateless_normal,
}
# Numbers that one count of the generator gives.
_GROUP = 4

# MirroredStrategy traces each replica in a thread of its own.
_local = threading.local()


@dataclasses.dataclass
class Share:
    """What one replica works on while its forward pass is traced.

    Attributes:
      seed: The seed of the run.
      epoch: int64 scalar, from 0.
      position: int64 scalar: where the first example of the share stands in
        the epoch.
      rows: int32 scalar: how many rows the share has, padding included.
      real: bool [rows]: which rows are examples; None: all of them. The one
        row of an empty share is a copy, and must count nowhere.
      step_position: int64 scalar: where the step's first example stands in
        the epoch.
      step_examples: int32 scalar: examples in the step, over all replicas
        and accumulated batches.
      is_whole_step: Whether the share is all of the step: there is one
        replica, and nothing is accumulated.
      keeps_moments: Whether BatchNormalization uses the moments it has, and
        leaves them as they are.
      in_xla: Whether XLA compiles what is traced now, which draws other
        numbers from the same key.
      losses: What layers added to the loss of the step, with the layer: this
        share's part of it, in order.
    """

    seed: int
    epoch: Any
    position: Any
    rows: Any
    real: Any
    step_position: Any
    step_examples: Any
    is_whole_step: bool
    keeps_moments: bool = False
    in_xla: bool = False
    losses: list[tuple[Any, Any]] = dataclasses.field(default_factory=list)
    _draws: int = 0
    _acts_as_whole: bool = False

    def uniform(self, *shape: Any) -> tf.Tensor:
        """Draws from [0, 1): float32 of `shape`.

        The first axis is rows, or so many for each of them; one of known
        length is another, and what is drawn is the same on all replicas.
        """
        return self._draw(tf.raw_ops.StatelessRandomUniformV2, shape)

    def normal(self, *shape: Any) -> tf.Tensor:
        """Draws from N(0, 1): float32 of `shape`, as `uniform` does."""
        return self._draw(tf.raw_ops.StatelessRandomNormalV2, shape)

    def add_loss(self, layer: Any, loss: Any) -> None:
        """Adds a layer's loss, a mean over what the layer was given."""
        if not self._acts_as_whole:
            own = self.rows
            if self.real is not None:
                own = tf.math.count_nonzero(self.real, dtype=tf.int32)
            loss *= tf.cast(own, loss.dtype) / tf.cast(
                self.step_examples, loss.dtype
            )
        self.losses.append((layer, loss))

    def step_seed(self) -> tf.Tensor:
        """Draws a seed that all replicas share in this step: int32 [2]."""
        seed = tf.constant(self._next_key().view(np.int32))
        for number in (self.epoch, self.step_position):
            seed = tf.random.experimental.stateless_fold_in(seed, number)
        return seed

    @contextlib.contextmanager
    def as_whole_step(self) -> Iterator[tuple[Any, Any]]:
        """Makes this share one of the whole step, with all else as padding.

        Yields:
          How many rows of padding stand before and after its own.
        """
        before = tf.cast(self.position - self.step_position, tf.int32)
        after = tf.maximum(self.step_examples - before - self.rows, 0)
        real = tf.ones([self.rows], tf.bool) if self.real is None else self.real
        kept = dataclasses.replace(self)
        self.position = self.step_position
        self.rows = before + self.rows + after
        self.real = tf.pad(real, [[before, after]])
        self.is_whole_step = self._acts_as_whole = True
        yield before, after
        for field in (
            "position", "rows", "real", "is_whole_step", "_acts_as_whole"
        ):  # fmt: skip
            setattr(self, field, getattr(kept, field))

    def _draw(self, operation: Any, shape: tuple) -> tf.Tensor:
        known = tf.get_static_value(self.rows)
        if isinstance(shape[0], int) and (known is None or shape[0] % known):
            # Not the rows of the batch: the same for all of the step.
            return _STATELESS[operation](shape, self.step_seed())
        rows, *row_shape = (tf.cast(size, tf.int64) for size in shape)
        # An example begins at a count of its own, so that a part of the
        # examples can be drawn alone.
        numbers = tf.reduce_prod([tf.ones([], tf.int64), *row_shape])
        groups = (numbers + _GROUP - 1) // _GROUP
        rows_of_example = rows // tf.cast(self.rows, tf.int64)
        first = self.position * rows_of_example * groups
        drawn = operation(
            shape=tf.stack([rows, groups * _GROUP]),
            key=tf.constant(self._next_key()),
            counter=tf.cast(tf.stack([first, self.epoch]), tf.uint64),
            alg=_PHILOX,
            dtype=tf.float32,
        )
        return tf.reshape(drawn[:, :numbers], tf.stack([rows, *row_shape]))

    def _next_key(self) -> np.ndarray:
        """Returns a key of its own for each draw of a step: uint64 [1]."""
        if self.in_xla:
            raise NotUnderXlaError(
                "a layer that draws random numbers draws others under XLA"
            )
        words = np.random.SeedSequence([self.seed, self._draws])
        self._draws += 1
        return words.generate_state(1, np.uint64)


class NotUnderXlaError(ValueError):
    """A layer would give other numbers if XLA compiled it, or none."""


@contextlib.contextmanager
def working_on(share: Share) -> Iterator[None]:
    """Makes `share` what `current` returns while a replica is traced."""
    _local.share = share
    try:
        yield
    finally:
        del _local.share


def current() -> Share | None:
    """Returns the share whose training step is being traced, if one is."""
    return getattr(_local, "share", None)


def replica_id() -> int:
    """Returns the number of this replica, from 0, while it is traced.

    MirroredStrategy traces each replica by itself, so that a replica can pick
    its own share out of a tuple; the number is then a constant.
    """
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group))
