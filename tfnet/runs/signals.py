"""Signals: the first asks to stop, the second ends the process at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from tfnet.errors import Interrupted


class StopSignals:
    """Hears SIGINT, SIGTERM and SIGUSR1 while it is entered.

    Outside of `finishing`, where nothing would be lost, SIGINT and SIGTERM
    raise `Interrupted` where they arrive. Inside, the first is remembered,
    and the second raises.

    Attributes:
      received: The number of the signal that asked to stop; None so far.
      save_asked: Whether SIGUSR1 has asked to save; who does, sets it back.
      hint: What goes on with the run, where something does: said at its end.
    """

    def __init__(self) -> None:
        """Hears nothing until it is entered."""
        self.received: int | None = None
        self.save_asked = False
        self.hint = ""
        self._is_finishing = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        """Takes over the signals; only the main thread of a process can."""
        if threading.current_thread() is threading.main_thread():
            for number, handler in (
                (signal.SIGINT, self._stop),
                (signal.SIGTERM, self._stop),
                (signal.SIGUSR1, self._save),
            ):
                self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Gives the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def finishing(self) -> Iterator[None]:
        """While this is entered, work is finished before a signal is heard."""
        self._is_finishing = True
        try:
            yield
        finally:
            self._is_finishing = False

    def _stop(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None
        self.received = self.received or number
        if again or not self._is_finishing:
            name = signal.Signals(number).name
            how = " at once" if again else ""
            raise Interrupted(
                f"{name} ended the run{how}{self.hint}.",
                signum=number,
            )

    def _save(self, number: int, frame: FrameType | None) -> None:
        self.save_asked = True
