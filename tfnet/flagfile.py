"""config.flags: the settings of a run, which repeat it from anywhere."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from tfnet import command_line, files
from tfnet.config import Config
from tfnet.errors import ConfigError

if TYPE_CHECKING:
    from tfnet.data import Dataset


def flagfile(config: Config, dataset: "Dataset", directory: Path) -> str:
    """Returns the text of config.flags.

    Args:
      config: The settings of the run.
      dataset: What it trains on.
      directory: The run directory.
    """

    def absolute(path: str | None) -> str | None:
        return path and str(Path(path).expanduser().absolute())

    # Imports TensorFlow, which the commands start in their own way.
    from tfnet.data import from_arrays
    from tfnet.data.find import is_place

    name = config.dataset or dataset.name
    if is_place(name):
        name = str(absolute(name))
    repeatable = dataclasses.replace(
        config,
        dataset=name,
        data_dir=absolute(config.data_dir),
        cache_dir=absolute(config.cache_dir),
        init_from=absolute(config.init_from),
        run_dir=None,
        resume="auto",
    )
    file = f"{directory}/config.flags"
    command = f"python -m tfnet.train --flagfile={file}"
    comment = (
        f"Repeats this run: {command}\n# Goes on with it: {command}"
        f" --run_dir={directory}"
    )
    if name == from_arrays.NAME:
        comment = (
            "Repeats this run only with the arrays that a program gave it:\n"
            f"# tfnet.run(tfnet.Config.from_flags(['--flagfile={file}']),"
            " data=...)"
        )
    return command_line.to_flagfile(repeatable, comment)


def read_flagfile(path: Path) -> Config:
    """Returns the settings in the config.flags of a run.

    Raises:
      ConfigError: A line is not as it must be.
      OSError: It can't be read.
    """
    try:
        text = files.read_bytes(path).decode()
        flags = [line for line in text.splitlines() if line[:2] == "--"]
        return Config.from_flags(flags)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is damaged: it is no text; bring back a good one."
        ) from error
    except ConfigError as error:
        reason = str(error).removesuffix(".")
        raise ConfigError(
            f"{path}, the settings of the run, has a line that this tfnet"
            f" can't take: {reason}. Mend or remove that line."
        ) from error
