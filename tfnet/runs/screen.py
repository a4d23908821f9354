"""What a person sees: the first lines, the progress, the last lines.

On a terminal, a progress bar; when piped, in a notebook and in CI, plain
lines. Everything goes to standard output.
"""

import sys
import textwrap
from collections.abc import Sequence
from types import TracebackType
from typing import Any

_LABEL_WIDTH = 12


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
        if sys.stdout.isatty():
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


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """Returns labelled lines, such as the first ones of a run."""
    return "\n".join(
        textwrap.fill(
            text,
            100,
            initial_indent=label.ljust(_LABEL_WIDTH),
            subsequent_indent=" " * _LABEL_WIDTH,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for label, text in rows
    )


def class_lines(
    class_names: Sequence[str], accuracies: Sequence[float | None]
) -> list[str]:
    """Returns a line for each class with its accuracy."""
    width = max(len(name) for name in class_names)
    return [
        f"  {name.ljust(width)}  "
        + ("no test example" if accuracy is None else f"{accuracy:6.1%}")
        for name, accuracy in zip(class_names, accuracies, strict=True)
    ]
