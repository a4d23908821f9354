"""The progress of a run, as a person sees it.

On a terminal, a progress bar; when piped, in a notebook and in CI, plain
lines. Everything goes to standard output.
"""

import sys
from types import TracebackType
from typing import Any


class Screen:
    """Prints lines, and a progress bar below them where there is a terminal.

    Used as a context around the training, in which the bar is shown.
    """

    def __init__(self, total_steps: int = 0) -> None:
        """Prepares a bar that is full after `total_steps`."""
        self._progress: Any = None
        self._task: Any = None
        self._total = total_steps

    def __enter__(self) -> "Screen":
        """Shows the bar, on a terminal."""
        if sys.stdout is not None and sys.stdout.isatty():
            self._progress = _bar()
            self._task = self._progress.add_task(
                "", total=self._total, loss="", accuracy="", rate=""
            )
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Takes the bar away."""
        if self._progress is not None:
            self._progress.stop()

    def line(self, text: str) -> None:
        """Prints a line, above the bar if there is one."""
        if self._progress is not None:
            # Not rich's own print: it wraps, colours and reads markup.
            self._progress.console.out(text, highlight=False)
        else:
            print(text, flush=True)

    def update(
        self, step: int, *, loss: float, accuracy: float, rate: float
    ) -> None:
        """Moves the bar.

        Args:
          step: Steps done.
          loss: Mean loss of late.
          accuracy: Of late, in [0, 1].
          rate: Images per second.
        """
        if self._progress is not None:
            self._progress.update(
                self._task,
                completed=step,
                loss=f"loss {loss:.3f}",
                accuracy=f"accuracy {accuracy:.1%}",
                rate=f"{rate:,.0f} images/s",
            )


def _bar() -> Any:
    from rich import progress

    return progress.Progress(
        progress.MofNCompleteColumn(),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[loss]}"),
        progress.TextColumn("{task.fields[accuracy]}"),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
        refresh_per_second=4,
        transient=True,
    )
