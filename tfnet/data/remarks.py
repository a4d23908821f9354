"""What a person should know about a data set before it is trained on."""

import hashlib

import numpy as np

from tfnet.data.dataset import Dataset, Examples

_IMBALANCE = 3
# Where hashing every image takes a second at most.
_MOST_HASHED = 100_000


def imbalance(dataset: Dataset) -> list[str]:
    """Says where a class has far more training examples than another.

    Returns:
      A line that names the largest and the smallest class, where the one has
      three times the examples of the other at least, and how to weigh them;
      a line that names a class without any.
    """
    names = dataset.class_names
    counts = np.bincount(dataset.train.labels, minlength=len(names))
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[least] == 0:
        more = int((counts == 0).sum()) - 1
        others = f" and {more} more" if more else ""
        return [
            f"There is no training image of the class {names[least]}{others}."
        ]
    return _line_if(
        bool(counts[most] >= _IMBALANCE * counts[least]),
        f"The class {names[most]} has {counts[most]:,} training images and"
        f" {names[least]} {counts[least]:,}; --class_weights=balanced makes"
        " every class count the same.",
    )


def duplicates(dataset: Dataset) -> list[str]:
    """Says how many test images are among the training images, too.

    Returns:
      A line with their number, if there are any: the same pixels, at the size
      the images were brought to. None for a data set that is not in memory,
      or has more than 100,000 images.
    """
    splits = (dataset.train, dataset.test)
    in_memory = all(isinstance(one.images, np.ndarray) for one in splits)
    if not in_memory or sum(map(len, splits)) > _MOST_HASHED:
        return []
    test = _digests(dataset.test)
    known = set(test)
    seen = {one for one in _digests(dataset.train) if one in known}
    count = sum(one in seen for one in test)
    return _line_if(
        count > 0,
        f"{count:,} of the {len(test):,} test images"
        f" {'is' if count == 1 else 'are'} among the training images, too,"
        " pixel for pixel; the test figures are better than they should be.",
    )


def _line_if(holds: bool, text: str) -> list[str]:
    return [text] if holds else []


def _digests(examples: Examples) -> list[bytes]:
    images = np.ascontiguousarray(examples.images)
    return [
        hashlib.blake2b(image.data, digest_size=16).digest() for image in images
    ]
