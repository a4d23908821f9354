"""A CSV file that names images: path,label or path,label,split."""

import csv
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tfnet.data import holdout, source
from tfnet.data.image_list import Files, hold_out, open_files
from tfnet.data.names import natural_order, short_name
from tfnet.errors import DataError

_COLUMNS = ["path", "label", "split"]


class _Row(NamedTuple):
    """A row of the table: its number in the file, and what it says."""

    number: int
    path: str
    label: str
    split: str


def open_table(
    table: Path, *, test_fraction: float | None = None
) -> source.Source:
    """Reads a CSV file and looks for the images that it names.

    A first row `path,label` or `path,label,split` is a header, unless there
    is a file of the name `path`. Paths count from the folder of the CSV file.
    Blanks around labels are dropped. The classes are the labels, in the order
    that a person would sort them (2 before 10).

    Args:
      table: The CSV file, in UTF-8: fields with commas, quotes or line breaks
        stand in double quotes.
      test_fraction: The part of each class to keep for testing where there is
        no third column; see `holdout.held_out`.

    Raises:
      DataError: It can't be read, a row is not as it must be (the text has
        its number), there are fewer than two classes, or nothing to test on.
    """
    where = f"--dataset ({table})"
    rows = list(_rows(table, where))
    _check_once(rows, where)
    names = sorted({row.label for row in rows}, key=natural_order)
    if len(names) < 2:
        found = f"only {names[0]}" if names else "no row"
        raise DataError(
            f"{where} must have two labels at least to tell apart; it has"
            f" {found}."
        )
    labels = {name: label for label, name in enumerate(names)}
    files: dict[source.Split, Files] = {"train": [], "test": []}
    notes: tuple[str, ...] = ()
    if rows[0].split:
        holdout.refuse_fraction(f"{table} (with a third column)", test_fraction)
        for row in rows:
            part: source.Split = "test" if row.split == "test" else "train"
            files[part].append((row.path, labels[row.label]))
    else:
        listed = [(row.path, labels[row.label]) for row in rows]
        files = hold_out(listed, test_fraction, table.parent)
        notes = (holdout.note("in the table", test_fraction),)
    for part in source.SPLITS:
        if not files[part]:
            raise DataError(
                f"{where} leaves no image to {part} on; give some in a third"
                f" column (train or test), {holdout.TEST_EVERY} images of some"
                " label, or two and --test_fraction=0.2."
            )
    return open_files(
        files,
        root=table.parent,
        name=short_name(table, "images"),
        origin=str(table.absolute()),
        class_names=names,
        notes=notes,
        variant=holdout.variant(test_fraction),
    )


def _rows(table: Path, where: str) -> Iterator[_Row]:
    """Yields the rows, each of them checked by itself."""
    width = 0
    for number, fields in _fields(table, where):
        at = f"{where}, row {number}:"
        if not width:
            width = len(fields)
            if width not in (2, 3):
                raise DataError(
                    f"{at} must be path,label or path,label,split, with commas"
                    f" between; it has {width} field{'s' * (width != 1)}."
                )
            if _is_header(table, fields):
                continue
        if len(fields) != width:
            raise DataError(
                f"{at} must have {width} fields, as the first row has; it has"
                f" {len(fields)}. A comma in a name needs double quotes"
                ' around it ("a,b.png").'
            )
        yield _row(table, number, at, fields)


def _fields(table: Path, where: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the fields of each row that is not empty."""
    try:
        # Names that are no UTF-8 are still names of files.
        with open(
            table, encoding="utf-8-sig", errors="surrogateescape", newline=""
        ) as file:
            for number, fields in enumerate(csv.reader(file, strict=True), 1):
                if "\0" in "".join(fields):
                    raise DataError(
                        f"{where} must be text in UTF-8; row {number} is"
                        " something else (UTF-16?)."
                    )
                if fields:
                    yield number, fields
    except OSError as error:
        raise DataError(f"{where} can't be read: {error.strerror}.") from error
    except csv.Error as error:
        raise DataError(
            f"{where} is no CSV file (comma between fields, double quotes"
            f" around those with a comma, quote or line break): {error}."
        ) from error


def _is_header(table: Path, fields: list[str]) -> bool:
    words = [field.strip().lower() for field in fields]
    is_words = words == _COLUMNS[: len(fields)]
    return is_words and not os.path.isfile(table.parent / fields[0])


def _row(table: Path, number: int, at: str, fields: list[str]) -> _Row:
    path, label, *rest = fields
    label = label.strip()
    if not label:
        raise DataError(f"{at} must have a label; it is empty.")
    part = rest[0].strip().lower() if rest else ""
    if rest and part not in source.SPLITS:
        raise DataError(
            f"{at} must say train or test in its third field; it says"
            f" {rest[0]!r}."
        )
    # Not joined for an empty path, which would be the folder.
    place = os.path.normpath(table.parent / path) if path else ""
    try:
        mode = os.stat(place).st_mode
    except OSError as error:
        hint = ""
        if number == 1:
            hint = " If it is a header, it must be path,label[,split]."
        raise DataError(
            f"{at} {path!r} can't be read: {error.strerror}; paths count from"
            f" the folder of the CSV file.{hint}"
        ) from error
    if not stat.S_ISREG(mode):
        raise DataError(f"{at} {path!r} must be a file; it is something else.")
    return _Row(number, place, label, part)


def _check_once(rows: list[_Row], where: str) -> None:
    """Raises DataError if a path stands in two rows."""
    seen: dict[str, _Row] = {}
    for row in rows:
        first = seen.setdefault(row.path, row)
        if first is not row:
            labels = "the same label"
            if first.label != row.label:
                labels = f"the labels {first.label!r} and {row.label!r}"
            raise DataError(
                f"{where}, row {row.number}: {row.path} stands in row"
                f" {first.number} already, with {labels}; name each image once."
            )
