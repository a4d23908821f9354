"""A profile of some steps, by TensorFlow's profiler.

Steps run in blocks, in one call each. A block ends before the first step of a
profile and after its last, so that no other step is in it.
"""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

from tfnet.runs.events import FOLDER

if TYPE_CHECKING:
    from tfnet.training import BlockResult


class Profiler:
    """Profiles the steps of a run from one to another, once.

    Attributes:
      missing: What could not be had, and why; empty: nothing.
    """

    def __init__(
        self,
        first: int,
        last: int,
        directory: Path,
        tell: Callable[[str], None],
    ) -> None:
        """Profiles nothing yet.

        Args:
          first: The first step of the run to profile, counted from 1.
          last: The last one.
          directory: The run directory.
          tell: Is given the line of what comes of it.
        """
        self.missing: list[str] = []
        self._done_before = first - 1
        self._last = last
        self._directory = directory
        self._folder = directory / FOLDER / "plugins" / "profile"
        self._tell = tell
        self._begun_after: int | None = None
        self._is_over = False

    def until_stop(self, step: int) -> int:
        """Returns how many steps may be in a block that follows on a step."""
        ends = [end for end in (self._done_before, self._last) if end > step]
        return ends[0] - step if ends else 2**31

    def watch(
        self, blocks: Generator["BlockResult"], step: int
    ) -> Generator["BlockResult"]:
        """Yields the blocks of an epoch; those to profile are profiled.

        Args:
          blocks: Trains on a block when it is asked for one.
          step: Steps of the run done.
        """
        while True:
            if self._done_before <= step < self._last:
                self._start(step)
            block = next(blocks, None)
            if block is None:
                return
            step += len(block.loss)
            if step >= self._last:
                self.close(step)
            yield block

    def close(self, step: int) -> None:
        """Ends the profile, if there is one, after a step of the run."""
        if self._begun_after is None or self._is_over:
            return
        import tensorflow as tf

        self._is_over = True
        steps = f"steps {self._begun_after + 1:,} to {step:,}"
        if not self._directory.is_dir():
            tf.profiler.experimental.stop(save=False)
            self._fail("the run directory was removed")
            return
        before = self._profiles()
        try:
            tf.profiler.experimental.stop()
        except tf.errors.OpError as error:
            self._fail(error.message)
            return
        # An empty file is no profile, whatever it says.
        if not self._profiles() - before:
            self._fail("it was not written as a whole")
            return
        self._tell(f"The profile of {steps} is in {self._folder}.")

    def _start(self, step: int) -> None:
        if self._begun_after is not None or self._is_over:
            return
        import tensorflow as tf

        try:
            tf.profiler.experimental.start(str(self._directory / FOLDER))
        except tf.errors.OpError as error:
            self._is_over = True
            self._fail(error.message)
            return
        self._begun_after = step

    def _fail(self, reason: str) -> None:
        self._tell(f"warning: there is no profile ({reason})")
        self.missing = [f"the profile ({reason})"]

    def _profiles(self) -> set[tuple[Path, int]]:
        """Returns what profiles there are, and when each was written."""
        return {
            (path, path.stat().st_mtime_ns)
            for path in self._folder.glob("*/*.xplane.pb")
            if path.stat().st_size
        }
