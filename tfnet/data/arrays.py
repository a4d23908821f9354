"""A folder of arrays: {train,test}_{images,labels}.npy and classes.txt.

The layout of packed data too. Arrays of the right size are used where they
lie, memory-mapped, so a set may be larger than memory.
"""

import mmap
import re
from pathlib import Path

import numpy as np

from tfnet.data import source
from tfnet.data.dataset import Dataset, Examples
from tfnet.errors import DataError

CLASSES_FILE = "classes.txt"

# Sets up to this many bytes are read whole, larger ones are mapped.
IN_MEMORY_BYTES = 2**30


def is_array_folder(root: Path) -> bool:
    """Returns whether `root` holds arrays to train on."""
    return array_path(root, "train", "images").is_file()


def array_path(root: Path, split: source.Split, what: str) -> Path:
    """Returns the file of the `what` (images or labels) of a split."""
    return root / f"{split}_{what}.npy"


def map_arrays(root: Path, image_size: int) -> Dataset | None:
    """Opens a folder of arrays as a data set, if they can be used as they lie.

    Args:
      root: Holds `train_images.npy` and `test_images.npy` (uint8 [n, height,
        width, 3] or, grey, [n, height, width]), `train_labels.npy` and
        `test_labels.npy` (integers [n]) and, if there are names for the
        classes, `classes.txt` with one a line.
      image_size: Height and width wanted, in pixels.

    Returns:
      The data set; None where the images are of another size, or grey.

    Raises:
      DataError: A file is missing or holds something else.
    """
    arrays = _load_splits(root)
    for images, _ in arrays.values():
        # Grey images are seen through a view without memory of its own.
        is_view = 0 in images.strides and images.size > 1
        if is_view or images.shape[1:] != (image_size, image_size, 3):
            return None
    train, test = (
        Examples(images, labels.astype(np.int32))
        for images, labels in arrays.values()
    )
    return Dataset(*_names(root, arrays), train, test)


def open_arrays(root: Path) -> source.Source:
    """Opens a folder of arrays that must be brought to size.

    Args:
      root: As `map_arrays` takes it.

    Raises:
      DataError: A file is missing or holds something else.
    """
    arrays = _load_splits(root)
    name, origin, class_names = _names(root, arrays)
    status = array_path(root, "train", "images").stat()
    return source.from_arrays(
        arrays,
        name=name,
        origin=origin,
        class_names=class_names,
        key=f"{status.st_size} {status.st_mtime_ns}",
    )


_Arrays = dict[source.Split, tuple[np.ndarray, np.ndarray]]


def _load_splits(root: Path) -> _Arrays:
    return {split: _load_split(root, split) for split in source.SPLITS}


def _names(root: Path, arrays: _Arrays) -> tuple[str, str, tuple[str, ...]]:
    """Returns the name, the origin and the names of the classes."""
    name = re.sub(r"[^\w.-]+", "_", root.resolve().name) or "arrays"
    class_names = _class_names(root, [labels for _, labels in arrays.values()])
    return name, str(root.absolute()), class_names


def _load_split(
    root: Path, split: source.Split
) -> tuple[np.ndarray, np.ndarray]:
    image_file = array_path(root, split, "images")
    label_file = array_path(root, split, "labels")
    images = _load(image_file)
    labels = np.asarray(_load(label_file))
    if images.ndim == 3:
        # A view: the grey value stands for all three channels.
        images = np.broadcast_to(images[..., np.newaxis], (*images.shape, 3))
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise DataError(
            f"{image_file} must be uint8 [n, height, width, 3] or [n, height,"
            f" width]; it is {images.dtype} {list(images.shape)}."
        )
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise DataError(
            f"{label_file} must be integers [{len(images)}], one an image; it"
            f" is {labels.dtype} {list(labels.shape)}."
        )
    return images, labels


def _load(path: Path) -> np.ndarray:
    try:
        small = path.stat().st_size <= IN_MEMORY_BYTES
        array = np.load(path, mmap_mode=None if small else "r")
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing.") from error
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged or no .npy file.") from error
    if isinstance(array.base, mmap.mmap):
        # Batches are drawn from all over: reading ahead is reading in vain.
        array.base.madvise(mmap.MADV_RANDOM)
    return array


def _class_names(root: Path, labels: list[np.ndarray]) -> tuple[str, ...]:
    path = root / CLASSES_FILE
    if path.is_file():
        return tuple(path.read_text(encoding="utf-8").splitlines())
    highest = max(int(array.max(initial=0)) for array in labels)
    return tuple(str(label) for label in range(highest + 1))
