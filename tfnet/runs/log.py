"""The numbers of a run as they come: to the screen and to metrics.csv.

Is given the numbers of every block of steps; knows when a line is due.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfnet.errors import RunError, counted
from tfnet.runs.metrics import Metrics
from tfnet.runs.screen import Screen

if TYPE_CHECKING:
    from tfnet.training import BlockResult


# The loss scale is halved at each: far below what any gradient needs.
_SKIPPED_IN_VAIN = 30


class NotFiniteError(RunError):
    """A loss or a weight is not finite.

    Attributes:
      step: The step of the run it was seen in, from 0.
    """

    def __init__(self, message: str, step: int) -> None:
        """Remembers the step."""
        super().__init__(message)
        self.step = step


class Log:
    """Adds up the numbers of blocks, and writes a line where one is due.

    Attributes:
      steps: Steps of the run done so far, over all epochs.
    """

    def __init__(
        self,
        screen: Screen,
        metrics: Metrics | None,
        *,
        log_every: int,
        also: Callable[..., None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Writes to `screen` and, unless it is None, to `metrics`.

        Args:
          screen: Where a person looks.
          metrics: Gets the rows.
          also: Is given every row, too, after `metrics` has it.
          log_every: How many steps of an epoch a line is about.
          clock: Gives the time in seconds.
        """
        self._screen = screen
        self._sinks = [] if metrics is None else [metrics.add]
        self._sinks += [] if also is None else [also]
        self._log_every = log_every
        self._clock = clock
        self._start = clock()
        self.steps = 0
        self._examples = 0
        self._train_seconds = 0.0
        self._last_loss: float | None = None
        self.begin_epoch()

    def state(self) -> dict[str, Any]:
        """Returns all that `restore` needs; numbers and None."""
        now = self._clock()
        return {
            "steps": self.steps,
            "examples": self._examples,
            "train_seconds": self._train_seconds,
            "last_loss": self._last_loss,
            "seconds": now - self._start,
            "epoch": self._epoch.state(now),
            "window": self._window.state(now),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from where `state` was taken."""
        now = self._clock()
        self.steps = state["steps"]
        self._examples = state["examples"]
        self._train_seconds = state["train_seconds"]
        self._last_loss = state["last_loss"]
        self._start = now - state["seconds"]
        self._epoch = _Sums.restored(state["epoch"], now)
        self._window = _Sums.restored(state["window"], now)
        self._last_block = now

    def begin_epoch(self) -> None:
        """Forgets the sums of the epoch before."""
        now = self._clock()
        self._epoch = _Sums(now)
        self._window = _Sums(now)
        self._last_block = now

    def block(self, epoch: int, block: "BlockResult") -> None:
        """Takes the numbers of a block that was trained on.

        Args:
          epoch: The number of the epoch, from 0.
          block: The numbers.

        Raises:
          NotFiniteError: A loss is not finite; the log is as it was.
        """
        self._check_finite(epoch, block)
        now = self._clock()
        self.steps += len(block.loss)
        self._examples += block.examples
        self._train_seconds += now - self._last_block
        self._last_block = now
        for sums in (self._epoch, self._window):
            sums.add(block)
        self._screen.update(
            self.steps,
            loss=self._window.loss,
            accuracy=self._window.accuracy,
            rate=self._window.rate(now),
        )
        if block.last_step % self._log_every == 0:
            # The seed's line: the mean loss of the last `log_every` steps.
            self._screen.line(
                f"[{epoch + 1}, {block.last_step:5d}]"
                f" loss: {self._window.loss:.3f}",
                may_wait=True,
            )
            self._write_window(epoch, now)

    def end_epoch(self, epoch: int, *, skipped_steps: int = 0) -> None:
        """Writes the rest of an epoch, and a line about all of it.

        Args:
          epoch: The number of the epoch, from 0.
          skipped_steps: Steps of the run so far that changed nothing.

        Raises:
          RunError: None of them has changed anything, and none will.
        """
        now = self._clock()
        if self._window.steps:
            self._write_window(epoch, now)
        if not self._epoch.steps:
            return
        skipped = ""
        if skipped_steps:
            skipped = f", {counted(skipped_steps, 'step')} skipped"
        self._screen.line(
            f"epoch {epoch + 1}: loss {self._epoch.loss:.3f}, accuracy"
            f" {self._epoch.accuracy:.1%}, {self._epoch.rate(now):,.0f}"
            f" images/s, {now - self._epoch.start:.1f} s{skipped}"
        )
        if skipped_steps == self.steps >= _SKIPPED_IN_VAIN:
            raise RunError(
                f"no gradient was finite in the first {self.steps:,} steps, so"
                " none of them changed a weight. A smaller --learning_rate or"
                " --precision=bfloat16 may help."
            )

    def evaluation(
        self, epoch: int, *, loss: float, accuracy: float, seconds: float
    ) -> None:
        """Writes the numbers on the test data.

        Args:
          epoch: The number of the epoch, from 0.
          loss: Mean over the test examples.
          accuracy: In [0, 1].
          seconds: How long it took.

        Raises:
          RunError: The loss is not finite.
        """
        if not math.isfinite(loss):
            raise RunError(
                f"the test loss is not finite after epoch {epoch + 1}. A"
                " smaller --learning_rate may help."
            )
        self._screen.line(
            f"epoch {epoch + 1}: test loss {loss:.3f}, test accuracy"
            f" {accuracy:.1%}, {seconds:.1f} s"
        )
        self._write(epoch, "test", loss=loss, accuracy=accuracy)

    def totals(self) -> dict[str, float]:
        """Returns what the record holds: steps and images per second.

        The rate counts the time of training, waiting for data included, and
        neither evaluation nor start-up.
        """
        rate = self._examples / max(self._train_seconds, 1e-9)
        return {"steps": self.steps, "images_per_second": round(rate, 1)}

    def _check_finite(self, epoch: int, block: "BlockResult") -> None:
        finite = np.isfinite(block.loss)
        before_first = block.loss[np.logical_and.accumulate(finite)]
        if before_first.size:
            self._last_loss = float(before_first[-1])
        if not finite.all():
            first = block.first_step + int(np.argmin(finite)) + 1
            before = (
                "there was no finite loss before"
                if self._last_loss is None
                else f"the last finite loss was {self._last_loss:.4g}"
            )
            raise NotFiniteError(
                f"the loss is not finite in epoch {epoch + 1}, step {first};"
                f" {before}. A smaller --learning_rate may help.",
                self.steps + int(np.argmin(finite)),
            )

    def _write_window(self, epoch: int, now: float) -> None:
        window = self._window
        self._write(
            epoch,
            "train",
            loss=window.loss,
            accuracy=window.accuracy,
            learning_rate=f"{window.learning_rate:.6g}",
            images_per_second=f"{window.rate(now):.1f}",
        )
        self._window = _Sums(now)

    def _write(
        self,
        epoch: int,
        split: str,
        *,
        loss: float,
        accuracy: float,
        **more: str,
    ) -> None:
        row = {
            "epoch": epoch + 1,
            "step": self.steps,
            "split": split,
            "loss": f"{loss:.6f}",
            "accuracy": f"{accuracy:.6f}",
            "seconds": f"{self._clock() - self._start:.3f}",
            **more,
        }
        for add in self._sinks:
            add(**row)


class _Sums:
    """Sums over some steps, the same however these came in blocks."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.steps = 0
        self.learning_rate = 0.0
        self._loss = 0.0
        self._correct = 0
        self._examples = 0

    def add(self, block: "BlockResult") -> None:
        self.steps += len(block.loss)
        self.learning_rate = float(block.rate[-1])
        # One after the other: a sum of sums would depend on the blocks.
        self._loss = float(np.cumsum([self._loss, *block.loss])[-1])
        self._correct += int(block.correct.sum())
        self._examples += block.examples

    def state(self, now: float) -> dict[str, Any]:
        return {**vars(self), "start": now - self.start}

    @classmethod
    def restored(cls, state: Mapping[str, Any], now: float) -> "_Sums":
        sums = cls(now)
        vars(sums).update(state, start=now - state["start"])
        return sums

    @property
    def loss(self) -> float:
        """Mean of the losses of the steps."""
        return self._loss / self.steps

    @property
    def accuracy(self) -> float:
        return self._correct / self._examples

    def rate(self, now: float) -> float:
        """Images per second since the start."""
        return self._examples / max(now - self.start, 1e-9)
