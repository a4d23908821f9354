"""Export: `python -m tfnet.export --run_dir=R --format=keras,onnx`."""

import dataclasses

from tfnet import command_line
from tfnet.config import Config
from tfnet.errors import ConfigError
from tfnet.exports import FORMATS
from tfnet.settings import Settings, same_setting, setting
from tfnet.trained import Run

_ALL = ",".join(FORMATS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings(Settings):
    """The settings of the command."""

    run_dir: str | None = same_setting(
        Config, "run_dir", help="The run whose model to export."
    )
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
    dataset: str | None = same_setting(
        Config,
        "dataset",
        help="Whose test images to compare on. Left unset: that of the run.",
    )
    data_dir: str | None = same_setting(Config, "data_dir")
    cache_dir: str | None = same_setting(Config, "cache_dir")
    verbosity: int = same_setting(Config, "verbosity")

    def __post_init__(self) -> None:
        """Checks every field, then what must be given."""
        super().__post_init__()
        if self.run_dir is None:
            raise ConfigError(
                "--run_dir must be given; for example --run_dir=runs/first."
            )
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
    assert settings.run_dir is not None
    run = Run.open(settings.run_dir)
    dataset = run.open_dataset(
        settings.dataset, settings.data_dir, settings.cache_dir
    )
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
