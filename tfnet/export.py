"""Export: `python -m tfnet.export --run_dir=R --format=keras,onnx`."""

import dataclasses

from tfnet import command_line
from tfnet.errors import ConfigError
from tfnet.exports import FORMATS
from tfnet.run_settings import RunSettings
from tfnet.settings import setting

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
        "Where to write. Left unset: export/ in the run directory. What is"
        " there under the same names is replaced, each when the new one is"
        " whole.",
        kind=str,
        example="export",
    )

    def __post_init__(self) -> None:
        """Checks every field, then the formats."""
        super().__post_init__()
        names = self.formats
        if not set(names) <= set(FORMATS) or len(set(names)) < len(names):
            raise ConfigError(
                f"--format ({self.format}) must be some of {_ALL}, each once,"
                " with commas between; for example --format=keras,onnx."
            )

    @property
    def formats(self) -> list[str]:
        """The names in --format."""
        return self.format.split(",")


def export(settings: ExportSettings) -> None:
    """Exports the model of a run; prints how each file compares.

    Args:
      settings: The settings.

    Raises:
      ConfigError: There is no such run, or a package is not installed.
      DataError: The data can't be had.
      RunError: A format could not be had; all others were written.
    """
    run, dataset = settings.open()
    run.export(
        settings.formats,
        settings.output_dir,
        dataset=dataset,
        tell=lambda line: print(line, flush=True),
    )


if __name__ == "__main__":
    command_line.main(
        "tfnet.export",
        "Export the model of a run, load it back, and compare.",
        export,
        ExportSettings,
    )
