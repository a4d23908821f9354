"""What can go wrong, in one line each, with the exit code of the commands."""

import errno
import re
import signal

from tfnet.texts import on_one_line


def one_line(error: BaseException) -> str:
    """Returns the class and the first line of an error from elsewhere.

    Keras says in a first line where an error arose, and below, in bold, what.
    """
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("Exception encountered when calling"):
        lines = [" ".join(lines[:2])]
    return ": ".join([type(error).__name__, *lines[:1]])


def reason_of(error: OSError) -> str:
    """Returns why the system could not do something, in its words."""
    return error.strerror or str(error)


def remedy_of(error: OSError) -> str:
    """Returns what a person can do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "make it writable"
    return "mend that"


def counted(number: int, noun: str) -> str:
    """Returns a number of things in words: 1 name, 2 names."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


class Error(Exception):
    """Something a user can cause and mend; its text is one line for them."""

    exit_code = 1

    def __str__(self) -> str:
        """Returns the text; a name in it may hold a line break."""
        return on_one_line(super().__str__())


class _OneLineInNotebooks:
    """Is shown without a traceback below a cell, as by a command.

    For what a person mends in the cell. What went wrong inside a run keeps its
    traceback: it may be their own model that is at fault.
    """

    def _render_traceback_(self) -> list[str]:
        """Returns what IPython shows; it asks for a method of this name."""
        return [f"{type(self).__name__}: {self}"]


class ConfigError(_OneLineInNotebooks, Error, ValueError):
    """A setting, or what it names, is not as it must be."""

    exit_code = 2


class DataError(_OneLineInNotebooks, Error):
    """The data cannot be had, or are not what they should be."""

    exit_code = 2


class RunError(Error):
    """A run that had started could not go on."""

    exit_code = 1


class Interrupted(_OneLineInNotebooks, KeyboardInterrupt):
    """A signal ended the run; what it had reached is written.

    Attributes:
      exit_code: 128 plus the number of the signal: 130 after Ctrl-C.
    """

    def __init__(self, message: str, *, signum: int = signal.SIGINT) -> None:
        """Remembers the signal `signum` that ended the run."""
        super().__init__(message)
        self.exit_code = 128 + signum
