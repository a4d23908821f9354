"""The bundled sample: Fashion-MNIST's 10,000 test images, 8,000 / 2,000.

The two files in `sample/` are as their authors published them; their licence
(MIT) and source stand beside them.
"""

import gzip
from pathlib import Path

import numpy as np

from tfnet.data import source
from tfnet.data.dataset import Examples

NAME = "fashion_mnist_10k"

CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

_TRAIN = 8000


def open_sample() -> source.Source:
    """Returns the bundled sample: the first 8,000 images train, 2,000 test."""
    folder = Path(__file__).parent / "sample"
    images = _read_idx(folder / "t10k-images-idx3-ubyte.gz")
    labels = _read_idx(folder / "t10k-labels-idx1-ubyte.gz")
    images = np.repeat(images[..., np.newaxis], 3, axis=-1)
    return source.from_examples(
        {
            "train": Examples(images[:_TRAIN], labels[:_TRAIN]),
            "test": Examples(images[_TRAIN:], labels[_TRAIN:]),
        },
        name=NAME,
        origin="the sample bundled with tfnet",
        class_names=CLASS_NAMES,
    )


def _read_idx(path: Path) -> np.ndarray:
    """Reads an IDX file of bytes: a big-endian header, then the values."""
    content = gzip.decompress(path.read_bytes())
    axes = content[3]
    shape = np.frombuffer(content, ">i4", count=axes, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    return values.reshape(shape)
