"""Batches by position: blocks of many steps, shared out over the replicas.

A block is what one call of the compiled loop trains on. It is a function of
the order of the epoch and the position in it; there is no iterator to save.
"""

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tfnet.data.aligned import empty_aligned
from tfnet.data.order import split_evenly

# From row numbers, integers [n], to what stands for the images there, [n, ...],
# and labels, int32 [n].
Take = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Block:
    """The examples of some steps, shared out over the replicas.

    A step has one batch, or several whose gradients are accumulated. Of each
    batch, a replica has a share; rows that fill up a share are copies of its
    neighbours.

    Attributes:
      first_step: The number of steps in the epoch before this block.
      images: For each replica, uint8 [steps, batches, rows, height, width,
        3], or the rows that the images have among the examples, int64 [steps,
        batches, rows], for devices that hold all of them; rows is 1 at least.
      labels: For each replica, int32 [steps, batches, rows].
      positions: For each replica, int64 [steps, batches]: where the first
        example of its share stands in the epoch.
      counts: For each replica, int32 [steps, batches]: how many of its rows
        are examples.
      partner_images: For each replica, as `images`: those to mix its rows
        with, in the order of the epoch, not of the rows. Of n examples in a
        step, the first goes with the last, the second with the one before,
        and so on. Empty where nothing is mixed.
      partner_labels: For each replica, as `labels`, likewise.
    """

    first_step: int
    images: tuple[np.ndarray, ...]
    labels: tuple[np.ndarray, ...]
    positions: tuple[np.ndarray, ...]
    counts: tuple[np.ndarray, ...]
    partner_images: tuple[np.ndarray, ...] = ()
    partner_labels: tuple[np.ndarray, ...] = ()

    @property
    def steps(self) -> int:
        """How many steps it holds."""
        return len(self.labels[0])

    @property
    def fewest_rows(self) -> int:
        """How many rows of each batch that replica has which has the fewest."""
        return min(labels.shape[2] for labels in self.labels)

    @property
    def step_examples(self) -> int:
        """Examples in each step, over all batches and replicas."""
        return int(sum(counts[0].sum() for counts in self.counts))

    @property
    def is_padded(self) -> bool:
        """Whether some rows are not examples."""
        return any(
            bool((counts < labels.shape[2]).any())
            for counts, labels in zip(self.counts, self.labels, strict=True)
        )


def steps_in_epoch(num_examples: int, step_examples: int) -> int:
    """Returns how many steps an epoch has; the last may be smaller."""
    return -(-num_examples // step_examples)


def paddings(
    num_examples: int,
    *,
    batch_size: int,
    batches: int,
    replicas: int,
    lanes: int = 1,
) -> set[bool]:
    """Returns which programs the blocks of an epoch need: padded or not, both.

    What has fewer rows than lanes counts as padded.
    """
    size = batch_size * batches
    sizes = {min(size, num_examples), num_examples % size} - {0}
    return {
        bool((shares < np.maximum(lanes, shares.max(axis=0))).any())
        for shares in (_shares(one, batch_size, replicas) for one in sizes)
    }


def _shares(size: int, batch_size: int, replicas: int) -> np.ndarray:
    """Returns how a step is shared out: [batches, replicas]."""
    starts = range(0, size, batch_size)
    return np.array(
        [
            split_evenly(min(batch_size, size - start), replicas)
            for start in starts
        ]
    )


def blocks(
    take: Take,
    order: np.ndarray,
    *,
    batch_size: int,
    replicas: int,
    first_step: int,
    last_step: int,
    next_size: Callable[[int], int],
    batches: int = 1,
    with_partners: bool = False,
) -> Iterator[Block]:
    """Yields the steps of an epoch in blocks, each read ahead by one.

    Args:
      take: What gives the examples: `Examples.take` or `Examples.rows`.
      order: The order of the epoch: integers [examples].
      batch_size: Examples in one batch (the global batch).
      replicas: How many shares each batch is split into, as evenly as can
        be, larger shares first.
      first_step: Steps of the epoch to leave out.
      last_step: Where to stop: a number of steps of the epoch.
      next_size: Called with the number of steps done before a block; says
        how many steps the block should have.
      batches: Batches in one step.
      with_partners: Whether each example comes with one to mix it with.

    Yields:
      Blocks in which every step has the same shares: a last, smaller step is
      a block of its own.
    """
    size = batch_size * batches
    full_steps = min(len(order) // size, last_step)

    def spans() -> Iterator[tuple[int, int]]:
        step = first_step
        while step < last_step:
            end = step + 1
            if step < full_steps:
                end = min(step + next_size(step), full_steps)
            yield step, end
            step = end

    def make(step: int, end: int) -> Block:
        indices = order[step * size : end * size]
        images, labels = take(indices)
        return _share_out(
            images.reshape(end - step, -1, *images.shape[1:]),
            labels.reshape(end - step, -1),
            batch_size=batch_size,
            replicas=replicas,
            first_step=step,
            first_position=step * size,
            with_partners=with_partners,
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


def _share_out(
    images: np.ndarray,
    labels: np.ndarray,
    *,
    batch_size: int,
    replicas: int,
    first_step: int,
    first_position: int,
    with_partners: bool,
) -> Block:
    """Makes a block of steps that all have as many examples: [steps, n]."""
    steps, size = labels.shape
    shares = _shares(size, batch_size, replicas)
    # Where in its step each share begins: [batches, replicas].
    begins = (np.cumsum(shares) - shares.ravel()).reshape(shares.shape)
    first = first_position + size * np.arange(steps)[:, None]
    parts, partners = [], []
    for count, begin in zip(shares.T, begins.T, strict=True):
        rows = max(1, count.max())
        # Past the end of a share, its last example again, or its neighbour.
        row = np.minimum(np.arange(rows), np.maximum(count[:, None] - 1, 0))
        chosen = np.minimum(begin[:, None] + row, size - 1)
        parts.append(
            (
                _columns(images, chosen),
                _columns(labels, chosen),
                first + begin,
                np.broadcast_to(count.astype(np.int32), (steps, len(count))),
            )
        )
        if with_partners:
            # The other way round, so that they stand in a row, too.
            mirrored = (size - 1 - chosen)[:, ::-1]
            partners.append(
                (_columns(images, mirrored), _columns(labels, mirrored))
            )
    columns = [*zip(*parts, strict=True), *zip(*partners, strict=True)]
    return Block(first_step, *(tuple(column) for column in columns))


def _columns(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns values[:, chosen], without a copy where that is all, in order."""
    flat = chosen.ravel()
    steps, size, *shape = values.shape
    if np.array_equal(flat, np.arange(size)):
        return values.reshape(steps, *chosen.shape, *shape)
    taken = empty_aligned((steps, len(flat), *shape), values.dtype)
    np.take(values, flat, axis=1, out=taken, mode="clip")
    return taken.reshape(steps, *chosen.shape, *shape)
