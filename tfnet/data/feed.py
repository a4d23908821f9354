"""Batches by position: blocks of many steps, shared out over the replicas.

A block is what one call of the compiled loop trains on. It is a function of
the order of the epoch and the position in it; there is no iterator to save.
"""

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tfnet.data.dataset import Examples
from tfnet.data.order import split_evenly


@dataclasses.dataclass(frozen=True)
class Block:
    """The batches of some steps, shared out over the replicas.

    Attributes:
      first_step: The number of steps in the epoch before this block.
      steps: How many steps it holds.
      images: For each replica, uint8 [steps, share, height, width, 3].
      labels: For each replica, int32 [steps, share].
    """

    first_step: int
    steps: int
    images: tuple[np.ndarray, ...]
    labels: tuple[np.ndarray, ...]

    @property
    def batch_size(self) -> int:
        """Examples in each step, over all replicas."""
        return sum(labels.shape[1] for labels in self.labels)

    @property
    def has_empty_share(self) -> bool:
        """Whether some replica gets no example."""
        return any(labels.shape[1] == 0 for labels in self.labels)


def steps_in_epoch(num_examples: int, batch_size: int) -> int:
    """Returns how many batches an epoch has; the last may be smaller."""
    return -(-num_examples // batch_size)


def blocks(
    examples: Examples,
    order: np.ndarray,
    *,
    batch_size: int,
    replicas: int,
    first_step: int,
    last_step: int,
    next_size: Callable[[int], int],
) -> Iterator[Block]:
    """Yields the batches of an epoch in blocks, each read ahead by one.

    Args:
      examples: What to take the batches from.
      order: The order of the epoch: integers [examples].
      batch_size: Examples in one step (the global batch).
      replicas: How many shares each batch is split into, as evenly as can
        be, larger shares first.
      first_step: Steps of the epoch to leave out.
      last_step: Where to stop: a number of steps of the epoch.
      next_size: Called with the number of steps done before a block; says
        how many steps the block should have.

    Yields:
      Blocks in which every step has the same shares: a last, smaller batch
      is a block of its own.
    """
    full_steps = min(len(order) // batch_size, last_step)

    def spans() -> Iterator[tuple[int, int]]:
        step = first_step
        while step < last_step:
            end = step + 1
            if step < full_steps:
                end = min(step + next_size(step), full_steps)
            yield step, end
            step = end

    def make(step: int, end: int) -> Block:
        indices = order[step * batch_size : end * batch_size]
        images, labels = examples.take(indices)
        batch = len(indices) // (end - step)
        images = images.reshape(end - step, batch, *images.shape[1:])
        labels = labels.reshape(end - step, batch)
        cuts = np.cumsum(split_evenly(batch, replicas))[:-1]
        return Block(
            step,
            end - step,
            tuple(np.split(images, cuts, axis=1)),
            tuple(np.split(labels, cuts, axis=1)),
        )

    with ThreadPoolExecutor(1) as reader:
        ahead = None
        for step, end in spans():
            following = reader.submit(make, step, end)
            if ahead is not None:
                yield ahead.result()
            ahead = following
        if ahead is not None:
            yield ahead.result()
