"""All-or-nothing writing: aside, flushed to disk, then renamed into place.

What is written stands aside, beside its place, until it is whole, and is
locked while a process writes it. So what a killed process left can be told
from what another one is writing, and goes at the next writing in that place.
"""

import contextlib
import errno
import fcntl
import fnmatch
import glob
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

_ASIDE = ".aside"
_REPLACED = ".replaced"


def write_text(path: Path, text: str) -> None:
    """Writes a text file; a reader finds the old text or the new, whole.

    Args:
      path: Where the file is to be, in a directory that exists.
      text: What it is to hold, written as UTF-8.

    Raises:
      OSError: It could not be written; what was there before is unchanged.
    """
    remove_leftovers(path.parent)
    with _aside(path, is_directory=False) as (aside, handle):
        # Names of files may hold bytes that are no UTF-8.
        data = text.encode("utf-8", errors="backslashreplace")
        with open(handle, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(handle)
        os.replace(aside, path)
    flush(path.parent)


def seen_from_here(place: str | Path) -> str:
    """Returns a path as a person would write it who is where the process is.

    Args:
      place: A path; other words stay as they are.
    """
    try:
        here = os.path.join(os.getcwd(), "")
    except FileNotFoundError:
        # Somebody has removed it.
        return str(place)
    return str(place).removeprefix(here)


def why_no_directory(path: Path) -> str | None:
    """Says why nothing could be written into a directory, or one be made.

    Args:
      path: The directory, or where it is to be.

    Returns:
      The rule and what is in the way, without a stop; None: nothing is.
    """
    rule = "must be a directory that can be written, or a place for one"
    there = (one for one in (path, *path.parents) if os.path.lexists(one))
    place = next(there, path)
    try:
        is_directory = stat.S_ISDIR(os.stat(place).st_mode)
    except OSError as error:
        return f"{rule}; {place} can't be looked at: {error.strerror}"
    if not is_directory:
        return f"{rule}; {place} is no directory"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"{rule}; {place} can't be written"
    return None


def append(path: Path, size: int, data: bytes) -> int:
    """Writes behind what is known of a file.

    Args:
      path: A file that is there; one that was removed is not made again.
      size: How many of its bytes are known; what follows is written over.
      data: What to write.

    Returns:
      How many bytes are known now.

    Raises:
      OSError: It could not be written, and is cut to what was known.
    """
    rest = memoryview(data)
    try:
        with open(path, "r+b", buffering=0) as file:
            size = min(size, os.fstat(file.fileno()).st_size)
            file.seek(size)
            while rest:
                rest = rest[file.write(rest) :]
            return file.tell()
    except OSError:
        # A part of it may have got there.
        with contextlib.suppress(OSError):
            os.truncate(path, size)
        raise


@contextlib.contextmanager
def new_directory(
    path: Path, *, replaces: Collection[str] | None = None
) -> Iterator[Path]:
    """Makes a directory whose contents appear all at once.

    Gives a directory beside `path` to fill; when the block ends well, its
    files are flushed to disk and it takes the place of `path`. When the block
    fails, it is removed, and what was at `path` before is unchanged.

    Args:
      path: Where the directory is to be. Its parent is made if need be.
      replaces: Patterns of the names that may be in what it takes the place
        of; None: any. So what a person has put there is not lost.

    Yields:
      The directory to fill.

    Raises:
      OSError: It could not be written, or what is at `path` is no directory,
        or holds something else.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _put_back(path)
    remove_leftovers(path.parent)
    if path.exists():
        _check_replaceable(path, ("*",) if replaces is None else replaces)
    with _aside(path, is_directory=True) as (aside, _):
        yield aside
        for folder, _, names in os.walk(aside):
            for name in names:
                flush(Path(folder, name))
            flush(Path(folder))
        if path.exists():
            _replace_directory(aside, path)
        else:
            os.rename(aside, path)
    flush(path.parent)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Makes a file that appears all at once, of whatever writes it.

    Gives a place for a file of the same name, in a directory of its own, since
    many libraries go by the ending; when the block ends well, the file is
    flushed to disk and takes the place of `path`. When the block fails, what
    was at `path` before is unchanged.

    Args:
      path: Where the file is to be. Its parent is made if need be.

    Yields:
      Where to write it.

    Raises:
      OSError: It could not be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent)
    with _aside(path, is_directory=True) as (aside, _):
        file = aside / path.name
        yield file
        flush(file)
        os.replace(file, path)
    flush(path.parent)


def remove_leftovers(parent: Path) -> None:
    """Removes what processes that were killed have left aside in `parent`."""
    for path in _unlocked(parent, f".*{_ASIDE}"):
        _remove(path)


def read_bytes(path: Path) -> bytes:
    """Reads a file; what is no file, such as a pipe, is an error and no wait.

    Raises:
      OSError: It can't be read, or is no file.
    """
    # Without O_NONBLOCK, to open a pipe waits for whoever writes into it.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        return file.read()


def is_aside(name: str) -> bool:
    """Says whether a name is one that unfinished writing has."""
    return name.startswith(".") and name.endswith((_ASIDE, _REPLACED))


def flush(path: Path) -> None:
    """Waits until a file, or the names in a directory, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _aside(path: Path, *, is_directory: bool) -> Iterator[tuple[Path, int]]:
    """Makes something beside `path`, locked; removes it if it is still there.

    Yields:
      Its place, and an open handle of it.
    """
    while True:
        aside = _beside(path, _ASIDE)
        if is_directory:
            aside.mkdir()
            handle = os.open(aside, os.O_RDONLY)
        else:
            new = os.O_CREAT | os.O_EXCL | os.O_RDWR
            handle = os.open(aside, new, 0o666)
        _lock(handle)
        if aside.exists():
            break
        # Taken for a leftover before it was locked.
        os.close(handle)
    try:
        yield aside, handle
    finally:
        _remove(aside)
        os.close(handle)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}-{secrets.token_hex(4)}{ending}")


def _lock(handle: int) -> None:
    # Where a file system has no locks, leftovers stay; that is all.
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)


def _check_replaceable(path: Path, patterns: Collection[str]) -> None:
    """Refuses to replace what is not ours."""
    if not path.is_dir():
        raise FileExistsError(
            errno.EEXIST, "what is there is no directory", str(path)
        )
    others = [
        one.name
        for one in path.iterdir()
        if not any(fnmatch.fnmatchcase(one.name, each) for each in patterns)
    ]
    if others:
        raise FileExistsError(
            errno.EEXIST,
            f"it holds {', '.join(sorted(others))}, and would lose it",
            str(path),
        )


def _replace_directory(aside: Path, path: Path) -> None:
    replaced = _beside(path, _REPLACED)
    handle = os.open(path, os.O_RDONLY)
    _lock(handle)
    try:
        os.rename(path, replaced)
        try:
            os.rename(aside, path)
        except BaseException:
            os.rename(replaced, path)
            raise
        _remove(replaced)
    finally:
        os.close(handle)


def _put_back(path: Path) -> None:
    """Mends what a process left that was killed while it replaced `path`."""
    for replaced in _unlocked(
        path.parent, f".{glob.escape(path.name)}-*{_REPLACED}"
    ):
        if path.exists():
            _remove(replaced)
        else:
            os.rename(replaced, path)


def _unlocked(parent: Path, pattern: str) -> Iterator[Path]:
    """Yields what matches and no process has locked, locked meanwhile."""
    for path in parent.glob(pattern):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            # Gone by now, or another user's.
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Being written.
            pass
        else:
            yield path
        finally:
            os.close(handle)


def _remove(path: Path) -> None:
    """Removes a file or a directory as far as that can be done."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
