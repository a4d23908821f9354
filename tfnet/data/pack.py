"""From a source to a data set: into memory, or packed on disk.

What is slow to read (files to decode) or large is read once and kept, as
arrays, in the cache directory; the next run uses them. The packed copy is ours:
a damaged or outdated one is rebuilt.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tfnet import files
from tfnet.data import arrays
from tfnet.data.dataset import Dataset, Examples
from tfnet.data.source import SPLITS, Chunks, Source, Split
from tfnet.errors import DataError, reason_of

# Raised when the rule of `images` or the layout changes.
_VERSION = 3
_MANIFEST = "manifest.json"


def materialise(
    source: Source,
    *,
    image_size: int,
    cache_dir: Path,
    limit: int | None,
    tell: Callable[[str], None],
) -> Dataset:
    """Reads a source.

    Args:
      source: Where the examples are.
      image_size: Height and width to bring the images to, in pixels.
      cache_dir: Where packed copies are kept.
      limit: How many examples of each split to read, into memory; None: all.
      tell: Is given lines for a person who waits.

    Returns:
      The data set.

    Raises:
      DataError: An example can't be read, a label is out of range, or the
        packed copy can't be written.
    """
    image_bytes = image_size * image_size * 3
    total = sum(source.counts.values()) * image_bytes
    small = total <= arrays.IN_MEMORY_BYTES
    if limit is not None or (small and not source.costly):
        return in_memory(source, image_size, limit)
    identity = f"{source.origin}{source.variant}"
    digest = hashlib.sha256(identity.encode("utf-8", "surrogateescape"))
    place = cache_dir / f"{source.name}-{image_size}-{digest.hexdigest()[:12]}"
    try:
        state = _state(place, source)
    except OSError as error:
        raise DataError(
            f"--cache_dir ({cache_dir}) can't be read: {error.strerror}."
        ) from error
    packed = _open(place, image_size, source) if state == "good" else None
    if state == "good" and packed is None:
        state = "damaged"
    if state != "good":
        if state != "absent":
            tell(f"The packed copy in {place} is {state}; it is made anew.")
        why_not = files.why_no_directory(cache_dir)
        if why_not is not None:
            raise DataError(
                f"--cache_dir ({cache_dir}) {why_not}. Name another place."
            )
        tell(
            f"Reading {sum(source.counts.values()):,} images from"
            f" {files.seen_from_here(source.origin)}; kept in"
            f" {files.seen_from_here(place)} for the next run."
        )
        try:
            if place.exists() and not place.is_dir():
                # What is in the cache under this name is ours.
                place.unlink()
            with files.new_directory(place) as aside:
                _write(source, image_size, aside)
        except OSError as error:
            raise DataError(
                f"--cache_dir ({cache_dir}) can't hold the packed copy"
                f" ({total / 2**20:,.0f} MiB): {reason_of(error)};"
                " name a directory with room for it."
            ) from error
        packed = _open(place, image_size, source)
    assert packed is not None
    return _named(source, packed.train, packed.test)


def _open(place: Path, image_size: int, source: Source) -> Dataset | None:
    """Opens a packed copy; None where it is damaged after all."""
    try:
        packed = arrays.open_as_it_lies(place, image_size)
        if packed is not None:
            for split in SPLITS:
                labels = getattr(packed, split).labels
                if len(labels) != source.counts[split]:
                    return None
                check_labels(labels, len(source.class_names), str(place))
    except DataError:
        return None
    return packed


def in_memory(source: Source, size: int, limit: int | None) -> Dataset:
    """Reads a source into memory, whatever its size.

    Args:
      source: Where the examples are.
      size: Height and width to bring the images to, in pixels.
      limit: How many examples of each split to read; None: all.

    Raises:
      DataError: An example can't be read, or a label is out of range.
    """
    splits = {}
    for split in SPLITS:
        count = source.counts[split]
        count = count if limit is None else min(limit, count)
        images = np.empty((count, size, size, 3), np.uint8)
        labels = np.empty(count, np.int32)
        done = 0
        for chunk, chunk_labels in _checked(source, split, size, limit):
            images[done : done + len(chunk)] = chunk
            labels[done : done + len(chunk)] = chunk_labels
            done += len(chunk)
        splits[split] = Examples(images[:done], labels[:done])
    return _named(source, splits["train"], splits["test"])


def _named(source: Source, train: Examples, test: Examples) -> Dataset:
    return Dataset(
        source.name,
        source.origin,
        source.class_names,
        train,
        test,
        source.notes,
    )


def _write(source: Source, size: int, folder: Path) -> None:
    for split in SPLITS:
        header = {
            "descr": "|u1",
            "fortran_order": False,
            "shape": (source.counts[split], size, size, 3),
        }
        labels = []
        # Plain writes: a full disk is an error here, and a bus error where
        # it is written through a memory map.
        with open(arrays.array_path(folder, split, "images"), "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for chunk, chunk_labels in _checked(source, split, size, None):
                file.write(np.ascontiguousarray(chunk).data)
                labels.append(chunk_labels)
        np.save(
            arrays.array_path(folder, split, "labels"),
            np.concatenate(labels).astype(np.int32),
        )
    # One a line, even where a name has line breaks.
    names = "".join(
        f"{name if name.isprintable() else repr(name)}\n"
        for name in source.class_names
    )
    (folder / arrays.CLASSES_FILE).write_text(names, encoding="utf-8")
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    manifest = {"version": _VERSION, "key": source.key, "sizes": sizes}
    (folder / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def _checked(
    source: Source, split: Split, size: int, limit: int | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    chunks: Chunks = source.read(split, size, limit)
    classes = len(source.class_names)
    for images, labels in chunks:
        check_labels(labels, classes, f"{source.origin}, {split}")
        yield images, labels


def check_labels(labels: np.ndarray, num_classes: int, where: str) -> None:
    """Raises DataError if a label is not from 0 to `num_classes` - 1."""
    wrong = labels[(labels < 0) | (labels >= num_classes)]
    if wrong.size:
        raise DataError(
            f"{where}: label {wrong.flat[0]} is out of range; with"
            f" {num_classes} classes, labels go from 0 to {num_classes - 1}."
        )


def _state(place: Path, source: Source) -> str:
    """Returns absent, damaged, outdated or good."""
    if not place.exists():
        return "absent"
    try:
        manifest = json.loads((place / _MANIFEST).read_text(encoding="utf-8"))
        sizes = manifest["sizes"]
        for name, size in sizes.items():
            if (place / name).stat().st_size != size:
                return "damaged"
        wanted = (_VERSION, source.key)
        if (manifest["version"], manifest["key"]) != wanted:
            return "outdated"
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        return "damaged"
    return "good"
