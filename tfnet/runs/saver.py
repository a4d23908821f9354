"""Saves checkpoints in the background, at most one at a time."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tfnet.errors import reason_of
from tfnet.runs import checkpoints
from tfnet.runs.checkpoints import Checkpoint

# A tenth of a core, where the other threads leave none idle.
_NICE = 10


class Saver:
    """Knows when a checkpoint is due, and writes it while training goes on.

    A checkpoint that can't be written is told and does not end the run.

    Attributes:
      folder: The directory of checkpoints.
      failure: Why the last checkpoint could not be written; None: it was.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        every_steps: int | None,
        every_seconds: float | None,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Writes nothing yet.

        Args:
          folder: The directory of checkpoints.
          keep: How many of the newest to keep.
          every_steps: Save at each multiple of this number of steps.
          every_seconds: Save so many seconds after the last time.
          tell: Is given the line of a failure.
          clock: Gives the time in seconds.
        """
        self.folder = folder
        self.failure: OSError | None = None
        self._keep = keep
        self._every_steps = every_steps
        self._every_seconds = every_seconds
        self._tell = tell
        self._clock = clock
        self._writer = ThreadPoolExecutor(1, initializer=_give_way)
        self._writing: Future[OSError | None] | None = None
        self._name = ""
        self._last_good: str | None = None
        self._last_time = clock()
        self._is_due = False

    def is_due(self, step: int) -> bool:
        """Says whether to save after this step of the run.

        A save that is due while the last one is still being written waits for
        a later step.
        """
        if self._every_steps and step % self._every_steps == 0:
            self._is_due = True
        if self._every_seconds is not None:
            waited = self._clock() - self._last_time
            self._is_due |= waited >= self._every_seconds
        if self._writing is not None and self._writing.done():
            self.wait()
        return self._is_due and self._writing is None

    def save(
        self,
        name: str,
        checkpoint: Checkpoint,
        *,
        best: str | None,
        before: Callable[[], None],
    ) -> None:
        """Begins to write a checkpoint, when the one before is written.

        Args:
          name: Its name.
          checkpoint: What to write; must not change any more.
          best: The name of the checkpoint to keep whatever its age.
          before: What else must be on the disk first.
        """
        self.wait()
        self._is_due = False
        self._last_time = self._clock()
        self._name = name
        self._writing = self._writer.submit(
            self._write, name, checkpoint, best, before
        )

    def wait(self) -> None:
        """Waits until nothing is being written; tells what went wrong."""
        if self._writing is None:
            return
        self.failure = self._writing.result()
        self._writing = None
        if self.failure is None:
            self._last_good = self._name
            return
        kept = f"the last good one is {self._last_good}"
        if self._last_good and not (self.folder / self._last_good).is_dir():
            self._last_good = None
        self._tell(
            f"warning: the checkpoint {self._name} can't be written"
            f" ({reason_of(self.failure)});"
            f" {kept if self._last_good else 'there is no other'}"
        )

    def close(self) -> None:
        """Waits, and ends the writing thread."""
        self.wait()
        self._writer.shutdown()

    def _write(
        self,
        name: str,
        checkpoint: Checkpoint,
        best: str | None,
        before: Callable[[], None],
    ) -> OSError | None:
        try:
            before()
            checkpoints.write(self.folder, name, checkpoint)
        except OSError as error:
            return error
        checkpoints.prune(self.folder, newest=name, keep=self._keep, best=best)
        return None


def _give_way() -> None:
    """Lets this thread work in the time that the training leaves."""
    # Elsewhere a thread has no priority of its own.
    if sys.platform == "linux":
        # Where that is not allowed, it takes its share of the cores.
        with contextlib.suppress(OSError):
            thread = os.PRIO_PROCESS, threading.get_native_id()
            os.setpriority(*thread, os.getpriority(*thread) + _NICE)
