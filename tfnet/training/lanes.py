"""A replica's share in parts that are worked on at once.

A processor's cores share out one operation of a small network badly: they wait
for each other after each. Parts of the share need wait only once in a step,
where their gradients are added up; TensorFlow runs at once what does not depend
on each other.
"""

import dataclasses
import itertools
from typing import Any

import tensorflow as tf

from tfnet.training.gradients import ShareResult
from tfnet.training.mixup import Partners
from tfnet.training.share import Share

# Images, labels, which examples they are, and what they are mixed with.
Part = tuple[Any, Any, Share, Partners | None]


def bounds(rows: Any, lanes: int) -> list[tuple[Any, Any]]:
    """Returns where each part begins and ends, as even as can be.

    Args:
      rows: Examples in all: int32 scalar.
      lanes: How many parts; with fewer rows some are empty.
    """
    ends = [rows * lane // lanes for lane in range(lanes + 1)]
    return [*itertools.pairwise(ends)]


def split(
    images: Any,
    labels: Any,
    share: Share,
    partners: Partners | None,
    lanes: int,
) -> list[Part]:
    """Splits a share as evenly as can be, while it is traced.

    Args:
      images: uint8 [rows, height, width, 3].
      labels: int32 [rows].
      share: Which examples these are; none is padding.
      partners: What they are mixed with; None: nothing.
      lanes: How many parts; no more than there are rows.
    """
    rows = share.rows
    return [
        (
            images[begin:end],
            labels[begin:end],
            dataclasses.replace(
                share,
                position=share.position + tf.cast(begin, tf.int64),
                rows=end - begin,
                is_whole_step=False,
                losses=[],
            ),
            _partners(partners, rows - end, rows - begin),
        )
        for begin, end in bounds(rows, lanes)
    ]


def _partners(partners: Partners | None, begin: Any, end: Any) -> Any:
    """Returns those of a part, which stand the other way round."""
    if partners is None:
        return None
    return dataclasses.replace(
        partners,
        images=partners.images[begin:end],
        labels=partners.labels[begin:end],
    )


def add_up(results: list[ShareResult]) -> ShareResult:
    """Returns what the parts of a share add to its step, in their order."""
    total, *others = results
    for result in others:
        total = ShareResult(
            total.loss + result.loss,
            total.correct + result.correct,
            [
                a + b
                for a, b in zip(total.gradients, result.gradients, strict=True)
            ],
            total.used,
        )
    return total
