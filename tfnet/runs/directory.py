"""The run directory: settings, record, metrics, confusion, saved_model/.

Nothing that was there before is written over: a directory is made by the run
or was empty.
"""

import csv
import datetime
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfnet import files
from tfnet.errors import ConfigError, RunError

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


class RunDirectory:
    """Writes into the directory of one run.

    Attributes:
      path: The directory, absolute.
    """

    def __init__(self, path: Path) -> None:
        """Takes over a directory that exists and is empty."""
        self.path = path.absolute()
        self._write(self.path / "metrics.csv", _csv_line(METRICS))

    def write_config(self, flagfile: str) -> None:
        """Writes config.flags, whose text is `flagfile`."""
        self._write(self.path / "config.flags", flagfile)

    def write_record(self, record: dict[str, Any]) -> None:
        """Writes run.json."""
        text = json.dumps(record, indent=2, ensure_ascii=False)
        self._write(self.path / "run.json", text + "\n")

    def write_confusion(
        self, class_names: Sequence[str], confusion: np.ndarray
    ) -> None:
        """Writes confusion.csv: a row for each true class, a column a guess.

        Args:
          class_names: The name of each class.
          confusion: Counts: integers [classes, classes].
        """
        lines = [_csv_line(["true class", *class_names])]
        for name, counts in zip(class_names, confusion, strict=True):
            lines.append(_csv_line([name, *counts.tolist()]))
        self._write(self.path / "confusion.csv", "".join(lines))

    def log(self, **metrics: Any) -> None:
        """Adds a line to metrics.csv; what is not given stays empty."""
        line = _csv_line([metrics.get(name, "") for name in METRICS])
        path = self.path / "metrics.csv"
        try:
            with open(path, "a", encoding="utf-8", newline="") as file:
                file.write(line)
        except OSError as error:
            raise write_failure(error, path) from error

    def _write(self, path: Path, text: str) -> None:
        try:
            files.write_text(path, text)
        except OSError as error:
            raise write_failure(error, path) from error


def write_failure(error: OSError, path: Path) -> RunError:
    """Returns the error for a write into a run directory that failed."""
    return RunError(
        f"{path} can't be written: {error.strerror or error}; make room or"
        " name another place with --run_dir."
    )


def check_run_dir(run_dir: str | None) -> None:
    """Finds out early whether a run directory can be made.

    Args:
      run_dir: The directory that was asked for; None: one below runs/.

    Raises:
      ConfigError: It holds something, or can't be made or written.
    """
    path = Path("runs" if run_dir is None else run_dir).expanduser()
    if run_dir is not None and _holds_something(path):
        what = "a run" if (path / "run.json").exists() else "files"
        raise ConfigError(
            f"--run_dir ({run_dir}) holds {what} already, and nothing is"
            " written over; name a directory that is new or empty."
        )
    parent = path
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"--run_dir ({path}) can't be made: {parent} is no directory that"
            " can be written; name another one."
        )


def create_run_directory(
    run_dir: str | None, name: str, now: datetime.datetime
) -> RunDirectory:
    """Makes the run directory.

    Args:
      run_dir: The directory that was asked for; None: runs/<name>-<date>-
        <time>, with a number behind it where that exists.
      name: Data set and model.
      now: The local time.

    Raises:
      ConfigError: It exists and is not empty, or can't be made or written.
    """
    if run_dir is not None:
        path = Path(run_dir).expanduser()
        _make(path, exist_ok=True)
        check_run_dir(run_dir)
    else:
        path = Path("runs", f"{name}-{now:%Y%m%d-%H%M%S}")
        number = 1
        while not _make(path, exist_ok=False):
            number += 1
            path = Path("runs", f"{name}-{now:%Y%m%d-%H%M%S}-{number}")
    try:
        return RunDirectory(path)
    except RunError as error:
        raise ConfigError(str(error)) from error


def _make(path: Path, *, exist_ok: bool) -> bool:
    """Makes a directory; returns False if it is there and must not be."""
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        if isinstance(error, FileExistsError) and not exist_ok:
            return False
        raise ConfigError(
            f"--run_dir ({path}) can't be made: {error.strerror}; name"
            " another one."
        ) from error
    return True


def _holds_something(path: Path) -> bool:
    try:
        return path.is_dir() and any(path.iterdir())
    except OSError as error:
        raise ConfigError(
            f"--run_dir ({path}) can't be read: {error.strerror}; name"
            " another one."
        ) from error


def _csv_line(values: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()
