"""The loop of an epoch: blocks of steps, as long as they should be.

The inner loop is compiled (`step`); this is the outer one. It decides how
many steps a block has, and gives the numbers of each block to its caller,
who logs, shows and stops. No result depends on the size of the blocks.
"""

import dataclasses
import time
from collections.abc import Callable, Generator

import numpy as np

from tfnet.data.dataset import Examples
from tfnet.data.feed import blocks, steps_in_epoch
from tfnet.data.order import epoch_order
from tfnet.training.step import TrainFunction

# How long a block should take: long enough to cost nothing, short enough to
# show progress and to hear a signal soon.
_BLOCK_SECONDS = 0.4
_BLOCK_BYTES = 2**25
# An image's row number.
_ROW_BYTES = 8


@dataclasses.dataclass(frozen=True)
class BlockResult:
    """The numbers of some steps of an epoch.

    Attributes:
      first_step: Steps of the epoch before these.
      loss: The mean loss of each step: float64 [steps].
      correct: Examples of each step classified right: int64 [steps].
      rate: The learning rate of each step: float64 [steps].
      examples: How many examples were in all the steps.
      seconds: How long the steps took.
    """

    first_step: int
    loss: np.ndarray
    correct: np.ndarray
    rate: np.ndarray
    examples: int
    seconds: float

    @property
    def last_step(self) -> int:
        """Steps of the epoch up to the end of these."""
        return self.first_step + len(self.loss)


def train_epoch(
    train: TrainFunction,
    examples: Examples,
    *,
    seed: int,
    epoch: int,
    batch_size: int,
    batches: int = 1,
    replicas: int,
    first_step: int = 0,
    steps: int | None = None,
    until_stop: Callable[[int], int],
    learning_rate: Callable[[np.ndarray], np.ndarray],
    clock: Callable[[], float] = time.monotonic,
) -> Generator[BlockResult]:
    """Trains on the steps of an epoch.

    Args:
      train: Trains on a block.
      examples: What to train on.
      seed: The seed of the run.
      epoch: The number of the epoch, from 0.
      batch_size: Examples in one batch (the global batch).
      batches: Batches in one step.
      replicas: How many replicas the train function has.
      first_step: Steps of the epoch to leave out: they are done.
      steps: Stop after this many steps of the epoch; None: at its end.
      until_stop: From the steps of the epoch done so far, to how many more
        may be in a block, so that the caller can act exactly there.
      learning_rate: From numbers of steps of the run, counted from 0 (int64
        [steps]), to learning rates (float64 [steps]).
      clock: Gives the time in seconds.

    Yields:
      The numbers of each block, after it was trained on. A caller that stops
      asking stops the training there.
    """
    order = epoch_order(len(examples), seed=seed, epoch=epoch)
    size = batch_size * batches
    per_epoch = steps_in_epoch(len(examples), size)
    last_step = per_epoch if steps is None else min(per_epoch, steps)
    take, image_bytes = examples.take, examples.image_bytes
    if train.holds_images:
        take, image_bytes = examples.rows, _ROW_BYTES
    pace = _Pace(max(1, _BLOCK_BYTES // (image_bytes * size)))
    for block in blocks(
        take,
        order,
        batch_size=batch_size,
        batches=batches,
        replicas=replicas,
        first_step=first_step,
        last_step=last_step,
        next_size=lambda step: min(pace.steps, until_stop(step)),
        with_partners=train.mixes,
    ):
        begin = clock()
        first = epoch * per_epoch + block.first_step
        rates = learning_rate(np.arange(first, first + block.steps))
        loss, correct = train(block, epoch, rates)
        seconds = clock() - begin
        pace.learn(block.steps, seconds)
        yield BlockResult(
            block.first_step,
            loss,
            correct,
            rates,
            block.step_examples * block.steps,
            seconds,
        )


class _Pace:
    """How many steps a block should have, learnt from those before it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.steps = 1

    def learn(self, steps: int, seconds: float) -> None:
        fitting = steps * _BLOCK_SECONDS / max(seconds, 1e-9)
        # At most doubled, because the first call also compiles.
        self.steps = int(max(1, min(fitting, 2 * self.steps, self._most)))
