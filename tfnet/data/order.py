"""The order of the data: a function of seed, epoch and position, no state."""

import numpy as np


def epoch_order(num_examples: int, *, seed: int, epoch: int) -> np.ndarray:
    """Returns the order in which an epoch visits the examples.

    The examples are sorted by one 64-bit number each, drawn from the
    counter-based generator Philox-4x64-10 (Salmon et al., Parallel random
    numbers: as easy as 1, 2, 3; SC 2011) with the key (seed, epoch). So every
    permutation is as likely as any other, and no two pairs of seed and epoch
    share a stream. NumPy keeps the raw stream of a bit generator the same
    over its versions (NEP 19), unlike that of its `permutation`.

    Args:
      num_examples: How many examples there are.
      seed: The seed of the run, from 0 to 2**32 - 1.
      epoch: The number of the epoch, from 0.

    Returns:
      A permutation of 0 ... num_examples - 1: uint32 or uint64
      [num_examples].
    """
    key = np.array([seed, epoch], dtype=np.uint64)
    drawn = np.random.Philox(key=key).random_raw(num_examples)
    kind = np.uint32 if num_examples <= 2**32 else np.uint64
    return np.argsort(drawn, kind="stable").astype(kind)


def split_evenly(count: int, parts: int) -> list[int]:
    """Returns how many of `count` each of `parts` gets, larger shares first.

    Args:
      count: How many there are to share, from 0.
      parts: How many shares to make, from 1.

    Returns:
      `parts` numbers that add up to `count` and differ by at most 1.
    """
    share, extra = divmod(count, parts)
    return [share + (part < extra) for part in range(parts)]
