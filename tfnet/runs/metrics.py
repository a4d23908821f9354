"""metrics.csv: a row for every window of steps and every evaluation."""

import contextlib
import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfnet import files
from tfnet.errors import ConfigError, reason_of, remedy_of

METRICS = (
    "epoch",
    "step",
    "split",
    "loss",
    "accuracy",
    "learning_rate",
    "images_per_second",
    "seconds",
)


_WHOLE_NUMBERS = ("epoch", "step")


class Metrics:
    """Adds rows to metrics.csv; what can't be written now waits.

    Attributes:
      failure: Why the last rows could not be written; None: they were.
    """

    def __init__(
        self, path: Path, position: Mapping[str, Any] | None = None
    ) -> None:
        """Begins the file, or goes on with it.

        Args:
          path: Where it is.
          position: What `position` gave where the run goes on; rows that came
            later are taken away. None: a new file.

        Raises:
          OSError: It can't be written.
        """
        self._path = path
        self.failure: OSError | None = None
        if position is None or not path.exists():
            header = csv_line(METRICS)
            files.write_text(path, header)
            self._size = len(header)
        else:
            self._size = _keep_whole_rows(path, position["bytes"])
        self._waiting = position["waiting"] if position else ""
        self.is_whole = position is None or self._size == position["bytes"]

    @property
    def position(self) -> dict[str, Any]:
        """How far the file has come; holds numbers and text."""
        return {"bytes": self._size, "waiting": self._waiting}

    def rows(self) -> list[dict[str, str]]:
        """Returns all rows so far, whether they are written or wait.

        Raises:
          OSError: The file can't be read.
        """
        text = files.read_bytes(self._path)[: self._size].decode()
        return list(csv.DictReader(io.StringIO(text + self._waiting)))

    def add(self, **metrics: Any) -> None:
        """Adds a row; what is not given stays empty."""
        self._waiting += csv_line([metrics.get(name, "") for name in METRICS])
        self.write()

    def write(self) -> None:
        """Writes the rows that wait; `failure` says whether that went well."""
        try:
            self._size = files.append(
                self._path, self._size, self._waiting.encode()
            )
        except OSError as error:
            self.failure = error
            return
        self._waiting = ""
        self.failure = None

    def flush(self) -> None:
        """Waits until the rows are on the disk.

        A file that was removed is told at the end, and holds up no checkpoint.

        Raises:
          OSError: They can't be.
        """
        with contextlib.suppress(FileNotFoundError):
            files.flush(self._path)


def _keep_whole_rows(path: Path, size: int) -> int:
    """Cuts a file to so many bytes or, if it is shorter, to whole rows.

    Returns:
      How many bytes are left.
    """
    header = csv_line(METRICS).encode()
    rows = files.read_bytes(path)[:size]
    whole = rows[: rows.rfind(b"\n") + 1]
    if whole.startswith(header):
        os.truncate(path, len(whole))
        return len(whole)
    # Without its header it is no table any more.
    files.write_text(path, header.decode())
    return len(header)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Reads metrics.csv.

    Returns:
      Its rows: numbers, None where a row has none. A last line without an end
      is left out: a run may be writing it.

    Raises:
      ConfigError: It can't be read, or is damaged; one line.
    """
    try:
        text = files.read_bytes(path).decode()
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read: {reason_of(error)}; {remedy_of(error)}."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is damaged: it is no text; bring back a good one."
        ) from error
    lines = text[: text.rfind("\n") + 1].splitlines()
    header = ",".join(METRICS)
    if lines[:1] != [header]:
        raise ConfigError(
            f"{path} is damaged: its first line must be {header}; put it back."
        )
    return [
        _numbers(line, f"{path}, line {number}")
        for number, line in enumerate(lines[1:], start=2)
        if line
    ]


def _numbers(line: str, where: str) -> dict[str, Any]:
    """Returns a row; no cell of one holds a comma or a quote."""
    cells = line.split(",")
    if len(cells) != len(METRICS):
        raise ConfigError(
            f"{where}, is damaged: it must have {len(METRICS)} cells, and has"
            f" {len(cells)}; mend or remove that line."
        )
    row: dict[str, Any] = {}
    for name, cell in zip(METRICS, cells, strict=True):
        if cell == "" or name == "split":
            row[name] = cell or None
            continue
        kind = int if name in _WHOLE_NUMBERS else float
        try:
            row[name] = kind(cell)
        except ValueError as error:
            raise ConfigError(
                f"{where}, is damaged: {name} ({cell}) must be a number; mend"
                " or remove that line."
            ) from error
    return row


def csv_line(values: Any) -> str:
    """Returns a line of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()
