"""The progress of a run, as a person sees it.

On a terminal a progress bar, in a notebook one that is a line of text; when
piped, and in CI, plain lines. Everything goes to standard output.
"""

import io
import math
import sys
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Protocol

_NOTEBOOK_SECONDS = 0.25
_TERMINAL_SECONDS = 0.25
# Characters; of them for the bar itself.
_NOTEBOOK_WIDTH, _NOTEBOOK_BAR = 100, 24
_ECHO_WIDTH = 2


class Screen:
    """Prints lines, and a progress bar where a person can see it move.

    Used as a context around the training, in which the bar moves.
    """

    def __init__(self, total_steps: int = 0) -> None:
        """Prepares a bar that is full after `total_steps`."""
        self._bar: _Bar | None = None
        self._total = total_steps

    def __enter__(self) -> "Screen":
        """Shows the bar, on a terminal and in a notebook."""
        if sys.stdout is not None and sys.stdout.isatty():
            self._bar = _TerminalBar(self._total)
        elif _goes_to_a_notebook(sys.stdout):
            self._bar = _NotebookBar(self._total)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Takes the bar away; in a notebook it stays, as a line of text."""
        if self._bar is not None:
            self._bar.stop()

    def line(self, text: str, *, may_wait: bool = False) -> None:
        """Prints a line, above the bar of a terminal.

        Args:
          text: The line.
          may_wait: Whether it may come with the next one or the next move of
            the bar, where a terminal got one a moment ago.
        """
        if self._bar is not None:
            self._bar.line(text, may_wait=may_wait)
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
        if self._bar is not None:
            self._bar.update(
                completed=step,
                loss=f"loss {loss:.3f}",
                accuracy=f"accuracy {accuracy:.1%}",
                rate=f"{rate:,.0f} images/s",
            )


class _Bar(Protocol):
    def line(self, text: str, *, may_wait: bool) -> None: ...

    def update(self, **values: Any) -> None: ...

    def stop(self) -> None: ...


class _TerminalBar:
    """Below the lines; is gone at the end."""

    def __init__(
        self, total: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._progress, self._task = _progress(
            total, refresh_per_second=4, transient=True
        )
        self._clock = clock
        self._last = -math.inf
        self._waiting: list[str] = []
        self._progress.start()

    def line(self, text: str, *, may_wait: bool) -> None:
        self._waiting.append(text)
        if not may_wait or self._is_time():
            self._print()

    def update(self, **values: Any) -> None:
        self._progress.update(self._task, **values)
        if self._waiting and self._is_time():
            self._print()

    def stop(self) -> None:
        self._print()
        self._progress.stop()

    def _is_time(self) -> bool:
        # rich takes 2 ms for a line: the bar is drawn anew below it.
        return self._clock() - self._last >= _TERMINAL_SECONDS

    def _print(self) -> None:
        if self._waiting:
            # Not rich's own print: it wraps, colours and reads markup.
            text = "\n".join(self._waiting)
            self._progress.console.out(text, highlight=False)
            self._waiting.clear()
            self._last = self._clock()


class _NotebookBar:
    """A line of text that the notebook shows, and shows anew.

    Not what rich has for notebooks: that needs widgets, which move nowhere but
    in a running notebook, and leave nothing in the file.
    """

    def __init__(
        self, total: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from IPython import display

        self._progress, self._task = _progress(
            total, width=_NOTEBOOK_BAR, auto_refresh=False
        )
        self._clock = clock
        self._last = clock()
        self._handle = display.display(
            {"text/plain": self._text()}, raw=True, display_id=True
        )

    def line(self, text: str, *, may_wait: bool) -> None:
        print(text, flush=True)

    def update(self, **values: Any) -> None:
        self._progress.update(self._task, **values)
        now = self._clock()
        if now - self._last >= _NOTEBOOK_SECONDS:
            self._last = now
            self._show()

    def stop(self) -> None:
        self._show()

    def _show(self) -> None:
        self._handle.update({"text/plain": self._text()}, raw=True)

    def _text(self) -> str:
        from rich.console import Console

        console = Console(
            file=io.StringIO(),
            width=_NOTEBOOK_WIDTH,
            color_system=None,
            force_jupyter=False,
            force_terminal=False,
        )
        with console.capture() as capture:
            console.print(self._progress.get_renderable())
        return capture.get().rstrip()


def _goes_to_a_notebook(stream: Any) -> bool:
    """Says whether a stream is shown below the cell that writes to it."""
    # Where it is, its module was imported.
    module = sys.modules.get("ipykernel.iostream")
    return module is not None and isinstance(stream, module.OutStream)


class _Narrow:
    """Leaves room at the right for a ^C, which the terminal adds.

    What does not fit goes to the next line, and the bar would stay.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        width = max(1, options.max_width - _ECHO_WIDTH)
        return console.render(self._inner, options.update_width(width))


def _progress(
    total: int, *, width: int = 40, **options: Any
) -> tuple[Any, Any]:
    """Returns what both bars are drawn by, and its only task."""
    from rich import progress

    class Narrow(progress.Progress):
        def get_renderables(self) -> Iterable[Any]:
            yield from map(_Narrow, super().get_renderables())

    made = Narrow(
        progress.MofNCompleteColumn(),
        progress.TextColumn("steps"),
        progress.BarColumn(width),
        progress.TextColumn("{task.fields[loss]}"),
        progress.TextColumn("{task.fields[accuracy]}"),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
        **options,
    )
    return made, made.add_task("", total=total, loss="", accuracy="", rate="")
