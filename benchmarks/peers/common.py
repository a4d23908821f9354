"""What all peers share: what they read, and what they print."""

import argparse
import dataclasses
import importlib.metadata
import json
from pathlib import Path

import numpy as np

MOMENTUM = 0.9


@dataclasses.dataclass(frozen=True)
class Work:
    """What a peer has to do.

    Attributes:
      images: uint8 [n, 32, 32, 3].
      labels: int64 [n].
      orders: int64 [epochs, n]: the images of each epoch, in order.
      weights: The initial weights, by PyTorch's names.
      batch_size: Images in a step; the last may have fewer.
      rate: The learning rate.
    """

    images: np.ndarray
    labels: np.ndarray
    orders: np.ndarray
    weights: dict[str, np.ndarray]
    batch_size: int
    rate: float

    def scaled(self) -> np.ndarray:
        """Returns the images as the seed scales them: float32, in [-1, 1]."""
        return (self.images / np.float32(255) - np.float32(0.5)) / np.float32(
            0.5
        )


def parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser of what every peer is given."""
    made = argparse.ArgumentParser(
        description=(description or "").split("\n", maxsplit=1)[0]
    )
    made.add_argument("--data", type=Path, required=True)
    made.add_argument("--batch_size", type=int, default=4)
    made.add_argument("--learning_rate", type=float, default=0.001)
    made.add_argument("--epochs", type=int, default=2)
    return made


def read(arguments: argparse.Namespace) -> Work:
    """Reads what `benchmarks.inputs` has written."""
    place = arguments.data
    with np.load(place / "weights.npz") as file:
        weights = {name: file[name] for name in file.files}
    return Work(
        images=np.load(place / "train_images.npy"),
        labels=np.load(place / "train_labels.npy"),
        orders=np.load(place / "orders.npy")[: arguments.epochs],
        weights=weights,
        batch_size=arguments.batch_size,
        rate=arguments.learning_rate,
    )


def show(
    images: int, seconds: list[float], loss: float, *packages: str
) -> None:
    """Prints what was measured, as one line of JSON.

    Args:
      images: Images in an epoch.
      seconds: How long each epoch took; the last one counts.
      loss: The mean training loss of the last epoch.
      packages: Whose versions to tell.
    """
    print(
        json.dumps(
            {
                "images_per_second": images / seconds[-1],
                "epoch_seconds": seconds,
                "loss": loss,
                "versions": {
                    name: importlib.metadata.version(name) for name in packages
                },
            }
        )
    )
