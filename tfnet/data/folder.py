"""A folder of images: root/split/class/file, or root/class/file."""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from tfnet.data import source
from tfnet.errors import DataError, one_line

# What people call the images to evaluate on, in the order of preference.
_TEST_NAMES = ("test", "validation", "valid", "val")


def open_folder(root: Path) -> source.Source:
    """Lists a folder of images.

    The classes are the names of the sub-folders, in the order that a person
    would sort them (2 before 10). Names that begin with a dot are passed
    over; every other file must be an image.

    Args:
      root: Holds train/ and test/ (or validation/, valid/, val/) with one
        folder a class in each, or one folder a class. Where it has no test
        images, every fifth image of each class, by name, is one.

    Raises:
      DataError: It is not laid out like that, or a class has no images.
    """
    if not root.is_dir():
        raise DataError(f"--dataset ({root}) is not a folder.")
    train_root = root / "train"
    if train_root.is_dir():
        test_root = next(
            (root / name for name in _TEST_NAMES if (root / name).is_dir()),
            None,
        )
    else:
        train_root, test_root = root, None
    names = _class_names(train_root)
    files = {"train": _list(train_root, names)}
    if test_root is not None:
        unknown = set(_folder_names(test_root)) - set(names)
        if unknown:
            raise DataError(
                f"--dataset ({root}): {test_root.name}/ has the classes"
                f" {', '.join(sorted(unknown))}, which {train_root.name}/"
                " has not; both must have the same ones."
            )
        files["test"] = _list(test_root, names, allow_missing=True)
        notes: tuple[str, ...] = ()
    else:
        files = _every_fifth_of_each_class(files["train"])
        notes = (
            "No test images in the folder: every fifth image of each class,"
            " by name, is kept for testing.",
        )
    if not files["test"]:
        raise DataError(
            f"--dataset ({root}) leaves no image to test on; it needs a test/"
            f" folder, or {source.TEST_EVERY} images of some class."
        )
    return _source(root, names, files, notes)


def _source(
    root: Path,
    names: Sequence[str],
    files: dict,
    notes: tuple[str, ...],
) -> source.Source:
    def read(
        split: source.Split, size: int, limit: int | None
    ) -> source.Chunks:
        return _read(_spaced(files[split], limit), size)

    return source.Source(
        name=re.sub(r"[^\w.-]+", "_", root.resolve().name) or "images",
        origin=str(root.absolute()),
        # Names that are no UTF-8 must not stop what is shown or exported.
        class_names=tuple(
            os.fsencode(name).decode(errors="backslashreplace")
            for name in names
        ),
        counts={split: len(listed) for split, listed in files.items()},
        key=_key(root, names, files),
        read=read,
        costly=True,
        notes=notes,
    )


def _key(root: Path, names: Sequence[str], files: dict) -> str:
    """Returns a digest of which files there are, their sizes and times."""
    digest = hashlib.sha256(repr(tuple(names)).encode())
    for split in source.SPLITS:
        for path, label in files[split]:
            try:
                status = os.stat(path)
            except OSError as error:
                raise _unreadable(path, error) from error
            line = (
                os.path.relpath(path, root),
                label,
                status.st_size,
                status.st_mtime_ns,
            )
            digest.update(repr(line).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def natural_order(name: str) -> tuple:
    """Returns a key that sorts names as a person would: 2 before 10."""
    parts = re.split(r"(\d+)", name)
    return (
        tuple(
            (0, int(part), "") if part.isdecimal() else (1, 0, part)
            for part in parts
        ),
        name,
    )


def _by_name(entry: os.DirEntry) -> tuple:
    """Returns a key that sorts files: a.png before a1.png."""
    return natural_order(os.path.splitext(entry.name)[0]), entry.name


def _visible(folder: Path) -> list[os.DirEntry]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise _unreadable(folder, error) from error
    return [entry for entry in entries if not entry.name.startswith(".")]


def _folder_names(folder: Path) -> list[str]:
    names = []
    for entry in _visible(folder):
        if entry.is_dir():
            names.append(entry.name)
        elif entry.is_symlink() and not os.path.exists(entry.path):
            raise DataError(f"{entry.path} is a link to nothing.")
    return names


def _class_names(folder: Path) -> list[str]:
    names = _folder_names(folder)
    if len(names) < 2:
        found = f"only {names[0]}" if names else "none"
        raise DataError(
            f"--dataset ({folder}) must hold one folder of images for each"
            f" class, two at least; it holds {found}."
        )
    return sorted(names, key=natural_order)


def _list(
    folder: Path, names: Sequence[str], *, allow_missing: bool = False
) -> list[tuple[str, int]]:
    """Returns the path and label of every image, class by class, by name."""
    files: list[tuple[str, int]] = []
    for label, name in enumerate(names):
        place = folder / name
        entries = []
        if place.is_dir() or not allow_missing:
            entries = _visible(place)
        for entry in entries:
            if entry.is_dir():
                raise DataError(
                    f"{entry.path} is a folder inside a class; images must lie"
                    " directly in the folder of their class."
                )
        if not entries and not allow_missing:
            raise DataError(
                f"{place} is a class without an image; add some or remove it."
            )
        entries.sort(key=_by_name)
        files += [(entry.path, label) for entry in entries]
    return files


def _every_fifth_of_each_class(files: list[tuple[str, int]]) -> dict:
    parts: dict[str, list[tuple[str, int]]] = {"train": [], "test": []}
    seen: dict[int, int] = {}
    for path, label in files:
        seen[label] = seen.get(label, 0) + 1
        is_test = seen[label] % source.TEST_EVERY == 0
        parts["test" if is_test else "train"].append((path, label))
    return parts


def _spaced(files: list, limit: int | None) -> list:
    """Returns `limit` of the files, evenly spaced, so that all classes show."""
    if limit is None or limit >= len(files):
        return files
    return [files[i * len(files) // limit] for i in range(limit)]


def _read(files: list[tuple[str, int]], size: int) -> source.Chunks:
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
            rule.decode(file.read())
    except OSError as error:
        raise _unreadable(path, error) from error
    except tf.errors.OpError as error:
        raise DataError(
            f"{path} is no image that can be read (JPEG, PNG, GIF, BMP or"
            " WebP); mend it or remove it."
        ) from error


def _unreadable(path: str | Path, error: OSError) -> DataError:
    return DataError(f"{path} can't be read: {error.strerror}.")
