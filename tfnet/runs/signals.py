"""Signals: the first asks the loop to stop, the second ends the process."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopSignals:
    """Hears SIGINT and SIGTERM while it is entered, and remembers the first.

    Attributes:
      received: The number of the signal that asked to stop; None so far.
    """

    def __init__(self) -> None:
        """Hears nothing until it is entered."""
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        """Takes over the signals; only the main thread of a process can."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._hear)
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

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number
