"""A folder of arrays: {train,test}_{images,labels}.npy and classes.txt.

Without those for testing, some of the others are kept for it. The layout of
packed data too. Arrays of the right size are used where they
lie, so a set may be larger than memory.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfnet.data import holdout, source
from tfnet.data.dataset import Dataset, Examples
from tfnet.data.image_file import ImageFile
from tfnet.data.names import short_name
from tfnet.errors import DataError, counted

CLASSES_FILE = "classes.txt"

# Images up to this many bytes are read into memory, others stay in the file.
IN_MEMORY_BYTES = 2**30


class _Splits(NamedTuple):
    """The examples of both splits, and what to tell of how they were made."""

    train: Examples
    test: Examples
    notes: tuple[str, ...] = ()


def is_array_folder(root: Path) -> bool:
    """Returns whether `root` holds arrays to train on."""
    return array_path(root, "train", "images").is_file()


def array_path(root: Path, split: source.Split, what: str) -> Path:
    """Returns the file of the `what` (images or labels) of a split."""
    return root / f"{split}_{what}.npy"


def open_as_it_lies(
    root: Path, image_size: int, *, test_fraction: float | None = None
) -> Dataset | None:
    """Opens a folder of arrays as a data set, if they need no resizing.

    Args:
      root: Holds `train_images.npy` and `test_images.npy` (uint8 [n, height,
        width, 3] or, grey, [n, height, width]), `train_labels.npy` and
        `test_labels.npy` (integers [n]) and, if there are names for the
        classes, `classes.txt` with one a line. Without both files for
        testing, some of each class are kept for it.
      image_size: Height and width wanted, in pixels.
      test_fraction: How many; see `holdout.held_out`.

    Returns:
      The data set; None where the images are of another size.

    Raises:
      DataError: A file is missing or holds something else, there is nothing
        to test on, or a fraction is given where there are test images.
    """
    splits = _load_splits(root, test_fraction)
    if any(
        examples.image_shape != (image_size, image_size, 3)
        for examples in (splits.train, splits.test)
    ):
        return None
    return Dataset(*_names(root, splits), *splits)


def open_arrays(
    root: Path, *, test_fraction: float | None = None
) -> source.Source:
    """Opens a folder of arrays that must be resized.

    Args:
      root: As `open_as_it_lies` takes it.
      test_fraction: As `open_as_it_lies` takes it.

    Raises:
      DataError: As `open_as_it_lies` raises it.
    """
    splits = _load_splits(root, test_fraction)
    name, origin, class_names = _names(root, splits)
    states = [path.stat() for path in _paths(root) if path.exists()]
    return source.from_examples(
        {"train": splits.train, "test": splits.test},
        name=name,
        origin=origin,
        class_names=class_names,
        key=" ".join(f"{s.st_size} {s.st_mtime_ns}" for s in states),
        notes=splits.notes,
        variant=holdout.variant(test_fraction),
    )


def _paths(
    root: Path, splits: tuple[source.Split, ...] = source.SPLITS
) -> list[Path]:
    return [
        array_path(root, split, what)
        for split, what in itertools.product(splits, ("images", "labels"))
    ]


def _load_splits(root: Path, fraction: float | None) -> _Splits:
    images, labels = _load_split(root, "train")
    if any(path.exists() for path in _paths(root, ("test",))):
        holdout.refuse_fraction(f"{root} (with test_images.npy)", fraction)
        test = _examples(*_load_split(root, "test"))
        return _Splits(_examples(images, labels), test)
    kept = holdout.held_out(labels, fraction)
    if len(labels) and not kept.any():
        raise holdout.nothing_left(
            f"--dataset ({root})",
            "it needs test_images.npy and test_labels.npy",
        )
    train, test = (
        _examples(images.only(np.flatnonzero(those)), labels[those])
        for those in (~kept, kept)
    )
    return _Splits(train, test, (holdout.note("in the folder", fraction),))


def _examples(images: ImageFile, labels: np.ndarray) -> Examples:
    """Returns images with their labels; reads them where the file is small."""
    if images.path.stat().st_size > IN_MEMORY_BYTES:
        return Examples(images, labels)
    return Examples(images.take(np.arange(len(labels))), labels)


def _load_split(
    root: Path, split: source.Split
) -> tuple[ImageFile, np.ndarray]:
    image_path = array_path(root, split, "images")
    label_path = array_path(root, split, "labels")
    images: ImageFile = _load(image_path, ImageFile)
    labels = _load(label_path, _read_labels)
    is_images = len(images.shape) == 4 and images.shape[3] == 3
    if not is_images or images.dtype != "u1" or 0 in images.shape[1:]:
        raise DataError(
            f"{image_path} must be uint8 [n, height, width, 3] or [n, height,"
            f" width]; it is {images.dtype} {list(images.shape)}."
        )
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise DataError(
            f"{label_path} must be integers [{images.shape[0]}], one an image;"
            f" it is {labels.dtype} {list(labels.shape)}."
        )
    limits = np.iinfo(np.int32)
    wide = labels[(labels > limits.max) | (labels < limits.min)]
    if wide.size:
        raise DataError(f"{label_path}: label {wide[0]} is out of range.")
    return images, labels.astype(np.int32)


def _read_labels(path: Path) -> np.ndarray:
    with open(path, "rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _load(path: Path, loader: Callable[[Path], Any]) -> Any:
    try:
        return loader(path)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing.") from error
    except DataError:
        raise
    except Exception as error:
        # A damaged header fails in any way at all: tokenize.TokenError,
        # SyntaxError, MemoryError.
        raise DataError(f"{path} is damaged or no .npy file.") from error


def _names(root: Path, splits: _Splits) -> tuple[str, str, tuple[str, ...]]:
    """Returns the name, the origin and the names of the classes."""
    name = short_name(root.resolve(), "arrays")
    path = root / CLASSES_FILE
    if path.is_file():
        return name, str(root.absolute()), _read_names(path)
    highest = max(
        int(examples.labels.max(initial=0))
        for examples in (splits.train, splits.test)
    )
    if highest >= len(splits.train) > 0:
        raise DataError(
            f"{root} has the label {highest}, and only"
            f" {counted(len(splits.train), 'training image')}; labels count"
            " the classes from 0."
        )
    classes = tuple(str(label) for label in range(highest + 1))
    return name, str(root.absolute()), classes


def _read_names(path: Path) -> tuple[str, ...]:
    try:
        # Some editors begin a file with a byte order mark.
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be text in UTF-8.") from error
    if "" in lines or len(set(lines)) < len(lines):
        raise DataError(
            f"{path} must name each class on a line of its own, none of them"
            " empty or twice."
        )
    return tuple(lines)
