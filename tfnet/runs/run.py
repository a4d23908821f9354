"""What a run gives to the program that started it."""

import dataclasses
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
      model: The trained model, an ordinary Keras model: float32 images
        [batch, height, width, 3] scaled to [-1, 1], to logits [batch,
        classes].
      record: What `run.json` in the directory holds.
      directory: The run directory; None after a dry run.
    """

    model: Any
    record: dict[str, Any]
    directory: Path | None
