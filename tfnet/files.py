"""All-or-nothing writing: aside, flushed to disk, then renamed into place."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Writes a text file; a reader finds the old text or the new, whole.

    Args:
      path: Where the file is to be, in a directory that exists.
      text: What it is to hold, written as UTF-8.

    Raises:
      OSError: It could not be written; what was there before is unchanged.
    """
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        # Names of files may hold bytes that are no UTF-8.
        with open(
            handle,
            "w",
            encoding="utf-8",
            errors="backslashreplace",
            newline="",
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
        raise
    _flush(path.parent)


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Makes a directory whose contents appear all at once.

    Gives a directory beside `path` to fill; when the block ends well, its
    files are flushed to disk and it takes the place of `path`. When the block
    fails, it is removed, and what was at `path` before is unchanged.

    Args:
      path: Where the directory is to be. Its parent is made if need be.

    Yields:
      The directory to fill.

    Raises:
      OSError: It could not be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    try:
        os.chmod(aside, 0o777 & ~_umask())
        yield aside
        for folder, _, names in os.walk(aside):
            for name in names:
                _flush(Path(folder, name))
            _flush(Path(folder))
        if path.exists():
            with tempfile.TemporaryDirectory(
                dir=path.parent, prefix=".old-"
            ) as old:
                os.rename(path, Path(old, path.name))
                try:
                    os.rename(aside, path)
                except BaseException:
                    os.rename(Path(old, path.name), path)
                    raise
        else:
            os.rename(aside, path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _flush(path.parent)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
