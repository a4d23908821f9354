"""What TensorBoard reads: events, in files of their own.

TensorBoard takes each directory for a run. Here there are three, as it is
usual: `train` and `test` hold the rows of metrics.csv, under the same tags,
so that both curves are in one chart; the directory above holds what is about
the run as a whole.

Each process writes files of its own behind those of the processes before.
Where a run goes on, or back, a mark says from which step on all that stands
before it counts no more. The last row that counts is written again behind
the mark: TensorBoard's fast reader goes by the steps alone.

Numbers and pictures have the older of two forms (that of PyTorch's writer),
since only of these each of TensorBoard's readers takes away what counts no
more. Imports of TensorBoard its formats, which need no TensorFlow.
"""

import contextlib
import io
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfnet import files
from tfnet.errors import ConfigError

FOLDER = "tensorboard"
# The directory above the two splits.
RUN = "."
_SPLITS = ("train", "test")
_NUMBERS = ("loss", "accuracy", "learning_rate", "images_per_second")
_PREFIX = "events.out.tfevents."


def check_package() -> None:
    """Finds out early whether TensorBoard is there.

    Raises:
      ConfigError: It isn't.
    """
    try:
        import tensorboard.compat.proto.event_pb2
        import tensorboard.summary.writer.record_writer  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "--tensorboard (true) needs the package tensorboard, which can't"
            f" be imported ({error}); pip install '.[tensorboard]'."
        ) from error


class Events:
    """Writes events; what can't be written now waits.

    Attributes:
      is_new: Whether no process before has written here.
    """

    def __init__(
        self, folder: Path, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Writes nothing yet.

        Args:
          folder: Where to; it is made, but not its parent.
          clock: Gives the seconds since 1970.
        """
        self._clock = clock
        self._folder = folder
        self.is_new = not self._has_files(RUN)
        self._files = {
            name: _EventFile(folder, name, clock) for name in (RUN, *_SPLITS)
        }
        self._added: dict[str, int] = {}
        self._written: dict[str, int] = {}

    @property
    def position(self) -> dict[str, int]:
        """The step of the last row that is written, by its split."""
        return dict(self._written)

    @property
    def failure(self) -> OSError | None:
        """Why something could not be written; None: all is written."""
        found = [file.failure for file in self._files.values()]
        return next((one for one in found if one is not None), None)

    def go_on(
        self,
        step: int,
        position: Mapping[str, int],
        rows: Sequence[Mapping[str, str]],
    ) -> set[str]:
        """Lets only that count which was written up to a position.

        Rows that are missing, since they could not be written or the events
        were turned off, are written now.

        Args:
          step: Steps of the run done.
          position: What `position` was there; empty: nothing is written.
          rows: All rows of metrics.csv up to there.

        Returns:
          The splits that begin anew.
        """
        first = {
            split: position.get(split, 0) if self._has_files(split) else 0
            for split in _SPLITS
        }
        self._written = {}
        for place, begin in {RUN: step, **first}.items():
            self._start(place, begin)
        # TensorBoard shows the time between events, too.
        seconds = [_number(row.get("seconds")) or 0.0 for row in rows]
        started = self._clock() - max(seconds, default=0.0)
        for row, after in zip(rows, seconds, strict=True):
            split = row.get("split")
            if split in first and (_number(row["step"]) or -1) >= first[split]:
                self._add_row(row, started + after)
        self.write()
        return {split for split in _SPLITS if not first[split]}

    def add(self, **row: Any) -> None:
        """Adds a row of metrics.csv."""
        self._add_row(row, self._clock())
        self.write()

    def add_picture(self, place: str, name: str, step: int, png: bytes) -> None:
        """Adds a picture.

        Args:
          place: `train`, `test` or RUN.
          name: Its tag.
          step: The step of the run that it belongs to.
          png: The PNG file.
        """
        from tensorboard.compat.proto.summary_pb2 import Summary

        image = Summary.Image(
            width=int.from_bytes(png[16:20], "big"),
            height=int.from_bytes(png[20:24], "big"),
            colorspace=4,
            encoded_image_string=png,
        )
        summary = Summary(value=[Summary.Value(tag=name, image=image)])
        self._add(place, step=step, summary=summary)
        self.write()

    def add_text(self, name: str, step: int, markdown: str) -> None:
        """Adds a text about the run."""
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._add(RUN, step=step, summary=text_pb(name, markdown))
        self.write()

    def add_settings(self, name: str, settings: Mapping[str, Any]) -> None:
        """Adds what the HPARAMS page compares runs by.

        Args:
          name: What the run is called there.
          settings: Numbers, texts and truth values by name.
        """
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        summary = hparams_pb(dict(settings), trial_id=name)
        self._add(RUN, step=0, summary=summary)
        self.write()

    def add_graph(self, graph: bytes) -> None:
        """Adds a graph: a serialised GraphDef."""
        self._add(RUN, step=0, graph_def=graph)
        self.write()

    def write(self) -> None:
        """Writes what waits; `failure` says whether that went well."""
        for name, file in self._files.items():
            file.write()
            if file.failure is None and name in self._added:
                self._written[name] = self._added[name]

    def flush(self) -> None:
        """Waits until what is written is on the disk.

        Raises:
          OSError: It can't be.
        """
        for file in self._files.values():
            file.flush()

    def _has_files(self, place: str) -> bool:
        return bool(_names(self._folder / place))

    def _start(self, place: str, step: int) -> None:
        from tensorboard.compat.proto import event_pb2

        self._added.pop(place, None)
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._add(place, step=step, session_log=start)

    def _add_row(self, row: Mapping[str, Any], wall_time: float) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        split, step = row["split"], int(row["step"])
        numbers = {name: _number(row.get(name)) for name in _NUMBERS}
        summary = Summary(
            value=[
                Summary.Value(tag=name, simple_value=number)
                for name, number in numbers.items()
                if number is not None
            ]
        )
        self._add(split, step=step, summary=summary, wall_time=wall_time)
        self._added[split] = step

    def _add(self, place: str, **event: Any) -> None:
        self._files[place].add(**event)


class _EventFile:
    """The file of events that this process writes in one directory."""

    def __init__(
        self, folder: Path, name: str, clock: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._name = name
        self._clock = clock
        self._path: Path | None = None
        self._size = 0
        self._waiting = b""
        self.failure: OSError | None = None
        self.add(file_version="brain.Event:2")

    def add(self, **event: Any) -> None:
        """Adds an event, to be written."""
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        event.setdefault("wall_time", self._clock())
        record = io.BytesIO()
        RecordWriter(record).write(event_pb2.Event(**event).SerializeToString())
        self._waiting += record.getvalue()

    def write(self) -> None:
        """Writes what waits."""
        try:
            if self._path is None:
                self._path = self._make()
            self._size = files.append(self._path, self._size, self._waiting)
        except OSError as error:
            self.failure = error
            return
        self._waiting = b""
        self.failure = None

    def flush(self) -> None:
        """Waits until the file is on the disk, unless it was removed."""
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                files.flush(self._path)

    def _make(self) -> Path:
        """Makes a file that is read after all that are there."""
        self._folder.mkdir(exist_ok=True)
        place = self._folder / self._name
        place.mkdir(exist_ok=True)
        # Files are read in the order of their names, which begin with a
        # second; two processes may begin in the same one.
        newest = max((_second(name) for name in _names(place)), default=0)
        second = max(int(self._clock()), newest + 1)
        path = place / f"{_PREFIX}{second:010d}.tfnet"
        path.touch(exist_ok=False)
        return path


def _names(folder: Path) -> list[str]:
    """Returns the names of the files of events in a directory."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        # Not there yet, or of no use: writing will tell.
        return []
    return [name for name in names if name.startswith(_PREFIX)]


def _second(name: str) -> int:
    digits = name.removeprefix(_PREFIX).partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


def _number(text: str | None) -> float | None:
    """Returns what a row holds; None: nothing, or what is no number."""
    try:
        return float(text or "")
    except ValueError:
        return None
