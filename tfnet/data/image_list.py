"""Image files, each with a label: how they are read, and named when bad.

Which files there are is known by `folder` and `table`.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfnet.data import names as spelling
from tfnet.data import source
from tfnet.data.holdout import held_out
from tfnet.data.kinds import why_no_image
from tfnet.errors import DataError, one_line

# The path and the label of each image.
Files = list[tuple[str, int]]


def hold_out(
    files: Files, fraction: float | None, root: Path
) -> dict[source.Split, Files]:
    """Splits files in training and test ones, as `holdout.held_out` does.

    Args:
      files: All of them, in order.
      fraction: The part of each class to keep for testing.
      root: What their paths are known from: it may be moved.
    """
    labels = np.array([label for _, label in files])
    names = [os.fsencode(os.path.relpath(path, root)) for path, _ in files]
    test = held_out(labels, fraction, names)
    return {
        "train": [
            one for one, kept in zip(files, test, strict=True) if not kept
        ],
        "test": [one for one, kept in zip(files, test, strict=True) if kept],
    }


def open_files(
    files: dict[source.Split, Files],
    *,
    root: Path,
    name: str,
    origin: str,
    class_names: Sequence[str],
    notes: tuple[str, ...],
    variant: str = "",
) -> source.Source:
    """Returns a source that reads image files.

    Args:
      files: Those of each split, in order.
      root: What their paths are remembered from.
      name: See `Source`.
      origin: See `Source`.
      class_names: As they stand in file names, which may be no UTF-8.
      notes: See `Source`.
      variant: See `Source`.

    Raises:
      DataError: A file is not there.
    """

    def read(
        split: source.Split, size: int, limit: int | None
    ) -> source.Chunks:
        return _read(_spaced(files[split], limit), size)

    return source.Source(
        name=name,
        origin=origin,
        class_names=tuple(spelling.shown(name) for name in class_names),
        counts={split: len(listed) for split, listed in files.items()},
        key=_key(root, class_names, files),
        read=read,
        costly=True,
        notes=notes,
        variant=variant,
    )


def _key(root: Path, names: Sequence[str], files: dict) -> str:
    """Returns a digest of which files there are, their sizes and times."""
    digest = hashlib.sha256(repr(tuple(names)).encode())
    for split in source.SPLITS:
        for path, label in files[split]:
            try:
                status = os.stat(path)
            except OSError as error:
                raise unreadable(path, error) from error
            line = (
                os.path.relpath(path, root),
                label,
                status.st_size,
                status.st_mtime_ns,
            )
            digest.update(repr(line).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _spaced(files: Files, limit: int | None) -> Files:
    """Returns `limit` of the files, evenly spaced, so that all classes show."""
    if limit is None or limit >= len(files):
        return files
    return [files[i * len(files) // limit] for i in range(limit)]


def _read(files: Files, size: int) -> source.Chunks:
    import tensorflow as tf

    from tfnet.data import images as rule

    paths = [os.fsencode(path) for path, _ in files]
    labels = [label for _, label in files]
    listed = tf.data.Dataset.from_tensor_slices((paths, labels))
    contents = listed.map(
        lambda path, label: (tf.io.read_file(path), label),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    done = 0
    try:
        for chunk in rule.decoded_chunks(contents, size, source.CHUNK):
            yield chunk
            done += len(chunk[0])
    except tf.errors.OpError as error:
        # TensorFlow does not say which file it was; the order is kept, so it
        # is among the next.
        for path, _ in files[done : done + source.CHUNK]:
            _check_readable(path)
        raise DataError(f"images can't be read: {one_line(error)}") from error


def _check_readable(path: str) -> None:
    """Raises DataError, with its name, if a file can't be decoded."""
    import tensorflow as tf

    from tfnet.data import images as rule

    try:
        with open(path, "rb") as file:
            data = file.read()
        rule.decode(data)
    except OSError as error:
        raise unreadable(path, error) from error
    except tf.errors.OpError as error:
        why, remedy = why_no_image(data)
        ways = f"{remedy}, or" if remedy else "mend it or"
        raise DataError(f"{path} is {why}; {ways} remove it.") from error


def unreadable(path: str | Path, error: OSError) -> DataError:
    """Returns the error for a file or a folder that can't be read."""
    return DataError(f"{path} can't be read: {error.strerror}.")
