"""config.flags: the settings of a run, which repeat it from anywhere."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from tfnet import command_line
from tfnet.config import Config

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
