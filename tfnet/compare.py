"""Compare: `python -m tfnet.compare RUN RUN ...`, what differs, what came out.

Reads the records and the rows of metrics.csv; imports no TensorFlow.
"""

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfnet import command_line, files
from tfnet.config import Config
from tfnet.errors import ConfigError, RunError, reason_of, remedy_of
from tfnet.settings import Settings, same_setting, setting
from tfnet.texts import on_one_line
from tfnet.trained import Run

# Where a run is and how it is watched says nothing about what came out.
_NOT_COMPARED = (
    "run_dir",
    "resume",
    "export",
    "report",
    "checkpoint_every",
    "keep_checkpoints",
    "verbosity",
    "dry_run",
)


def _percent(value: float) -> str:
    return f"{value:.2%}"


_FIGURES: dict[str, Callable[[Any], str]] = {
    "test_accuracy": _percent,
    "test_loss": lambda value: f"{value:.4f}",
    "test_top_5_accuracy": _percent,
    "steps": lambda value: f"{value:,}",
    "replicas": str,
    "images_per_second": lambda value: f"{value:,.0f}",
    "seconds": lambda value: f"{value:,.1f}",
    "parameters": lambda value: f"{value:,}",
    "exit_reason": str,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareSettings(Settings):
    """The settings of the command."""

    runs: tuple[str, ...] = setting(
        (), "Two or more run directories.", kind=tuple
    )
    picture: str | None = setting(
        None,
        "Draw the curves of all runs into this file, whose name ends in .png."
        " Left unset: not.",
        kind=str,
        example="compare.png",
    )
    json: bool = setting(False, "Print one JSON object.", kind=bool)
    verbosity: int = same_setting(Config, "verbosity")

    def __post_init__(self) -> None:
        """Checks every field, then what must be given."""
        super().__post_init__()
        if len(self.runs) < 2:
            raise ConfigError(
                "two runs at least must be given; for example: python -m"
                " tfnet.compare runs/first runs/second."
            )
        if self.picture and Path(self.picture).suffix.lower() != ".png":
            raise ConfigError(
                f"--picture ({self.picture}) must be a name that ends in .png,"
                " since the picture is a PNG file; for example"
                " --picture=compare.png."
            )


def compare(settings: CompareSettings) -> None:
    """Prints the settings in which runs differ, and what they reached.

    Args:
      settings: The settings.

    Raises:
      ConfigError: A directory holds no run, or the picture has no place.
      RunError: The picture can't be written.
    """
    picture = settings.picture and Path(settings.picture).expanduser()
    if picture:
        _check_place(picture)
    runs = [Run.open(place) for place in settings.runs]
    names = _names(settings.runs)
    # Before anything is printed, since they may be damaged.
    histories = [run.history for run in runs] if picture else []
    differing = differing_settings([run.config for run in runs])
    figures = {
        name: [run.record.get(name) for run in runs]
        for name in _FIGURES
        if any(name in run.record for run in runs)
    }
    best = [(run.record.get("best") or {}) for run in runs]
    figures["best_test_accuracy"] = [one.get("test_accuracy") for one in best]
    figures["best_epoch"] = [one.get("epoch") for one in best]
    if settings.json:
        print(
            json.dumps(
                {"runs": names, "settings": differing, "figures": figures}
            )
        )
    else:
        shown = {
            name: values
            for name, values in figures.items()
            # With five classes or fewer, all are among the best five.
            if name != "test_top_5_accuracy"
            or any(len(run.class_names) > 5 for run in runs)
        }
        print(_text(names, differing, shown, _room()))
    if picture:
        _draw(picture, names, histories)
        if not settings.json:
            print(f"curves in {on_one_line(str(picture))}")


def differing_settings(configs: Sequence[Config]) -> dict[str, list[Any]]:
    """Returns the settings that are not the same in all, with their values.

    Args:
      configs: The settings of each run.
    """
    found = {}
    for field in dataclasses.fields(Config):
        values = [getattr(config, field.name) for config in configs]
        if field.name not in _NOT_COMPARED and len(set(values)) > 1:
            found[field.name] = values
    return found


def _names(places: Sequence[str]) -> list[str]:
    """Returns short names: the last part of each place, if it is unique."""
    last = [Path(place).expanduser().absolute().name for place in places]
    return last if len(set(last)) == len(last) else list(places)


def _room() -> int | None:
    """Returns how wide a table may be; None: nobody sees it on a terminal."""
    if not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def _text(
    names: Sequence[str],
    settings: Mapping[str, Sequence[Any]],
    figures: Mapping[str, Sequence[Any]],
    room: int | None,
) -> str:
    """Returns the table; what is too wide, below one another and by number."""
    labels, cells = _cells(settings, figures)
    shown = [on_one_line(name) for name in names]
    columns = [
        [name, *(row[number] for row in cells)]
        for number, name in enumerate(shown)
    ]
    labels = ["", *labels]
    if room is None or _width([labels, *columns]) <= room:
        return _table([labels, *columns])
    numbers = [str(number) for number in range(1, len(names) + 1)]
    columns = [
        [number, *column[1:]]
        for number, column in zip(numbers, columns, strict=True)
    ]
    key = "\n".join(
        f"{number.rjust(len(numbers[-1]))}  {name}"
        for number, name in zip(numbers, shown, strict=True)
    )
    return "\n\n".join([key, *_tables(labels, columns, room)])


def _cells(
    settings: Mapping[str, Sequence[Any]], figures: Mapping[str, Sequence[Any]]
) -> tuple[list[str], list[list[str]]]:
    """Returns what each row is about, and its cells, one for each run."""
    labels = [f"--{name}" for name in settings]
    rows = [[_shown(str, one) for one in row] for row in settings.values()]
    for name, values in figures.items():
        form = _FIGURES.get(name) or (
            _percent if name == "best_test_accuracy" else str
        )
        labels.append(name.replace("_", " "))
        rows.append([_shown(form, one) for one in values])
    if not settings:
        labels.insert(0, "the same settings")
        rows.insert(0, ["" for _ in rows[0]])
    return labels, rows


def _shown(form: Callable[[Any], str], value: Any) -> str:
    return "-" if value is None else on_one_line(form(value))


def _tables(
    labels: Sequence[str], columns: Sequence[Sequence[str]], room: int
) -> list[str]:
    """Returns tables that fit a width, each of as many columns as it can."""
    tables = []
    block: list[Sequence[str]] = []
    for column in columns:
        if block and _width([labels, *block, column]) > room:
            tables.append(_table([labels, *block]))
            block = []
        block.append(column)
    return [*tables, _table([labels, *block])]


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in columns) - 2


def _table(columns: Sequence[Sequence[str]]) -> str:
    """Returns lines: the first column flush left, the others flush right."""
    first, *others = columns
    widths = [max(map(len, column)) for column in columns]
    return "\n".join(
        "  ".join(
            [
                label.ljust(widths[0]),
                *map(str.rjust, row, widths[1:]),
            ]
        ).rstrip()
        for label, *row in zip(first, *others, strict=True)
    )


def _check_place(path: Path) -> None:
    """Refuses a place for the picture where something would be lost.

    Raises:
      ConfigError: Something else is there, or nothing can be.
    """
    from tfnet.report.together import is_drawn_together

    where = f"--picture ({path})"
    if os.path.isdir(path):
        raise ConfigError(
            f"{where} must be a file, and is a directory; name a file in it."
        )
    try:
        is_free = not os.path.lexists(path) or is_drawn_together(path)
    except OSError as error:
        raise ConfigError(
            f"{where} is there and can't be read: {reason_of(error)}; name"
            " another file."
        ) from error
    if not is_free:
        raise ConfigError(
            f"{where} is there and was not drawn by tfnet.compare, so it is"
            " not written over; name another file, or remove it."
        )
    parent = next(
        one for one in path.absolute().parents if os.path.lexists(one)
    )
    if not os.path.isdir(parent) or not os.access(parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{where} can't be written: {parent} is no directory that can be"
            " written; name another place."
        )


def _draw(
    path: Path,
    names: Sequence[str],
    histories: Sequence[Sequence[Mapping[str, Any]]],
) -> None:
    from tfnet.report.together import draw_together

    png = draw_together(dict(zip(names, histories, strict=True)))
    try:
        with files.new_file(path) as aside:
            aside.write_bytes(png)
    except OSError as error:
        raise RunError(
            f"--picture ({path}) can't be written: {reason_of(error)};"
            f" {remedy_of(error)}, or name another place."
        ) from error


if __name__ == "__main__":
    command_line.main(
        "tfnet.compare",
        "Compare runs: their settings, their figures and their curves.",
        compare,
        CompareSettings,
    )
