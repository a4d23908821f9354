"""The images that a command line names: files, folders, patterns, lists."""

import glob
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from tfnet.data.kinds import HEAD_BYTES, is_named_as_image, kind_of
from tfnet.data.names import natural_order
from tfnet.errors import ConfigError, reason_of

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def find_images(
    given: Sequence[str],
) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns the files that are meant, and what is not there, and why.

    Args:
      given: Files, folders, patterns, or `-` for names on standard input.

    Raises:
      ConfigError: There is no name on standard input.
    """
    files: list[str] = []
    missing: list[tuple[str, str]] = []
    for name in dict.fromkeys(given):
        if name == "-":
            files += _names_on_input()
            continue
        path = os.path.expanduser(name)
        if os.path.isdir(path):
            found = list(_images_below(path, missing))
            files += found
            if not found:
                missing.append((name, "a folder without an image"))
        elif glob.has_magic(path) and not os.path.lexists(path):
            found = sorted(glob.glob(path, recursive=True), key=natural_order)
            files += [one for one in found if not os.path.isdir(one)]
            if not found:
                missing.append((name, "a pattern that fits no file"))
        else:
            files.append(path)
    return files, missing


def _names_on_input() -> list[str]:
    text = sys.stdin.buffer.read().removeprefix(_BYTE_ORDER_MARK)
    names = [_of_line(line) for line in text.split(b"\n")]
    names = [name for name in names if name]
    if not names:
        raise ConfigError(
            "- stands for the names of images on the standard input, one a"
            " line, and there is none; for example: find photos -name '*.jpg' |"
            " python -m tfnet.predict runs/first -."
        )
    return names


def _of_line(line: bytes) -> str:
    """Returns a name; a list from Windows ends its lines with CR and LF."""
    if line.endswith(b"\r") and not os.path.lexists(line):
        line = line[:-1]
    return os.fsdecode(line)


def _images_below(folder: str, missing: list[tuple[str, str]]) -> Iterator[str]:
    """Yields what is an image by its name or its first bytes.

    What is one by its name and can't be opened is yielded, too: whoever reads
    it says why. A folder that can't be listed is added to `missing`.
    """
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: natural_order(entry.name))
    except OSError as error:
        missing.append((folder, reason_of(error)))
        return
    entries = [entry for entry in entries if not entry.name.startswith(".")]
    folders = [entry for entry in entries if _is(entry.is_dir)]
    for entry in entries:
        if _is(entry.is_dir):
            continue
        # To read a pipe would wait for whoever writes into it.
        if not _is(entry.is_file) and os.path.exists(entry.path):
            if is_named_as_image(entry.name):
                missing.append((entry.path, "it is no file"))
        elif is_named_as_image(entry.name) or _begins_as_image(entry.path):
            yield entry.path
    for one in folders:
        # As a link it may lead in a circle.
        if not one.is_symlink():
            yield from _images_below(one.path, missing)


def _is(asked: Callable[[], bool]) -> bool:
    try:
        return asked()
    except OSError:
        # A link that leads in a circle, or where nobody may look.
        return False


def _begins_as_image(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return kind_of(file.read(HEAD_BYTES)) is not None
    except OSError:
        return False
