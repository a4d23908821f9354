"""Which examples are kept for testing, where a set has none of its own.

The rule knows the examples and their names, and no seed: the same files give
the same split in every run, so that runs with different seeds can be compared.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from tfnet.errors import DataError

# Where no --test_fraction is given.
TEST_EVERY = 5


class UselessFractionError(DataError):
    """A fraction is given where there are test images."""


def held_out(
    labels: np.ndarray,
    fraction: float | None,
    names: Sequence[bytes] | None = None,
) -> np.ndarray:
    """Returns which examples are for testing: bool [examples].

    Args:
      labels: Integers [examples].
      fraction: The part of each class to keep, above 0 and below 1: rounded
        to whole examples, at least one, at most all but one; they are those
        whose names have the smallest SHA-256. None: every fifth of each
        class, in the order given.
      names: What each example is known by; None: its number, from 0.
    """
    test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        if fraction is None:
            chosen = members[TEST_EVERY - 1 :: TEST_EVERY]
        else:
            count = int(fraction * len(members) + 0.5)
            count = min(max(count, 1), len(members) - 1)
            ranks = [_rank(int(number), names) for number in members]
            chosen = members[np.argsort(ranks)[:count]]
        test[chosen] = True
    return test


def _rank(number: int, names: Sequence[bytes] | None) -> bytes:
    name = b"%d" % number if names is None else names[number]
    return hashlib.sha256(name).digest()


def note(where: str, fraction: float | None) -> str:
    """Returns what to tell of a set whose examples `held_out` has split."""
    if fraction is None:
        return (
            f"No test images {where}: every fifth image of each class, in"
            " order, is kept for testing."
        )
    return (
        f"No test images {where}: {fraction:.4g} of each class"
        " (--test_fraction), chosen by a hash, is kept for testing."
    )


def nothing_left(where: str, remedy: str) -> DataError:
    """Returns the error for a set of which `held_out` keeps nothing.

    Args:
      where: What the set is.
      remedy: What would give it test images.
    """
    return DataError(
        f"{where} leaves no image to test on; {remedy}, {TEST_EVERY} images of"
        " some class, or two and --test_fraction=0.2."
    )


def variant(fraction: float | None) -> str:
    """Returns what tells the splits of one set apart; see `Source`."""
    return "" if fraction is None else f"test_fraction={fraction}"


def refuse_fraction(where: str, fraction: float | None) -> None:
    """Raises UselessFractionError if one is given and could do nothing."""
    if fraction is not None:
        raise UselessFractionError(
            f"--test_fraction ({fraction}) is for data without test images of"
            f" their own, which {where} is not; leave it out."
        )
