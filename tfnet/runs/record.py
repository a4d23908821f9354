"""run.json: what a run was, what it reached, and how it ended."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from tfnet.errors import Error
from tfnet.runs.directory import RunDirectory


@contextlib.contextmanager
def recorded(
    record: dict[str, Any],
    directory: RunDirectory | None,
    *,
    started: float,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Writes the record at the start of the block, and at its end.

    While the block runs, `exit_reason` is `running`: what is found after the
    process was killed. At the end it is `finished`, or says what ended it.

    Args:
      record: Is written as it is at each of these moments.
      directory: Where to; None: nowhere.
      started: When the run began, by `clock`.
      clock: Gives the time in seconds.
    """
    record["exit_reason"] = "running"
    if directory is not None:
        directory.write_record(record)
    try:
        yield
        record["exit_reason"] = "finished"
    except BaseException as error:
        record["exit_reason"] = _reason(error)
        record["seconds"] = round(clock() - started, 3)
        if directory is not None:
            # The first failure is the one to report; where the disk is full,
            # the record keeps saying `running`.
            with contextlib.suppress(Error):
                directory.write_record(record)
        raise
    record["seconds"] = round(clock() - started, 3)
    if directory is not None:
        directory.write_record(record)


def _reason(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, Error | KeyboardInterrupt) and text:
        return text
    return f"{type(error).__name__}: {text}".rstrip(": ")
