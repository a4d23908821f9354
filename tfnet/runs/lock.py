"""One process for a run directory at a time."""

import errno
import fcntl
import json
import os
import socket
from pathlib import Path

from tfnet.errors import ConfigError

LOCK_FILE = ".lock"


class RunLock:
    """Holds a run directory for this process, until `release` or its end.

    The lock is the kernel's (flock): it goes with the process, however that
    ends, so that what a dead process left never needs to be removed by hand.
    """

    def __init__(self, directory: Path) -> None:
        """Takes the lock.

        Raises:
          ConfigError: Another process holds it, or it can't be had there.
        """
        self._path = directory / LOCK_FILE
        try:
            self._handle = self._take()
        except BlockingIOError:
            raise ConfigError(
                f"--run_dir ({directory}) is in use by {self._holder()}; wait"
                " for it to end, or name another directory."
            ) from None
        except OSError as error:
            raise ConfigError(
                f"--run_dir ({directory}) can't be locked:"
                f" {error.strerror}; name a directory on another file system."
            ) from error

    def _take(self) -> int:
        while True:
            # Not open for writing, which would keep a disk from turning
            # read-only.
            handle = os.open(self._path, os.O_RDONLY | os.O_CREAT, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its last holder may have removed it after it was opened.
                if _is_at(handle, self._path):
                    holder = {"pid": os.getpid(), "host": socket.gethostname()}
                    self._path.write_text(json.dumps(holder), "utf-8")
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)

    def _holder(self) -> str:
        try:
            holder = json.loads(self._path.read_text(encoding="utf-8"))
            return f"process {holder['pid']} on {holder['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            # It is just being written or removed.
            return "another process"

    def release(self) -> None:
        """Gives the directory back; a second time, does nothing."""
        if self._handle < 0:
            return
        try:
            if _is_at(self._handle, self._path):
                self._path.unlink()
        except OSError as error:
            # Read-only by now: the lock itself goes with the handle.
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
        finally:
            os.close(self._handle)
            self._handle = -1


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
