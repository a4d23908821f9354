"""Arrays in memory, given in Python: `tfnet.run(config, data=...)`."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tfnet.data import holdout, source
from tfnet.data.dataset import Examples
from tfnet.data.given_images import as_array, as_images
from tfnet.data.names import natural_order
from tfnet.errors import DataError, counted

# What `--dataset` says in the settings of such a run.
NAME = "given_in_python"


def open_given(
    data: Sequence[Any],
    class_names: Sequence[str] | None = None,
    *,
    test_fraction: float | None = None,
) -> source.Source:
    """Makes a source of arrays.

    Args:
      data: `(images, labels)`, of which some of each class are kept for
        testing, or `(images, labels, test_images, test_labels)`. Images:
        uint8, from 0 to 255, [n, height, width, 3], or, grey, [n, height,
        width, 1] or [n, height, width]. Labels: integers from 0, or strings,
        [n] or [n, 1].
      class_names: The name of each class, in the order of integer labels;
        where labels are strings, all that there may be. None: the integers,
        or the strings in the order that a person would sort them.
      test_fraction: How many to keep; see `holdout.held_out`.

    Raises:
      DataError: An array is not like that; the text says how to make it so.
    """
    if not isinstance(data, tuple | list) or len(data) not in (2, 4):
        raise DataError(
            "data must be (images, labels) or (images, labels, test_images,"
            " test_labels)."
        )
    images, labels = _pair(data[0], data[1])
    if len(data) == 2:
        names, (numbers,) = _numbers([labels], class_names)
        kept = holdout.held_out(numbers, test_fraction)
        train = Examples(images[~kept], numbers[~kept])
        test = Examples(images[kept], numbers[kept])
        notes: tuple[str, ...] = (
            holdout.note("among the arrays", test_fraction),
        )
    else:
        holdout.refuse_fraction("data with test_images", test_fraction)
        test_images, test_labels = _pair(data[2], data[3], "test_")
        names, (numbers, test_numbers) = _numbers(
            [labels, test_labels], class_names
        )
        train = Examples(images, numbers)
        test = Examples(test_images, test_numbers)
        notes = ()
    if not len(test):
        raise holdout.nothing_left("data", "give test_images and test_labels")
    return source.from_examples(
        {"train": train, "test": test},
        name=NAME,
        origin="arrays given in Python",
        class_names=names,
        notes=notes,
    )


def _pair(images: Any, labels: Any, which: str = "") -> tuple[np.ndarray, Any]:
    """Returns images as uint8 [n, height, width, 3], and labels [n]."""
    images = as_images(images, f"{which}images")
    labels = as_array(labels, f"{which}labels")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) != len(images):
        hint = ""
        if labels.ndim == 2:
            hint = "; of one-hot labels, take labels.argmax(axis=1)"
        raise DataError(
            f"{which}labels must be [{len(images)}], one an image; it is"
            f" {list(labels.shape)}{hint}."
        )
    return images, labels


def _numbers(
    labels: list[np.ndarray], class_names: Sequence[str] | None
) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """Returns the names of the classes, and labels as int32."""
    names = None if class_names is None else _checked_names(class_names)
    if all(_is_text(one) for one in labels):
        return _look_up(labels, names)
    if any(one.dtype.kind not in "iu" for one in labels):
        kinds = " and ".join(str(one.dtype) for one in labels)
        raise DataError(
            f"labels must be all integers or all strings; they are {kinds}."
        )
    low = min(int(one.min(initial=0)) for one in labels)
    high = max(int(one.max(initial=0)) for one in labels)
    most = len(labels[0]) if names is None else len(names)
    kind = "training image" if names is None else "name"
    if low < 0 or high >= most:
        raise DataError(
            f"labels must go from 0 to {most - 1} at most, with"
            f" {counted(most, kind)}; they go from {low} to {high}."
        )
    if names is None:
        names = tuple(str(label) for label in range(high + 1))
    return names, [one.astype(np.int32) for one in labels]


def _look_up(
    labels: list[np.ndarray], names: tuple[str, ...] | None
) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """Returns `_numbers` of labels that are names."""
    found = {str(label) for one in labels for label in one}
    if "" in found:
        raise DataError("labels must not be empty text.")
    if names is None:
        names = tuple(sorted(found, key=natural_order))
    known = {name: label for label, name in enumerate(names)}
    unknown = sorted(found - set(known))
    if unknown:
        raise DataError(
            f"labels must be among class_names; {unknown[0]!r} is not."
        )
    return names, [
        np.array([known[str(label)] for label in one], np.int32)
        for one in labels
    ]


def _is_text(labels: np.ndarray) -> bool:
    is_objects = labels.dtype.kind == "O"
    return labels.dtype.kind == "U" or (
        is_objects and all(isinstance(label, str) for label in labels)
    )


def _checked_names(class_names: Sequence[str]) -> tuple[str, ...]:
    is_row = isinstance(class_names, Iterable) and not isinstance(
        class_names, str
    )
    names = tuple(class_names) if is_row else ()
    if not names or not all(isinstance(one, str) and one for one in names):
        raise DataError("class_names must be a list of names, none empty.")
    if len(set(names)) < len(names):
        raise DataError("class_names must name each class once.")
    return names
