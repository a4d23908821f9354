"""From `--dataset` to a data set: which place it is, and what if it is not.

Only the unset default may fall back from CIFAR-10 to the bundled sample, and
it says so. A set that was asked for is had, or is an error.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfnet.data import (
    arrays,
    cifar10,
    folder,
    from_arrays,
    holdout,
    pack,
    sample,
    table,
    tfds,
)
from tfnet.data.dataset import Dataset
from tfnet.data.source import SPLITS, Source
from tfnet.errors import DataError, counted, one_line

_DRY_RUN_EXAMPLES = 64


def open_dataset(
    name: str | None,
    *,
    data_dir: str | None,
    cache_dir: str | None,
    image_size: int,
    dry_run: bool,
    tell: Callable[[str], None],
    test_fraction: float | None = None,
    given: Sequence[Any] | None = None,
    class_names: Sequence[str] | None = None,
) -> Dataset:
    """Finds, reads and checks a data set.

    Args:
      name: A name, a folder or a CSV file, as `--dataset` takes it; None:
        CIFAR-10 if it can be had, else the bundled sample.
      data_dir: Where to look for copies; None: the usual places.
      cache_dir: Where packed copies are kept; None: the usual place.
      image_size: Height and width to bring the images to, in pixels.
      dry_run: Read a few examples only, and download and write nothing.
      tell: Is given lines for a person who waits.
      test_fraction: The part of each class to keep for testing, where there
        are no test examples; None: every fifth.
      given: Arrays to use instead; see `from_arrays.open_given`.
      class_names: The names of their classes.

    Returns:
      The data set; every label is in range and both splits have examples.

    Raises:
      DataError: It can't be had; the text says what to do.
    """
    if given is not None:
        return _open_given(
            name,
            from_arrays.open_given(
                given, class_names, test_fraction=test_fraction
            ),
            image_size,
            _DRY_RUN_EXAMPLES if dry_run else None,
        )
    if class_names is not None or name == from_arrays.NAME:
        raise DataError(
            f"--dataset={from_arrays.NAME} and class_names are for arrays that"
            " a program gives: tfnet.run(config, data=(images, labels))."
        )
    try:
        root = Path(name or "").expanduser()
        is_a_place = name is not None and is_place(name)
        is_array_folder = is_a_place and arrays.is_array_folder(root)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"--dataset ({name}) can't be looked at: {one_line(error)}."
        ) from error
    if name in (None, sample.NAME, cifar10.NAME):
        holdout.refuse_fraction(name or "CIFAR-10", test_fraction)
    if name is None:
        found = _default(data_dir, not dry_run, tell)
    elif name == sample.NAME:
        found = sample.open_sample()
    elif name == cifar10.NAME:
        found = _cifar10(data_dir, not dry_run, tell)
    elif not is_a_place:
        found = tfds.open_tfds(
            name,
            data_dir,
            download=not dry_run,
            tell=tell,
            test_fraction=test_fraction,
        )
    elif is_array_folder:
        ready = None
        if not dry_run:
            ready = arrays.open_as_it_lies(
                root, image_size, test_fraction=test_fraction
            )
        if ready is not None:
            return _checked(ready)
        found = arrays.open_arrays(root, test_fraction=test_fraction)
    elif is_table(name):
        found = table.open_table(root, test_fraction=test_fraction)
    else:
        found = folder.open_folder(root, test_fraction=test_fraction)
    _check_counts(found.origin, found.counts)
    _check_classes(found.origin, found.class_names)
    return pack.materialise(
        found,
        image_size=image_size,
        cache_dir=_packed_dir(cache_dir),
        limit=_DRY_RUN_EXAMPLES if dry_run else None,
        tell=tell,
    )


def _open_given(
    name: str | None, found: Source, image_size: int, limit: int | None
) -> Dataset:
    """Reads arrays that a program has given; no copy is kept on disk."""
    if name not in (None, from_arrays.NAME):
        raise DataError(
            f"--dataset ({name}) must be left out where data is given to"
            " tfnet.run."
        )
    _check_classes(found.origin, found.class_names)
    return pack.in_memory(found, image_size, limit)


def _checked(data: Dataset) -> Dataset:
    _check_classes(data.origin, data.class_names)
    for split in SPLITS:
        labels = getattr(data, split).labels
        _check_counts(data.origin, {split: len(labels)})
        pack.check_labels(labels, len(data.class_names), data.origin)
    return data


def is_place(name: str) -> bool:
    """Says whether `--dataset` names a place, and no set by its name."""
    if name in (cifar10.NAME, from_arrays.NAME, sample.NAME):
        return False
    is_path = name.startswith((".", "~", os.sep)) or is_table(name)
    return is_path or Path(name).is_dir()


def is_table(name: str) -> bool:
    """Says whether `--dataset` names a CSV file."""
    return name.lower().endswith(".csv") and not Path(name).is_dir()


def _packed_dir(cache_dir: str | None) -> Path:
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "tfnet"


def _check_counts(origin: str, counts: dict) -> None:
    for split, count in counts.items():
        if count == 0:
            raise DataError(f"{origin}: there are no {split} examples.")


def _check_classes(origin: str, class_names: tuple[str, ...]) -> None:
    if len(class_names) < 2:
        raise DataError(
            f"{origin}: {counted(len(class_names), 'class')}; there must be two"
            " at least to tell apart."
        )


def _default(
    data_dir: str | None, download: bool, tell: Callable[[str], None]
) -> Source:
    """Returns CIFAR-10, or the bundled sample with a note that says so."""
    try:
        return _cifar10(data_dir, download, tell)
    except DataError as error:
        note = (
            f"this run uses {sample.NAME}, the bundled sample, because"
            f" --dataset is unset and CIFAR-10 can't be had. {error}"
        )
        return dataclasses.replace(sample.open_sample(), notes=(note,))


def _cifar10(
    data_dir: str | None, download: bool, tell: Callable[[str], None]
) -> Source:
    for path in cifar10.find_copies(data_dir):
        try:
            return cifar10.open_copy(path)
        except DataError as error:
            tell(f"Passed over: {error}")
    prepared = tfds.is_prepared(cifar10.NAME, data_dir)
    if prepared or (download and tfds.can_reach(cifar10.URL)):
        return tfds.open_tfds(
            cifar10.NAME, data_dir, download=download, tell=tell
        )
    places = [*cifar10.usual_places(data_dir), tfds.usual_dir(data_dir)]
    looked = dict.fromkeys(places)
    reason = "its server does not answer" if download else "none is downloaded"
    raise DataError(
        f"--dataset=cifar10: no copy in {', '.join(looked)}, and {reason}; put"
        " cifar-10-binary.tar.gz into one of these places, or name another"
        " with --data_dir."
    )
