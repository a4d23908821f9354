"""A source: examples that still have to be read, decoded and resized.

Each kind of place (a folder, an archive, TensorFlow Datasets) is a function
that returns a `Source`. What becomes of it, memory or a packed copy on disk,
is decided in one place, `pack`.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from tfnet.data.dataset import Examples

Split = Literal["train", "test"]
SPLITS: tuple[Split, Split] = ("train", "test")

# Images uint8 [n, size, size, 3] and labels [n], some hundreds at a time.
Chunks = Iterator[tuple[np.ndarray, np.ndarray]]

CHUNK = 512


@dataclasses.dataclass(frozen=True)
class Source:
    """Labelled images in some place.

    Attributes:
      name: Short, fit for a file name.
      origin: Where the examples are, in words.
      class_names: The name of each class, in the order of the labels.
      counts: How many examples each split has.
      key: Changes when the contents change.
      read: Called as `read(split, size, limit)`, gives chunks of the first
        `limit` examples (all, if None), resized to `size`.
      costly: Whether reading is slow enough to keep the result on disk.
      notes: Lines that a person should be told.
      variant: Tells apart what is made in different ways of one origin.
    """

    name: str
    origin: str
    class_names: tuple[str, ...]
    counts: dict[Split, int]
    key: str
    read: Callable[[Split, int, int | None], Chunks]
    costly: bool
    notes: tuple[str, ...] = ()
    variant: str = ""


def from_examples(
    splits: dict[Split, Examples],
    *,
    name: str,
    origin: str,
    class_names: tuple[str, ...],
    key: str = "",
    notes: tuple[str, ...] = (),
    variant: str = "",
) -> Source:
    """Returns a source over examples that may be of another size.

    Args:
      splits: The examples of each split.
      name: See `Source`.
      origin: See `Source`.
      class_names: See `Source`.
      key: See `Source`.
      notes: See `Source`.
      variant: See `Source`.
    """

    def read(split: Split, size: int, limit: int | None) -> Chunks:
        from tfnet.data import images as rule

        examples = splits[split]
        end = len(examples) if limit is None else min(limit, len(examples))
        for start in range(0, end, CHUNK):
            chunk = np.arange(start, min(start + CHUNK, end))
            images, labels = examples.take(chunk)
            if images.shape[1:3] != (size, size):
                images = rule.resize(images, size).numpy()
            yield images, labels

    return Source(
        name=name,
        origin=origin,
        class_names=class_names,
        counts={split: len(examples) for split, examples in splits.items()},
        key=key,
        read=read,
        costly=False,
        notes=notes,
        variant=variant,
    )
