"""Export: `python -m tfnet.export --run_dir=R --format=keras,onnx`."""

import dataclasses
from pathlib import Path

from tfnet import command_line, files
from tfnet.errors import ConfigError
from tfnet.exports import FORMATS, chosen
from tfnet.run_settings import RunSettings
from tfnet.settings import setting
from tfnet.texts import on_one_line

_ALL = ",".join(FORMATS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings(RunSettings):
    """The settings of the command."""

    format: str = setting(
        "saved_model",
        f"What to export to: some of {_ALL}, with commas between.",
        kind=str,
    )
    output_dir: str | None = setting(
        None,
        "Where to write. Left unset: export/ in the run directory. An earlier"
        " export is replaced when the new one is whole; a file of the same name"
        " without tfnet's README.md beside it is refused.",
        kind=str,
        example="export",
    )

    def __post_init__(self) -> None:
        """Checks every field, then the formats."""
        super().__post_init__()
        chosen(self.format, "--format")


def export(settings: ExportSettings) -> None:
    """Exports the model of a run; prints how each file compares.

    Args:
      settings: The settings.

    Raises:
      ConfigError: There is no such run, a package is not installed, or no
        directory can be made there.
      DataError: The data can't be had.
      RunError: A format could not be had; all others were written.
    """
    if settings.output_dir is not None:
        _check_place(settings.output_dir)
    run, dataset = settings.open()
    run.export(
        settings.format,
        settings.output_dir,
        dataset=dataset,
        tell=lambda line: print(on_one_line(line), flush=True),
    )


def _check_place(output_dir: str) -> None:
    """Finds out before the work whether a directory can be made there."""
    why_not = files.why_no_directory(Path(output_dir).expanduser())
    if why_not is not None:
        raise ConfigError(
            f"--output_dir ({output_dir}) {why_not}. Name another place."
        )


if __name__ == "__main__":
    command_line.main(
        "tfnet.export",
        "Export the model of a run, load it back, and compare.",
        export,
        ExportSettings,
        needs_output=False,
    )
