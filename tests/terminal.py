"""A terminal: what a program writes to one, and what is then seen on it."""

import contextlib
import os
import pty
import re
import threading


class Terminal:
    """A pseudo-terminal.

    Attributes:
      end: The file descriptor that a program takes for a terminal.
      written: All that was written to it, once the terminal is closed.
    """

    def __init__(self):
        """Opens it."""
        self._parent, self.end = pty.openpty()
        self._parts = []
        # What nobody reads would stop the program.
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        # Ends with an error, once the other end has closed.
        with contextlib.suppress(OSError):
            while part := os.read(self._parent, 65536):
                self._parts.append(part)

    def close(self):
        """Waits for the last of what was written."""
        os.close(self.end)
        self._reader.join()
        os.close(self._parent)

    @property
    def written(self):
        """What was written so far."""
        return b"".join(self._parts).decode()

    @property
    def lines(self):
        """What is seen on an endless screen, from its first line on."""
        screen, row, column = [""], 0, 0
        for part in re.findall(
            r"\x1b\[[^a-zA-Z]*[a-zA-Z]|[\s\S]", self.written
        ):
            if part == "\r":
                column = 0
            elif part == "\n":
                row += 1
                screen += [""] * (row == len(screen))
            elif re.fullmatch(r"\x1b\[\d*A", part):
                row -= int(part[2:-1] or 1)
            elif part == "\x1b[2K":
                screen[row] = ""
            elif part.startswith("\x1b"):
                # Colours, and whether the cursor is shown.
                assert re.fullmatch(r"\x1b\[(\?25[lh]|[\d;]*m)", part), repr(
                    part
                )
            else:
                line = screen[row].ljust(column)
                screen[row] = line[:column] + part + line[column + 1 :]
                column += 1
        return [line.rstrip() for line in screen]


@contextlib.contextmanager
def terminal():
    """Gives a terminal, and closes it."""
    opened = Terminal()
    try:
        yield opened
    finally:
        opened.close()
