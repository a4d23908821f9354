"""The run directory: settings, record, metrics, confusion, saved_model/.

Nothing that was there before is written over: a directory is made by the run,
or was empty, or holds a run to go on with.
"""

import contextlib
import datetime
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfnet import files
from tfnet.errors import ConfigError, RunError, reason_of, remedy_of
from tfnet.runs.events import FOLDER
from tfnet.runs.lock import LOCK_FILE, RunLock
from tfnet.runs.metrics import Metrics, csv_line

CHECKPOINTS = "checkpoints"
METRICS_FILE = "metrics.csv"
RECORD = "run.json"
_OURS = (RECORD, METRICS_FILE, "config.flags", CHECKPOINTS)


class RunDirectory:
    """Writes into the directory of one run, which this process has locked.

    Attributes:
      path: The directory, absolute.
      checkpoints: Where its checkpoints are.
    """

    def __init__(self, path: Path, *, is_new: bool) -> None:
        """Takes a directory that exists.

        Args:
          path: The directory.
          is_new: Whether it was made for this run, and goes with it where
            nothing was written.

        Raises:
          ConfigError: Another process has it.
        """
        self.path = path.absolute()
        self.checkpoints = self.path / CHECKPOINTS
        self._lock = RunLock(self.path)
        self._is_new = is_new

    def release(self) -> None:
        """Gives it to the next process."""
        self._lock.release()
        if self._is_new:
            # Only an empty one can be removed.
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def write_config(self, flagfile: str) -> None:
        """Writes config.flags, whose text is `flagfile`."""
        self._write(self.path / "config.flags", flagfile)

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Writes run.json."""
        text = json.dumps(record, indent=2, ensure_ascii=False)
        self._write(self.path / RECORD, text + "\n")

    def read_record(self) -> dict[str, Any]:
        """Reads run.json.

        Raises:
          OSError: It can't be read.
          ValueError: It does not hold a record.
        """
        return read_record(self.path)

    def has_metrics(self) -> bool:
        """Says whether metrics.csv holds a row."""
        path = self.path / METRICS_FILE
        return path.is_file() and files.read_bytes(path).count(b"\n") > 1

    def write_confusion(
        self, class_names: Sequence[str], confusion: np.ndarray
    ) -> None:
        """Writes confusion.csv: a row for each true class, a column a guess.

        Args:
          class_names: The name of each class.
          confusion: Counts: integers [classes, classes].
        """
        lines = [csv_line(["true class", *class_names])]
        for name, counts in zip(class_names, confusion, strict=True):
            lines.append(csv_line([name, *counts.tolist()]))
        self._write(self.path / "confusion.csv", "".join(lines))

    def open_metrics(self, position: Mapping[str, Any] | None) -> Metrics:
        """Begins metrics.csv, or goes on with it from a position."""
        path = self.path / METRICS_FILE
        try:
            return Metrics(path, position)
        except OSError as error:
            raise WriteError(error, path) from error

    def _write(self, path: Path, text: str) -> None:
        try:
            files.write_text(path, text)
        except OSError as error:
            raise WriteError(error, path) from error


def read_record(path: Path) -> dict[str, Any]:
    """Reads run.json of a run directory.

    Raises:
      OSError: It can't be read.
      ValueError: It does not hold a record.
    """
    record = json.loads(files.read_bytes(path / RECORD))
    if not isinstance(record, dict):
        raise ValueError("not a record")
    return record


class WriteError(RunError):
    """A write into a run directory failed.

    Attributes:
      reason: Why, in the words of the system.
    """

    def __init__(self, error: OSError, path: Path) -> None:
        """Is about `path`."""
        self.reason = reason_of(error)
        super().__init__(
            f"{path} can't be written: {self.reason}; {remedy_of(error)}, or"
            " name another place with --run_dir."
        )


def take_run_directory(run_dir: str, *, resume: str) -> RunDirectory:
    """Makes or opens the run directory that was asked for, and locks it.

    Args:
      run_dir: Where it is.
      resume: `auto`: it may hold a run; `must`: it must; `never`: it may not.

    Raises:
      ConfigError: It holds files that are no run's, or a run and may not, or
        none and must; it can't be made or written; another process has it.
    """
    path = Path(run_dir).expanduser()
    try:
        is_there = path.is_dir()
    except OSError as error:
        raise ConfigError(
            f"--run_dir ({run_dir}) can't be made: {error.strerror}; name"
            " another one."
        ) from error
    if path.is_symlink() and not path.exists():
        raise ConfigError(
            f"--run_dir ({run_dir}) is a link to nothing; mend the link or name"
            " another directory."
        )
    if resume == "must" and not (is_there and holds_a_run(path)):
        raise ConfigError(
            f"--resume (must) needs a run in --run_dir ({run_dir}), which has"
            " none; use --resume=auto to begin one."
        )
    if is_there:
        _check_contents(path, run_dir, resume)
    _make(path, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(
            f"--run_dir ({run_dir}) can't be written; name another one."
        )
    return RunDirectory(path, is_new=not is_there)


def make_run_directory(name: str, now: datetime.datetime) -> RunDirectory:
    """Makes runs/<name>-<date>-<time>, with a number behind it if need be.

    Args:
      name: Data set and model.
      now: The local time.

    Raises:
      ConfigError: It can't be made or written.
    """
    path = Path("runs", f"{name}-{now:%Y%m%d-%H%M%S}")
    number = 1
    while not _make(path, exist_ok=False):
        number += 1
        path = Path("runs", f"{name}-{now:%Y%m%d-%H%M%S}-{number}")
    return RunDirectory(path, is_new=True)


def check_default_place() -> None:
    """Finds out early whether a directory below runs/ can be made.

    Raises:
      ConfigError: It can't.
    """
    parent = Path("runs") if Path("runs").exists() else Path()
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"--run_dir (below runs) can't be made: {parent.absolute()} is no"
            " directory that can be written; name another one."
        )


def holds_a_run(path: Path) -> bool:
    """Says whether a run has begun in a directory that exists."""
    return any((path / name).exists() for name in _OURS)


def _check_contents(path: Path, run_dir: str, resume: str) -> None:
    try:
        names = {one.name for one in path.iterdir()}
    except OSError as error:
        raise ConfigError(
            f"--run_dir ({run_dir}) can't be read: {error.strerror}; name"
            " another one."
        ) from error
    if holds_a_run(path):
        if resume == "never":
            raise ConfigError(
                f"--run_dir ({run_dir}) holds a run already, and --resume is"
                " never; name a directory that is new or empty."
            )
        _check_kinds(path, run_dir)
    # What a process leaves that was killed at once.
    elif any(name != LOCK_FILE and not files.is_aside(name) for name in names):
        raise ConfigError(
            f"--run_dir ({run_dir}) holds files already, and nothing is"
            " written over; name a directory that is new or empty."
        )


def _check_kinds(path: Path, run_dir: str) -> None:
    """Refuses a run whose files are not files any more."""
    for name in (RECORD, METRICS_FILE, "config.flags", "confusion.csv"):
        if (path / name).exists() and not (path / name).is_file():
            raise ConfigError(
                f"--run_dir ({run_dir}) holds {name} that is no file; remove it"
                " or name another directory."
            )
    for name in (CHECKPOINTS, FOLDER):
        if (path / name).exists() and not (path / name).is_dir():
            raise ConfigError(
                f"--run_dir ({run_dir}) holds {name} that is no directory;"
                " remove it or name another directory."
            )


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
