"""CIFAR-10 as its authors publish it: python or binary layout, or archive.

Finds copies that other tools have left on this machine: torchvision's, Keras'
and plain downloads. Reads them without running anything that a file may say
(the python layout is made of pickles).
"""

import contextlib
import io
import os
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfnet.data import source
from tfnet.data.dataset import Examples
from tfnet.errors import DataError

NAME = "cifar10"

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"

CLASS_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

ROWS_PER_FILE = 10_000

_PYTHON = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_BINARY = tuple(f"{name}.bin" for name in _PYTHON)

# Below a place to look in: folders first, they are read without unpacking.
_COPIES = (
    "",
    "cifar-10-batches-py",
    "cifar-10-batches-bin",
    "cifar-10-batches-py-target/cifar-10-batches-py",
    "cifar-10-python.tar.gz",
    "cifar-10-binary.tar.gz",
)


def find_copies(data_dir: str | None) -> Iterator[Path]:
    """Returns the folders and archives that look like a copy of CIFAR-10.

    Args:
      data_dir: The only place to look in; if None, the usual ones: ./data
        and the working directory (torchvision), ~/.keras/datasets (Keras),
        ~/data, ~/Downloads.
    """
    found = []
    for place in usual_places(data_dir):
        for copy in _COPIES:
            path = Path(place).expanduser() / copy
            # Others' folders may not be ours to look into.
            with contextlib.suppress(OSError):
                if path.is_file() or _holds_batch(path):
                    found.append(path)
    return iter(found)


def _holds_batch(path: Path) -> bool:
    return path.is_dir() and not {*_PYTHON, *_BINARY}.isdisjoint(
        os.listdir(path)
    )


def usual_places(data_dir: str | None) -> list[str]:
    """Returns where `find_copies` looks, first to last; ~ is the home."""
    if data_dir is not None:
        return [data_dir]
    keras = os.environ.get("KERAS_HOME", "~/.keras")
    return ["./data", ".", f"{keras}/datasets", "~/data", "~/Downloads"]


def open_copy(path: Path, *, rows: int = ROWS_PER_FILE) -> source.Source:
    """Reads a copy.

    Args:
      path: A folder or an archive, in the python or the binary layout.
      rows: How many images each of its six files must hold.

    Raises:
      DataError: A file is missing, cut short or not what it should be.
    """
    try:
        files = _read_folder(path) if path.is_dir() else _read_archive(path)
        batches = [_parse(name, files, rows) for name in _PYTHON]
    except (
        OSError,
        EOFError,
        tarfile.TarError,
        zlib.error,
        ValueError,
    ) as error:
        # tarfile tells below what each of its ways has said.
        reason = str(error).partition(":\n")[0]
        raise DataError(f"{path} is damaged or incomplete: {reason}") from error
    images = np.concatenate([images for images, _ in batches[:-1]])
    labels = np.concatenate([labels for _, labels in batches[:-1]])
    return source.from_examples(
        {
            "train": Examples(images, labels),
            "test": Examples(*batches[-1]),
        },
        name=NAME,
        origin=str(path.absolute()),
        class_names=CLASS_NAMES,
        key=_key(path),
    )


def _key(path: Path) -> str:
    paths = [path, *(sorted(path.iterdir()) if path.is_dir() else ())]
    return " ".join(str(one.stat().st_mtime_ns) for one in paths)


def _read_folder(path: Path) -> dict[str, bytes]:
    names = set(os.listdir(path))
    return {
        name: (path / name).read_bytes()
        for name in (*_PYTHON, *_BINARY)
        if name in names
    }


def _read_archive(path: Path) -> dict[str, bytes]:
    files = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = os.path.basename(member.name)
            if member.isfile() and name in (*_PYTHON, *_BINARY):
                stream = archive.extractfile(member)
                assert stream is not None
                files[name] = stream.read()
    return files


def _parse(
    name: str, files: dict[str, bytes], rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns images, uint8 [rows, 32, 32, 3], and labels, uint8 [rows]."""
    if name in files:
        pixels, labels = _parse_python(files[name])
    elif f"{name}.bin" in files:
        table = np.frombuffer(files[f"{name}.bin"], np.uint8)
        if table.size != rows * 3073:
            raise ValueError(f"{name}.bin has {table.size} bytes")
        table = table.reshape(rows, 3073)
        pixels, labels = table[:, 1:], table[:, 0]
    else:
        raise ValueError(f"{name} is missing")
    if pixels.shape != (rows, 3072) or labels.shape != (rows,):
        raise ValueError(f"{name} holds {len(pixels)} images, not {rows}")
    # Stored as three planes, red, green, blue.
    images = pixels.reshape(rows, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels


def _parse_python(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        pixels = np.asarray(batch[b"data"])
        labels = np.asarray(batch[b"labels"])
    except Exception as error:
        # A damaged pickle can fail in any way at all.
        raise ValueError(f"no batch of CIFAR-10 ({error})") from error
    if pixels.dtype != np.uint8 or labels.dtype.kind != "i":
        raise ValueError("a batch with values that are no pixels and labels")
    return pixels, labels


class _ArraysOnly(pickle.Unpickler):
    """Unpickles NumPy arrays and plain values, and calls nothing else."""

    _MODULES = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
    _NUMPY = ("_reconstruct", "ndarray", "dtype")

    def find_class(self, module: str, name: str) -> Any:
        # To import any other module would run it.
        is_numpy = module in self._MODULES and name in self._NUMPY
        # How Python 3 writes bytes in the old protocols.
        is_bytes = (module, name) == ("_codecs", "encode")
        if is_numpy or is_bytes:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")
