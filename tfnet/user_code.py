"""Functions of a user's own, named on the command line."""

import importlib
from collections.abc import Callable
from typing import Any

from tfnet.errors import ConfigError, one_line


def import_function(flag: str, name: str) -> Callable[..., Any]:
    """Imports `package.module:function`.

    Args:
      flag: The setting that named it.
      name: Its name.

    Raises:
      ConfigError: It can't be imported, or is no function.
    """
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (Exception, SystemExit) as error:
        # Importing runs the user's code, which may raise anything.
        raise ConfigError(
            f"--{flag} ({name}) can't be imported: {one_line(error)}; it must"
            " be package.module:function, found from the working directory."
        ) from error
    if not callable(function):
        raise ConfigError(
            f"--{flag} ({name}) must name a function; it is a"
            f" {type(function).__name__}."
        )
    return function
