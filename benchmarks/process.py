"""One side of a comparison: a process, what it prints, and what it needs."""

import dataclasses
import errno
import json
import os
import pty
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

_SAMPLE_SECONDS = 0.1


class SideError(Exception):
    """A process failed; the text has its command and its last lines."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """Memory of a process and those below it, in bytes.

    Attributes:
      resident: What each has, added up (RSS).
      proportional: What several share counts once (PSS).
    """

    resident: int = 0
    proportional: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a process that ended well has shown.

    Attributes:
      seconds: From its start to its end.
      lines: Each line of its standard output, and when it came, in seconds
        after the start.
      peak: The most memory that it and its children had, each kind at a
        moment of its own; zeros: not measured.
    """

    seconds: float
    lines: tuple[tuple[float, str], ...]
    peak: Memory

    def json(self) -> dict[str, Any]:
        """Returns the last line, which is a JSON object."""
        return json.loads(self.lines[-1][1])

    def time_of(self, text: str) -> float:
        """Returns when the first line that holds `text` came."""
        for seconds, line in self.lines:
            if text in line:
                return seconds
        raise SideError(f"no line of the output holds {text!r}")


def run(
    command: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    on_terminal: bool = False,
    measure_memory: bool = False,
) -> Outcome:
    """Runs a process to its end.

    Args:
      command: Program and arguments.
      directory: Where it works.
      environment: Added to this process's environment.
      on_terminal: Whether its output goes to a terminal, so that it shows
        what it shows only there.
      measure_memory: Whether to measure memory, which takes some time.

    Raises:
      SideError: It failed.
    """
    with tempfile.TemporaryFile() as errors:
        begin = time.monotonic()
        process, output = _start(
            command, directory, {**os.environ, **environment}, errors,
            on_terminal=on_terminal,
        )  # fmt: skip
        sampler = _Sampler(process.pid) if measure_memory else None
        with output:
            lines = tuple(
                (time.monotonic() - begin, line) for line in _lines(output)
            )
        code = process.wait()
        seconds = time.monotonic() - begin
        if code:
            errors.seek(0)
            said = errors.read().decode(errors="replace").splitlines()
            said += [line for _, line in lines]
            raise SideError(
                "\n".join(
                    [f"exit code {code}: {' '.join(command)}", *said[-15:]]
                )
            )
    return Outcome(seconds, lines, sampler.stop() if sampler else Memory())


def _start(
    command: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    errors: BinaryIO,
    *,
    on_terminal: bool,
) -> tuple[subprocess.Popen, BinaryIO]:
    if not on_terminal:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdout is not None
        return process, process.stdout  # type: ignore[return-value]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=directory,
        env={**environment, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=errors,
    )
    os.close(theirs)
    return process, open(ours, "rb", buffering=0)


def _lines(output: BinaryIO) -> Iterator[str]:
    try:
        for line in output:
            yield line.decode(errors="replace").rstrip("\r\n")
    except OSError as error:
        # How a terminal says that the other side has closed it.
        if error.errno != errno.EIO:
            raise


class _Sampler:
    """Looks at the memory of a process and its children, again and again."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = Memory()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def stop(self) -> Memory:
        self._ended.set()
        self._thread.join()
        return self._peak

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            found = [_memory_of(pid) for pid in _family(self._pid)]
            self._peak = Memory(
                max(self._peak.resident, sum(one.resident for one in found)),
                max(
                    self._peak.proportional,
                    sum(one.proportional for one in found),
                ),
            )


def _family(pid: int) -> list[int]:
    """Returns a process and all below it."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                # It has ended meanwhile.
                continue
    return found


def _memory_of(pid: int) -> Memory:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        # It has ended meanwhile.
        return Memory()
    lines = (line.split() for line in text.splitlines())
    sizes = {line[0]: int(line[1]) * 1024 for line in lines if "kB" in line}
    return Memory(sizes.get("Rss:", 0), sizes.get("Pss:", 0))
