"""Train small image classifiers: any number of devices, the same numbers.

The public names are imported on first use, so that `import tfnet` costs
nothing and starts nothing; it only turns on oneDNN's kernels, for a TensorFlow
that is imported later (see `devices.runtime`):

* `Config`: every setting of a run, checked.
* `run(config)`, `run(config, data=(images, labels))`: train, evaluate, export;
  returns a `Run`.
* `Run`: what that gives, or `Run.open(directory)`: settings, history, a Keras
  model, and what it says of images.
* `Error`, `ConfigError`, `DataError`, `RunError`, `Interrupted`: what can go
  wrong, each with the exit code that the commands use for it.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfnet.config import Config
    from tfnet.errors import (
        ConfigError,
        DataError,
        Error,
        Interrupted,
        RunError,
    )
    from tfnet.train import run
    from tfnet.trained import Run

__version__ = "0.1.0"

if "tensorflow" not in sys.modules:
    # TensorFlow turns oneDNN on by itself only where the processor has
    # AVX512-VNNI; on others it is up to three times as fast as what is used
    # without it. It looks at this while it is imported, and never again.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

_HOME = {
    "Config": "tfnet.config",
    "ConfigError": "tfnet.errors",
    "DataError": "tfnet.errors",
    "Error": "tfnet.errors",
    "Interrupted": "tfnet.errors",
    "Run": "tfnet.trained",
    "RunError": "tfnet.errors",
    "run": "tfnet.train",
}

__all__ = [
    "Config",
    "ConfigError",
    "DataError",
    "Error",
    "Interrupted",
    "Run",
    "RunError",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tfnet' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
