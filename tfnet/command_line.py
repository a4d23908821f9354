"""The command line: absl flags to `Settings` and back, and exit codes.

The only place where absl flags are defined and read. The flags live in a
FlagValues of their own, so that nothing global is touched.
"""

import dataclasses
import difflib
import errno
import gc
import io
import os
import re
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from absl import flags

from tfnet.errors import ConfigError, Error, Interrupted
from tfnet.settings import Settings, rule_text, wrong_value

_Settings = TypeVar("_Settings", bound=Settings)


class _NumberParser(flags.ArgumentParser):
    """Reads a number; what is no number breaks the rule of its setting."""

    def __init__(self, field: dataclasses.Field) -> None:
        self._field = field
        self._kind = field.metadata["rule"]["kind"]

    def parse(self, argument: str) -> float:
        try:
            return self._kind(argument)
        except ValueError:
            raise wrong_value(self._field, argument) from None


def parse(arguments: Sequence[str], kind: type[_Settings]) -> _Settings:
    """Makes settings from flags.

    Args:
      arguments: Flags without a program's name. `--flagfile=FILE` reads more
        of them from a file; where FILE is not found, and a recipe of that
        name comes with tfnet, that recipe is read.
      kind: The settings to make.

    Returns:
      The settings.

    Raises:
      ConfigError: A flag is unknown, its value breaks its rule, or it does
        nothing in this command and stands in no flagfile; one line.
    """
    values = _flag_values(kind)
    arguments = _joined(arguments)
    if {"--flagfile=", "--flagfile"} & set(arguments):
        raise ConfigError(
            "--flagfile must name a file; for example --flagfile=seed.flags."
        )
    arguments = [_find_recipe(argument) for argument in arguments]
    try:
        rest = values(["tfnet", *arguments])
        _refuse_without_effect(arguments, kind)
    except flags.UnrecognizedFlagError as error:
        _refuse_as_name(arguments, kind)
        raise ConfigError(_unknown(error.flagname, kind)) from error
    except flags.IllegalFlagValueError as error:
        raise _illegal(error, kind) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            "--flagfile must name a text file (UTF-8) with a flag on each"
            " line; this one is something else."
        ) from error
    except flags.Error as error:
        raise ConfigError(_flagfile_text(str(error))) from error
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        # absl's own, of --noname=value.
        flag = str(error).partition("=")[0]
        raise ConfigError(
            f"{error}; write {flag} or {flag.replace('--no', '--')}=false."
        ) from error
    others = _others(kind)
    if len(rest) > 1 and others is None:
        raise ConfigError(
            f"{rest[1]!r} is not a flag; a setting is written --name=value"
            " (--help lists them)."
        )
    given = values.flag_values_dict()
    if others is not None:
        given[others.name] = tuple(rest[1:])
    return kind(**given)


def _refuse_as_name(arguments: Sequence[str], kind: type[Settings]) -> None:
    """Raises ConfigError where a file that is there was taken for a flag."""
    for argument in arguments:
        is_flag = argument.startswith("-") and argument != "-"
        if _others(kind) and is_flag and os.path.lexists(argument):
            raise ConfigError(
                f"{argument} begins as a flag does; for the file of that name,"
                f" write ./{argument}."
            )


def _refuse_without_effect(
    arguments: Sequence[str], kind: type[Settings]
) -> None:
    """Raises ConfigError for a flag that does nothing, unless from a file."""
    if not kind.without_effect:
        return
    values = _flag_values(kind)
    values(
        ["tfnet", *(a for a in arguments if not a.startswith("--flagfile="))]
    )
    for name, why in kind.without_effect.items():
        if values[name].present:
            shown = _spelled(name, values[name].value)
            raise ConfigError(
                f"{shown} has no effect here, since {why}; leave it out (only"
                " a flagfile may hold it)."
            )


def _joined(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with `--flagfile FILE` as `--flagfile=FILE`."""
    joined: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument in ("--flagfile", "-flagfile"):
            file = next(given, None)
            argument = "--flagfile" if file is None else f"--flagfile={file}"
        joined.append(re.sub(r"^-?-flagfile=", "--flagfile=", argument))
    return joined


def _others(kind: type[Settings]) -> dataclasses.Field | None:
    """Returns the field for what is given besides flags, if there is one."""
    for field in dataclasses.fields(kind):
        if field.metadata["rule"]["kind"] is tuple:
            return field
    return None


def to_flagfile(config: Settings, comment: str) -> str:
    """Returns the text of a flagfile that holds every setting of `config`.

    Args:
      config: The settings; those that are None are left out.
      comment: The first line, without its `#`.
    """
    lines = [f"# {comment}"]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is not None:
            lines.append(_spelled(field.name, value))
    return "\n".join(lines) + "\n"


def _spelled(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{'' if value else 'no'}{name}"
    return f"--{name}={value}"


def main(
    command: str,
    what: str,
    body: Callable[[_Settings], object],
    kind: type[_Settings],
    *,
    needs_output: bool = True,
) -> None:
    """Runs a command: parses `sys.argv`, calls `body`, exits.

    Exits with 0, or with the code of the `Error` that `body` raised after
    its text has been printed to standard error as one line.

    Args:
      command: The module that is run, such as `tfnet.train`.
      what: One sentence about it, for `--help`.
      body: Does the work.
      kind: Its settings.
      needs_output: Whether it is in vain where standard output is closed;
        else what it is for lies in files.
    """
    has_output = _open_closed_streams()
    # A scheduler may send it at any time; only a run has a use for it.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    # Names of classes and files are printed whatever the terminal can show.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:]
    verbose = False
    try:
        if {"--help", "-help", "-h"} & set(arguments):
            print(_help(command, what, kind), flush=True)
            return
        config = parse(arguments, kind)
        if needs_output and not has_output:
            raise OSError(errno.EBADF, "it is closed")
        verbose = getattr(config, "verbosity", 0) > 0
        body(config)
    except Error as error:
        if verbose:
            traceback.print_exc()
        text = " ".join(str(error).splitlines())
        print(f"{command}: error: {text}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Whoever read the output has gone.
        _forget_output()
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        if verbose:
            traceback.print_exc()
        _forget_output()
        where = error.filename or "the standard output"
        print(
            f"{command}: error: {where} can't be used: {error.strerror}.",
            file=sys.stderr,
        )
        sys.exit(1)
    except Interrupted as error:
        print(f"{command}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print(f"{command}: interrupted.", file=sys.stderr)
        sys.exit(130)
    finally:
        # Python searches all that TensorFlow has made for cycles at its end,
        # for a second.
        gc.freeze()


def _open_closed_streams() -> bool:
    """Gives a process that was started without them its three streams.

    Else a file of the run would get their numbers, and what TensorFlow writes
    to standard error would land in it.

    Returns:
      Whether standard output was open.
    """
    closed = set()
    for number, name, mode in (
        (0, "stdin", "r"),
        (1, "stdout", "w"),
        (2, "stderr", "w"),
    ):
        try:
            os.fstat(number)
        except OSError:
            closed.add(name)
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    return "stdout" not in closed


def _forget_output() -> None:
    """Keeps Python from complaining once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def recipes_directory() -> Path:
    """Returns the folder of the flagfiles that come with tfnet."""
    package = Path(__file__).parent
    installed = package / "flags"
    return installed if installed.is_dir() else package.parent / "flags"


def _flag_values(settings: type[Settings]) -> flags.FlagValues:
    values = flags.FlagValues()
    for field in dataclasses.fields(settings):
        kind = field.metadata["rule"]["kind"]
        default: Any = field.default
        text = field.metadata["help"]
        if kind is bool:
            flags.DEFINE_boolean(field.name, default, text, flag_values=values)
        elif kind is str:
            flags.DEFINE_string(field.name, default, text, flag_values=values)
        elif kind is not tuple:
            parser = _NumberParser(field)
            flags.DEFINE(parser, field.name, default, text, values)
    return values


def _find_recipe(argument: str) -> str:
    match = re.fullmatch(r"--flagfile=(.+)", argument)
    if match and not os.path.exists(os.path.expanduser(match[1])):
        recipe = recipes_directory() / os.path.basename(match[1])
        if recipe.is_file():
            return f"--flagfile={recipe}"
    return argument


def _unknown(name: str, kind: type[Settings]) -> str:
    names = [field.name for field in dataclasses.fields(kind)]
    names += ["flagfile", "help"]
    near = difflib.get_close_matches(name.removeprefix("no"), names, n=1)
    hint = f"did you mean --{near[0]}? " if near else ""
    return f"--{name} is not a flag; {hint}(--help lists them all)"


def _illegal(
    error: flags.IllegalFlagValueError, kind: type[Settings]
) -> ConfigError:
    if isinstance(error.__context__, ConfigError):
        return error.__context__
    # absl's own 'flag --name=value: reason', left for booleans.
    name, _, rest = str(error).removeprefix("flag --").partition("=")
    if name in kind.__dataclass_fields__:
        field = kind.__dataclass_fields__[name]
        return wrong_value(field, rest.rpartition(": ")[0])
    return ConfigError(str(error))


def _flagfile_text(message: str) -> str:
    message = message.removeprefix("ERROR:: ").replace("\n", " ")
    recipes = sorted(path.name for path in recipes_directory().glob("*.flags"))
    if "flagfile" in message:
        message += f"; the recipes that come with tfnet: {', '.join(recipes)}"
    return message


def _help(command: str, what: str, kind: type[Settings]) -> str:
    """Returns the text of --help: each setting with its rule and default."""
    others = _others(kind)
    usage = f"usage: python -m {command} [--name=value ...]"
    if others is not None:
        usage += f" {others.name.upper()} ..."
    lines = [what, "", usage, ""]
    for field in dataclasses.fields(kind):
        text = field.metadata["help"]
        if field is others:
            lines += [f"  {field.name.upper()}", *_indented(text)]
            continue
        if field.name in kind.without_effect:
            continue
        is_flag = field.metadata["rule"]["kind"] is bool
        lines += [f"  --{'[no]' if is_flag else ''}{field.name}"]
        lines += _indented(f"{text} ({_bounds(field)})")
    recipes = ", ".join(
        sorted(path.name for path in recipes_directory().glob("*.flags"))
    )
    lines += ["  --flagfile"]
    lines += _indented(
        "Read more flags from a file, one a line. A recipe that comes with"
        f" tfnet is found by its name alone: {recipes}."
    )
    if kind.without_effect:
        lines += [
            "",
            "Without effect here, and so refused, but for those in a flagfile:",
            "",
        ]
    for why in dict.fromkeys(kind.without_effect.values()):
        names = [
            f"--{name}"
            for name, reason in kind.without_effect.items()
            if reason == why
        ]
        lines += [*_indented(", ".join(names), 2), *_indented(why)]
    return "\n".join(lines)


def _bounds(field: dataclasses.Field) -> str:
    default = "unset" if field.default is None else field.default
    rule = field.metadata["rule"]
    free_text = rule["kind"] is str and not rule["choices"]
    bounds = "" if free_text else f"{rule_text(field)}; "
    return f"{bounds}default: {default}"


def _indented(text: str, blanks: int = 6) -> list[str]:
    indent = " " * blanks
    return textwrap.wrap(
        text, 78, initial_indent=indent, subsequent_indent=indent
    )
