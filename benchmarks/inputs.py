"""What all sides train on: the same images, order and initial weights.

The program that starts the sides must not have TensorFlow in it: memory that
two processes share counts for each by halves. So this is a program, too:

    python -m benchmarks.inputs PLACE [--dataset NAME]
"""

import argparse
import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np

EPOCHS = 2
_SEED = 0
_IMAGES = 50_000
_TEST_IMAGES = 10_000
_SMALL_TEST = 1_000


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set, as `main` has written it.

    Attributes:
      name: What it is called.
      arrays: 50,000 training and 10,000 test images: a directory that tfnet's
        --dataset takes, with `orders.npy` (int64 [epochs, images]) and
        `weights.npz`, by PyTorch's names.
      files: The test images as JPEG files: a directory.
    """

    name: str
    arrays: Path
    files: Path


def main() -> None:
    """Writes what `Source` reads; a smaller data set is repeated.

    The bundled sample has 8,000 images, and no peer's speed depends on what
    they show.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("place", type=Path)
    parser.add_argument("--dataset")
    arguments = parser.parse_args()
    place = arguments.place

    from tfnet import parts
    from tfnet.config import Config

    parts.start_without_training()
    import tensorflow as tf

    from tfnet.data.order import epoch_order
    from tfnet.models import build_model
    from tfnet.models.pytorch import to_state_dict

    found = parts.open_dataset(Config(dataset=arguments.dataset))
    # A folder comes class by class, and a part of it must have all classes.
    order = epoch_order(len(found.train), seed=_SEED, epoch=EPOCHS)
    train = found.train.take(order[np.arange(_IMAGES) % len(order)])
    test = found.test.take(np.arange(_TEST_IMAGES) % len(found.test))
    arrays, files = place / "arrays", place / "files"
    arrays.mkdir(parents=True)
    _save(arrays, *train, *test)
    model = build_model("net", (32, 32, 3), 10, seed=_SEED)
    np.savez(arrays / "weights.npz", **to_state_dict(model))
    files.mkdir()
    for number, image in enumerate(np.asarray(test[0])):
        data = tf.io.encode_jpeg(image, quality=95).numpy()
        (files / f"{number:05}.jpg").write_bytes(data)
    print(json.dumps({"name": found.name}))


def write_part(place: Path, source: Source, images: int) -> Path:
    """Writes the first images of a source, and 1,000 of its test images.

    Args:
      place: The directory to make.
      source: Where they come from.
      images: How many training images.

    Returns:
      The directory, as `Source.arrays` is.
    """

    def read(name: str) -> np.ndarray:
        return np.load(source.arrays / f"{name}.npy", mmap_mode="r")

    place.mkdir(parents=True)
    _save(
        place,
        read("train_images")[:images],
        read("train_labels")[:images],
        read("test_images")[:_SMALL_TEST],
        read("test_labels")[:_SMALL_TEST],
    )
    shutil.copy(source.arrays / "weights.npz", place)
    return place


def _save(
    place: Path,
    images: np.ndarray,
    labels: np.ndarray,
    test_images: np.ndarray,
    test_labels: np.ndarray,
) -> None:
    from tfnet.data.order import epoch_order

    orders = [
        epoch_order(len(labels), seed=_SEED, epoch=e) for e in range(EPOCHS)
    ]
    for name, values in {
        "train_images": images,
        "train_labels": labels.astype(np.int64),
        "test_images": test_images,
        "test_labels": test_labels.astype(np.int64),
        "orders": np.stack(orders).astype(np.int64),
    }.items():
        np.save(place / f"{name}.npy", values)


def write_made_up(place: Path, images: int) -> Path:
    """Writes so many black images: a file with a hole, which takes no disk."""
    place.mkdir(parents=True)
    for name, count in (("train", images), ("test", 10)):
        np.lib.format.open_memmap(
            place / f"{name}_images.npy", "w+", np.uint8, (count, 32, 32, 3)
        ).flush()
        np.save(place / f"{name}_labels.npy", np.arange(count) % 10)
    return place


if __name__ == "__main__":
    main()
