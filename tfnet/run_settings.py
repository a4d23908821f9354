"""The settings that commands on a trained run share."""

import dataclasses
from typing import TYPE_CHECKING

from tfnet.config import Config
from tfnet.errors import ConfigError
from tfnet.settings import Settings, same_setting
from tfnet.trained import Run

if TYPE_CHECKING:
    from tfnet.data import Dataset


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """Which run, and on which data."""

    run_dir: str | None = same_setting(
        Config, "run_dir", help="The run whose model to take."
    )
    dataset: str | None = same_setting(
        Config,
        "dataset",
        help="Whose test images to take, with the classes of the run: what"
        " --dataset of tfnet.train takes. Left unset: that of the run.",
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

    def open(self) -> "tuple[Run, Dataset]":
        """Opens the run, and the data.

        Raises:
          ConfigError: There is no such run.
          DataError: The data can't be had, or have other classes.
        """
        assert self.run_dir is not None
        run = Run.open(self.run_dir, flag="--run_dir")
        return run, run.open_dataset(
            self.dataset, self.data_dir, self.cache_dir
        )
