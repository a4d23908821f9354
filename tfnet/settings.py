"""What a setting is: a name, a default, a help and a rule.

The settings of a command are a dataclass whose fields are made by `setting`;
its values are checked when it is made. Does not know the command line (see
`command_line`). Imports the standard library only.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from tfnet.arguments import check_home, wrong
from tfnet.errors import ConfigError


def setting(
    default: Any,
    help: str,
    *,
    kind: type,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    example: Any = None,
    may_change: bool = False,
) -> Any:
    """Describes one field of a `Settings`; the bounds are part of its rule.

    Args:
      default: Its value where it is not given; None: left to tfnet.
      help: What it does, for `--help`.
      kind: bool, int, float or str; tuple: what a command is given besides
        flags, such as files.
      minimum: The smallest value.
      above: All values are larger.
      maximum: The largest value.
      below: All values are smaller.
      choices: The values, if there are few.
      example: A value that works, where the default is none.
      may_change: Whether it can be another when a run goes on.
    """
    rule = {
        "kind": kind,
        "minimum": minimum,
        "above": above,
        "maximum": maximum,
        "below": below,
        "choices": choices,
        "example": default if example is None else example,
    }
    return dataclasses.field(
        default=default,
        metadata={"help": help, "rule": rule, "may_change": may_change},
    )


def same_setting(owner: type["Settings"], name: str, **changes: Any) -> Any:
    """Describes a field that is the one of another command.

    Args:
      owner: The settings of that command.
      name: Its name there.
      changes: Its `default` or its `help`, where they are others.
    """
    field = owner.__dataclass_fields__[name]
    return dataclasses.field(
        default=changes.pop("default", field.default),
        metadata={**field.metadata, **changes},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one command, valid by construction.

    Every field is also a flag of the command, under the same name. None
    stands for a setting left to tfnet; the help of the field says what it
    then does.

    Raises:
      ConfigError: A value breaks its rule. The text names the flag, the
        value, the rule and a value that works.
    """

    # Settings that do nothing in this command, and why; a flagfile, which may
    # have been made for another command, may hold them.
    without_effect: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        """Checks every field by its rule."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            checked = _check(field, value)
            object.__setattr__(self, field.name, checked)

    @classmethod
    def from_flags(cls, arguments: Sequence[str] = ()) -> Self:
        """Makes settings from command-line flags, given as a list.

        Args:
          arguments: Flags as a shell passes them, without a program's name,
            such as `['--flagfile=flags/seed.flags', '--epochs=1']`.

        Returns:
          The settings. Neither `sys.argv` nor absl's FLAGS is touched.

        Raises:
          ConfigError: A flag is unknown or its value breaks its rule, or that
            is no list of flags.
        """
        from tfnet import command_line

        is_row = isinstance(arguments, Sequence)
        if isinstance(arguments, str) or not (
            is_row and all(isinstance(one, str) for one in arguments)
        ):
            raise wrong(
                "arguments",
                arguments,
                "a list of flags; for example ['--epochs=1']",
            )
        return command_line.parse(arguments, cls)


def wrong_value(field: dataclasses.Field, value: Any) -> ConfigError:
    """Returns the error for a `value` that breaks the rule of a field."""
    shown = "" if value is None else str(value)
    if not shown.isprintable():
        shown = repr(shown)
    return ConfigError(
        f"--{field.name} ({shown}) must be {rule_text(field)};"
        f" for example {_example(field)}."
    )


def rule_text(field: dataclasses.Field) -> str:
    """Returns the rule of a field in words."""
    rule = field.metadata["rule"]
    if rule["choices"]:
        *most, last = rule["choices"]
        return f"{', '.join(most)} or {last}"
    if rule["kind"] is bool:
        return "true or false"
    if rule["kind"] is str:
        return "text without line breaks or blanks at its ends"
    words = {int: "a whole number,", float: "a finite number,"}[rule["kind"]]
    bounds = [
        f"{label} {rule[key]:,}"
        for key, label in (
            ("minimum", "at least"),
            ("above", "above"),
            ("maximum", "at most"),
            ("below", "below"),
        )
        if rule[key] is not None
    ]
    return f"{words} {' and '.join(bounds)}".rstrip(" ,")


def _example(field: dataclasses.Field) -> str:
    example = field.metadata["rule"]["example"]
    if isinstance(example, bool):
        return f"--{'' if example else 'no'}{field.name}"
    return f"--{field.name}={example}"


def _check(field: dataclasses.Field, value: Any) -> Any:
    """Returns `value` in the type of `field`, or raises ConfigError."""
    rule = field.metadata["rule"]
    kind = rule["kind"]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    is_kind = isinstance(value, kind) and (
        kind is bool or not isinstance(value, bool)
    )
    if not is_kind or not _within(rule, value):
        raise wrong_value(field, value)
    if kind is str:
        check_home(f"--{field.name}", value)
    return value


def _within(rule: dict[str, Any], value: Any) -> bool:
    if rule["kind"] in (bool, tuple):
        return True
    if rule["kind"] is str:
        if rule["choices"]:
            return value in rule["choices"]
        # config.flags must be able to hold it on a line of its own.
        return value != "" and value == value.strip() and value.isprintable()
    return (
        math.isfinite(value)
        and (rule["minimum"] is None or value >= rule["minimum"])
        and (rule["above"] is None or value > rule["above"])
        and (rule["maximum"] is None or value <= rule["maximum"])
        and (rule["below"] is None or value < rule["below"])
    )
