"""What all sides train on: the same images, order and initial weights."""

import dataclasses
from pathlib import Path

import numpy as np

EPOCHS = 2
_SEED = 0
_TEST_IMAGES = 1_000
_PREDICTED_FILES = 10_000


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set as arrays.

    Attributes:
      name: What it is called.
      images: uint8 [n, 32, 32, 3].
      labels: int64 [n].
      test_images: uint8 [n, 32, 32, 3].
      test_labels: int64 [n].
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def read_source(dataset: str | None) -> Source:
    """Reads what `--dataset` of tfnet.train names; repeated to 50,000 images.

    The bundled sample has 8,000, and no peer's speed depends on what they
    show.
    """
    from tfnet import parts
    from tfnet.config import Config
    from tfnet.data.order import epoch_order

    parts.start_without_training()
    found = parts.open_dataset(Config(dataset=dataset))
    # A folder comes class by class, and a part of it must have all classes.
    order = epoch_order(len(found.train), seed=_SEED, epoch=EPOCHS)
    train = found.train.take(order[np.arange(50_000) % len(order)])
    test = found.test.take(np.arange(10_000) % len(found.test))
    return Source(
        found.name,
        np.asarray(train[0]),
        train[1].astype(np.int64),
        np.asarray(test[0]),
        test[1].astype(np.int64),
    )


def write_inputs(
    place: Path, source: Source, images: int, test_images: int = _TEST_IMAGES
) -> Path:
    """Writes the arrays that every side reads.

    Args:
      place: The directory to make.
      source: Where they come from.
      images: How many training images.
      test_images: How many test images.

    Returns:
      The directory: arrays as tfnet's --dataset takes them, `orders.npy`
      (int64 [epochs, images]) and `weights.npz`, by PyTorch's names.
    """
    from tfnet.data.order import epoch_order
    from tfnet.models import build_model
    from tfnet.models.pytorch import to_state_dict

    place.mkdir(parents=True)
    for name, values in {
        "train_images": source.images[:images],
        "train_labels": source.labels[:images],
        "test_images": source.test_images[:test_images],
        "test_labels": source.test_labels[:test_images],
        "orders": np.stack(
            [epoch_order(images, seed=_SEED, epoch=e) for e in range(EPOCHS)]
        ).astype(np.int64),
    }.items():
        np.save(place / f"{name}.npy", values)
    model = build_model("net", (32, 32, 3), 10, seed=_SEED)
    np.savez(place / "weights.npz", **to_state_dict(model))
    return place


def write_files(place: Path, source: Source) -> Path:
    """Writes test images as JPEG files, and returns their directory."""
    import tensorflow as tf

    place.mkdir(parents=True)
    for number, image in enumerate(source.test_images[:_PREDICTED_FILES]):
        data = tf.io.encode_jpeg(image, quality=95).numpy()
        (place / f"{number:05}.jpg").write_bytes(data)
    return place


def write_made_up(place: Path, images: int) -> Path:
    """Writes so many black images: a file with a hole, which takes no disk."""
    place.mkdir(parents=True)
    for name, count in (("train", images), ("test", 10)):
        np.lib.format.open_memmap(
            place / f"{name}_images.npy", "w+", np.uint8, (count, 32, 32, 3)
        ).flush()
        np.save(place / f"{name}_labels.npy", np.arange(count) % 10)
    return place
