"""Names of classes and of data sets: their order, and what can be shown."""

import os
import re
from pathlib import Path


def natural_order(name: str) -> tuple:
    """Returns a key that sorts names as a person would: 2 before 10."""
    parts = re.split(r"(\d+)", name)
    return (
        tuple(
            (0, int(part), "") if part.isdecimal() else (1, 0, part)
            for part in parts
        ),
        name,
    )


def shown(name: str) -> str:
    """Returns a name with bytes that are no UTF-8 spelt out.

    They must not stop what is shown or exported.
    """
    return os.fsencode(name).decode(errors="backslashreplace")


def short_name(path: Path, otherwise: str) -> str:
    """Returns the last part of a path, without its ending if it is a file.

    Args:
      path: A place, with its links followed.
      otherwise: What to call it if nothing of its name is left.
    """
    name = path.name if path.is_dir() else path.stem
    return re.sub(r"[^\w.-]+", "_", name) or otherwise
