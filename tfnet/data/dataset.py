"""What a data set is to the rest of tfnet: examples by index, and names."""

import dataclasses
import hashlib
import math

import numpy as np

from tfnet.data.aligned import empty_aligned
from tfnet.data.image_file import ImageFile

_FINGERPRINT_IMAGES = 4096


@dataclasses.dataclass(frozen=True)
class Examples:
    """Labelled images, all of one size, in memory or in a file.

    Attributes:
      images: uint8 [examples, height, width, 3].
      labels: int32 [examples], from 0 to the number of classes - 1.
    """

    images: np.ndarray | ImageFile
    labels: np.ndarray

    def __len__(self) -> int:
        """Returns the number of examples."""
        return len(self.labels)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""
        _, height, width, channels = self.images.shape
        return height, width, channels

    @property
    def image_bytes(self) -> int:
        """Bytes of one image."""
        return math.prod(self.image_shape)

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Copies the examples at `indices`, in that order, into memory.

        Args:
          indices: Integers [n], each from 0 to the number of examples - 1.

        Returns:
          Images, uint8 [n, height, width, 3], and labels, int32 [n].

        Raises:
          DataError: The file of the images can't be read any more.
        """
        if isinstance(self.images, np.ndarray):
            images = empty_aligned(
                (len(indices), *self.image_shape), self.images.dtype
            )
            last = len(self.images) - 1
            if len(indices) and not (
                indices.min() >= 0 and indices.max() <= last
            ):
                raise IndexError(f"an image before 0 or behind {last}")
            # With the mode that checks by itself, NumPy takes through a copy.
            np.take(self.images, indices, axis=0, out=images, mode="clip")
            return images, self.labels[indices]
        return self.images.take(indices), self.labels[indices]

    def rows(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns what `take` does, but no images: where they are.

        Args:
          indices: As `take`.

        Returns:
          `indices`, int64 [n], and labels, int32 [n].
        """
        return indices.astype(np.int64), self.labels[indices]

    def first(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Copies the first examples, `most` of them where there are as many.

        Returns:
          As `take`.
        """
        return self.take(np.arange(min(len(self), most)))


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Training and test examples, and what is known about them.

    Attributes:
      name: Short, fit for a file name, such as `cifar10`.
      origin: Where the examples were read from.
      class_names: The name of each class, in the order of the labels.
      train: The examples to train on.
      test: The examples to evaluate on.
      notes: Lines that a person should be told, such as a copy passed over.
    """

    name: str
    origin: str
    class_names: tuple[str, ...]
    train: Examples
    test: Examples
    notes: tuple[str, ...] = ()

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""
        return self.train.image_shape

    def fingerprint(self) -> str:
        """Returns a name for the contents: 64 hexadecimal digits.

        It is the SHA-256 of the class names and, for training and test
        examples, of the shape, every label and 4,096 images evenly spaced
        (all, where there are fewer). It does not depend on where or in which
        layout the data set is stored; a change in an image that is not among
        those goes unnoticed.
        """
        digest = hashlib.sha256("\n".join(self.class_names).encode())
        for examples in (self.train, self.test):
            count = min(len(examples), _FINGERPRINT_IMAGES)
            chosen = np.arange(count) * len(examples) // max(count, 1)
            images, _ = examples.take(chosen)
            digest.update(repr(examples.images.shape).encode())
            digest.update(np.ascontiguousarray(examples.labels, "<i4").data)
            digest.update(np.ascontiguousarray(images).data)
        return digest.hexdigest()
