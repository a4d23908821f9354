"""Reads files of weights: PyTorch's, safetensors and NumPy's.

Knows names and arrays, not models. Reading a file runs no code that is in it.
"""

import importlib.util
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from tfnet.errors import ConfigError, one_line, reason_of

_PYTORCH_ENDINGS = (".pt", ".pth")
ENDINGS = (*_PYTORCH_ENDINGS, ".safetensors", ".npz")


class _WrongFileError(Exception):
    """The text says what is wrong with a file, and a remedy."""


def has_pytorch() -> bool:
    """Says whether PyTorch is installed; does not import it."""
    return importlib.util.find_spec("torch") is not None


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Reads named arrays from a file, by its ending.

    A `.pt` or `.pth` is what `torch.save(net.state_dict(), path)` writes
    (PyTorch 1.6 or later). It is read by PyTorch where that is installed, with
    `weights_only=True`, and else by tfnet.

    Args:
      path: A file that ends in .pt, .pth, .safetensors or .npz.

    Returns:
      The arrays, in the order of the file, with the bits of the file; bfloat16
      as float32, which holds it exactly.

    Raises:
      ConfigError: It can't be read, or holds anything else than named arrays.
    """
    where = f"--init_from ({path})"
    if path.suffix not in ENDINGS:
        raise ConfigError(
            f"{where} must end in {', '.join(ENDINGS)}, or be a run directory."
        )
    try:
        found = _reader(path.suffix)(path)
    except _WrongFileError as error:
        raise ConfigError(f"{where} {error}.") from error
    except OSError as error:
        raise ConfigError(
            f"{where} can't be read: {reason_of(error)}."
        ) from error
    except Exception as error:
        # What a damaged file raises depends on where it is damaged.
        raise ConfigError(
            f"{where} holds no weights that can be read, or is damaged:"
            f" {one_line(error)}."
        ) from error
    return found


def _reader(ending: str) -> Callable[[Path], dict[str, np.ndarray]]:
    if ending == ".safetensors":
        return _read_safetensors
    if ending == ".npz":
        return _read_npz
    return _read_by_pytorch if has_pytorch() else _read_pt


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    import ml_dtypes
    from safetensors.numpy import load_file

    arrays = load_file(path)
    return {
        name: array.astype(np.float32)
        if array.dtype == ml_dtypes.bfloat16
        else array
        for name, array in arrays.items()
    }


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _read_by_pytorch(path: Path) -> dict[str, np.ndarray]:
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise _not_only_tensors("other things, or is damaged") from error
    _check_mapping(found, torch.Tensor)
    return {
        name: (one.float() if one.dtype is torch.bfloat16 else one).numpy(
            force=True
        )
        for name, one in found.items()
    }


def _read_pt(path: Path) -> dict[str, np.ndarray]:
    """Reads a file of torch.save without PyTorch.

    It is a zip archive of one folder: `data.pkl` has the names and shapes, and
    refers to `data/0`, `data/1`, ..., the bytes of the tensors.
    """
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise _WrongFileError(
            "is no zip archive, as torch.save writes since PyTorch 1.6; save it"
            " again there, or install torch"
        ) from error
    with archive:
        folders = [
            name.removesuffix("/data.pkl")
            for name in archive.namelist()
            if name.endswith("/data.pkl")
        ]
        if len(folders) != 1:
            raise _WrongFileError(
                "is a zip archive, but not of torch.save; save net.state_dict()"
            )
        with archive.open(f"{folders[0]}/data.pkl") as file:
            found = _Unpickler(file, archive, folders[0]).load()
    _check_mapping(found, np.ndarray)
    return dict(found)


def _check_mapping(found: Any, kind: type) -> None:
    if not isinstance(found, Mapping):
        raise _not_only_tensors(f"a {type(found).__name__} without names")
    for name, one in found.items():
        if not isinstance(name, str) or not isinstance(one, kind):
            raise _not_only_tensors(f"{name!r} of type {type(one).__name__}")


def _not_only_tensors(what: str) -> _WrongFileError:
    return _WrongFileError(
        f"must hold tensors by name and nothing else; it holds {what}. Save it"
        " with torch.save(net.state_dict(), path)"
    )


# What PyTorch calls the storage of each type of number: little-endian NumPy
# types. NumPy has no bfloat16; it is the upper half of a float32.
_BFLOAT16 = "bfloat16"
_STORAGES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "BFloat16Storage": _BFLOAT16,
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "|i1",
    "ByteStorage": "|u1",
    "BoolStorage": "|b1",
}


class _Unpickler(pickle.Unpickler):
    """Admits tensors and OrderedDicts.

    A pickle is a program that may call whatever `find_class` gives it, with
    any arguments, and set attributes of it; so that gives three functions of
    this class, `OrderedDict`, which nothing can change, and strings.
    """

    def __init__(
        self, file: IO[bytes], archive: zipfile.ZipFile, folder: str
    ) -> None:
        super().__init__(file, encoding="utf-8")
        self._archive = archive
        self._folder = folder
        order = f"{folder}/byteorder"
        self._is_big = (
            order in archive.namelist() and archive.read(order) == b"big"
        )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return self._parameter
        raise _not_only_tensors(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> np.ndarray:
        """Returns a storage: numbers in one row."""
        _, kind, key, _, count = pid
        if kind not in _STORAGES.values():
            raise ValueError("a storage has a type that is none")
        dtype = np.dtype("<u2" if kind == _BFLOAT16 else kind)
        if self._is_big:
            dtype = dtype.newbyteorder(">")
        data = self._archive.read(f"{self._folder}/data/{key}")
        values = np.frombuffer(data, dtype, count=count)
        if kind == _BFLOAT16:
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(dtype.newbyteorder("="))

    def _tensor(
        self,
        storage: np.ndarray,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *_: Any,
    ) -> np.ndarray:
        """Cuts a tensor from its storage; offset and strides in numbers."""
        numbers = (offset, *shape, *strides)
        if len(shape) != len(strides) or min(numbers) < 0:
            raise ValueError("a tensor has a shape that is none")
        count = int(np.prod(shape, dtype=object))
        last = offset + sum(
            (size - 1) * stride
            for size, stride in zip(shape, strides, strict=True)
        )
        # as_strided reads whatever memory it is told to.
        if count and (last >= storage.size or count > storage.size):
            raise ValueError("a tensor reaches beyond its storage")
        if not count:
            return np.zeros(shape, storage.dtype)
        view = np.lib.stride_tricks.as_strided(
            storage[offset:],
            shape,
            [stride * storage.itemsize for stride in strides],
        )
        return np.array(view, order="C")

    def _parameter(self, data: np.ndarray, *_: Any) -> np.ndarray:
        return data
