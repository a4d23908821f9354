"""A folder of images: root/split/class/file, or root/class/file."""

import os
from collections.abc import Sequence
from pathlib import Path

from tfnet.data import holdout, source
from tfnet.data.image_list import Files, hold_out, open_files, unreadable
from tfnet.data.names import natural_order, short_name
from tfnet.errors import DataError

# What people call the images to evaluate on, in the order of preference.
_TEST_NAMES = ("test", "validation", "valid", "val")

# Files that it hides, as a dot hides others.
_LEFT_BY_WINDOWS = ("Thumbs.db", "desktop.ini")


def open_folder(
    root: Path, *, test_fraction: float | None = None
) -> source.Source:
    """Lists a folder of images.

    The classes are the names of the sub-folders, in the order that a person
    would sort them (2 before 10). Names that begin with a dot,
    Thumbs.db and desktop.ini are passed over; every other file must be an
    image.

    Args:
      root: Holds train/ and test/ (or validation/, valid/, val/) with one
        folder a class in each, or one folder a class. Where it has no test
        images, some of each class are kept for testing.
      test_fraction: How many; see `holdout.held_out`.

    Raises:
      DataError: It is not laid out like that, a class has no images, or a
        fraction is given where there are test images.
    """
    if not root.is_dir():
        raise DataError(f"--dataset ({root}) is not a folder, nor a .csv file.")
    train_root = root / "train"
    if train_root.is_dir():
        test_root = next(
            (root / name for name in _TEST_NAMES if (root / name).is_dir()),
            None,
        )
    else:
        train_root, test_root = root, None
    names = _class_names(train_root)
    listed = _list(train_root, names)
    files: dict[source.Split, Files]
    notes: tuple[str, ...] = ()
    variant = ""
    if test_root is not None:
        holdout.refuse_fraction(
            f"{root} (with {test_root.name}/)", test_fraction
        )
        files = {"train": listed, "test": _test_files(root, test_root, names)}
    else:
        files = hold_out(listed, test_fraction, train_root)
        notes = (holdout.note("in the folder", test_fraction),)
        variant = holdout.variant(test_fraction)
    if not files["test"]:
        raise holdout.nothing_left(
            f"--dataset ({root})", "it needs a test/ folder"
        )
    return open_files(
        files,
        root=root,
        name=short_name(root.resolve(), "images"),
        origin=str(root.absolute()),
        class_names=names,
        notes=notes,
        variant=variant,
    )


def _test_files(root: Path, test_root: Path, names: Sequence[str]) -> Files:
    unknown = set(_folder_names(test_root)) - set(names)
    if unknown:
        raise DataError(
            f"--dataset ({root}): {test_root.name}/ has the classes"
            f" {', '.join(sorted(unknown))}, which the training images have"
            " not; both must have the same ones."
        )
    return _list(test_root, names, allow_missing=True)


def _by_name(entry: os.DirEntry) -> tuple:
    """Returns a key that sorts files: a.png before a1.png."""
    return natural_order(os.path.splitext(entry.name)[0]), entry.name


def _visible(folder: Path) -> list[os.DirEntry]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise unreadable(folder, error) from error
    return [
        entry
        for entry in entries
        if not entry.name.startswith(".") and entry.name not in _LEFT_BY_WINDOWS
    ]


def _is_folder(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        # A link that leads to itself.
        raise unreadable(entry.path, error) from error


def _folder_names(folder: Path) -> list[str]:
    names = []
    for entry in _visible(folder):
        if _is_folder(entry):
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
) -> Files:
    """Returns the path and label of every image, class by class, by name."""
    files: Files = []
    for label, name in enumerate(names):
        place = folder / name
        entries = []
        if place.is_dir() or not allow_missing:
            entries = _visible(place)
        for entry in entries:
            if _is_folder(entry):
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
