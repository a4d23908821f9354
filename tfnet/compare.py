"""Compare: `python -m tfnet.compare RUN RUN ...`, what differs, what came out.

Reads the records and the rows of metrics.csv; imports no TensorFlow.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfnet import command_line, files
from tfnet.config import Config
from tfnet.errors import ConfigError, RunError, reason_of
from tfnet.settings import Settings, same_setting, setting
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
        "Draw the curves of all runs into this PNG file. Left unset: not.",
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


def compare(settings: CompareSettings) -> None:
    """Prints the settings in which runs differ, and what they reached.

    Args:
      settings: The settings.

    Raises:
      ConfigError: A directory holds no run.
      RunError: The picture can't be written.
    """
    runs = [Run.open(place) for place in settings.runs]
    names = _names(settings.runs)
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
        print(_text(names, differing, figures))
    if settings.picture is not None:
        _draw(Path(settings.picture).expanduser(), names, runs)


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


def _text(
    names: Sequence[str],
    settings: Mapping[str, Sequence[Any]],
    figures: Mapping[str, Sequence[Any]],
) -> str:
    rows = [["", *names]]
    for name, values in settings.items():
        rows.append([f"--{name}", *(_shown(str, one) for one in values)])
    if not settings:
        rows.append(["the same settings", *("" for _ in names)])
    for name, values in figures.items():
        form = _FIGURES.get(name) or (
            _percent if name == "best_test_accuracy" else str
        )
        label = name.replace("_", " ")
        rows.append([label, *(_shown(form, one) for one in values)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(
                zip(row, widths, strict=True)
            )
        ).rstrip()
        for row in rows
    )


def _shown(form: Callable[[Any], str], value: Any) -> str:
    return "-" if value is None else form(value)


def _draw(path: Path, names: Sequence[str], runs: Sequence[Run]) -> None:
    from tfnet.report.together import draw_together

    png = draw_together(
        {name: run.history for name, run in zip(names, runs, strict=True)}
    )
    try:
        with files.new_file(path) as aside:
            aside.write_bytes(png)
    except OSError as error:
        raise RunError(
            f"--picture ({path}) can't be written: {reason_of(error)}; name"
            " another place."
        ) from error
    print(f"curves in {path}")


if __name__ == "__main__":
    command_line.main(
        "tfnet.compare",
        "Compare runs: their settings, their figures and their curves.",
        compare,
        CompareSettings,
    )
