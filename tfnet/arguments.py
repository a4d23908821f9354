"""What a program gives in place of flags: is it of the kind that it must be.

A command's settings are checked by `settings`; these are the arguments of
`tfnet.run` and `tfnet.Run`. Imports the standard library only.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfnet.errors import ConfigError

_MOST_SHOWN = 60


def wrong(name: str, value: Any, rule: str) -> ConfigError:
    """Returns the error for an argument that breaks its rule.

    Args:
      name: The argument.
      value: What was given.
      rule: What it must be, and an example.
    """
    shown = repr(value)
    if len(shown) > _MOST_SHOWN or "\n" in shown:
        shown = f"of type {type(value).__name__}"
    return ConfigError(f"{name} ({shown}) must be {rule}.")


def check(name: str, value: Any, kind: type, rule: str) -> None:
    """Raises ConfigError if an argument is not of a type, by its name."""
    # A notebook that reloads modules has several types of one name.
    named = (kind.__module__, kind.__qualname__)
    types = type(value).__mro__
    if named not in [(one.__module__, one.__qualname__) for one in types]:
        raise wrong(name, value, rule)


def check_function(name: str, value: Callable[..., Any]) -> None:
    """Raises ConfigError if an argument can't be called."""
    if not callable(value):
        raise wrong(name, value, "a function; for example print")


def place(name: str, value: str | Path) -> Path:
    """Returns the absolute path of a directory that a program names.

    Args:
      name: The argument.
      value: What was given; a ~ at its beginning is the home.

    Raises:
      ConfigError: It is no path.
    """
    is_path = isinstance(value, str | Path) and str(value) != ""
    if not is_path or "\0" in str(value):
        raise wrong(
            name,
            value,
            "the path of a directory, as text or as a pathlib.Path; for"
            " example 'runs/first'",
        )
    check_home(name, str(value))
    return Path(value).expanduser().absolute()


def check_home(name: str, value: str) -> None:
    """Raises ConfigError if a path begins with a home that is unknown."""
    if value.startswith("~") and os.path.expanduser(value) == value:
        home = value.partition(os.sep)[0]
        raise ConfigError(
            f"{name} ({value}) must be a path that can be found: {home} is the"
            " home of nobody here; write it out, or ./~ for a name that begins"
            " with ~."
        )


def texts(given: Mapping[str, str | Path | None]) -> dict[str, Any]:
    """Returns what is given of settings, by name; a Path as its text.

    What is neither stays: the settings refuse it, in the words of flags.
    """
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value is not None
    }
