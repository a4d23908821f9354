"""What a report is made from: plain values, checked."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a report shows.

    Attributes:
      record: What run.json holds. What it lacks is left out of the page.
      history: The rows of metrics.csv, with numbers; None where one is empty.
      class_names: The name of each class, in the order of the labels.
      labels: The true classes of the test examples: int32 [n], n at least 1.
      probabilities: What the model gives for them: float32 [n, classes], each
        from 0 to 1.
      images: Gives the test examples at indices (integers [k]): uint8 [k,
        height, width, 3].
      filters: The kernel of the first layer: float32 [height, width, in,
        out]. None: the model does not begin with a convolution.
      augmented: Training images (uint8 [k, height, width, 3]) and what
        augmentation made of each (uint8 [k, times, height, width, 3]). None:
        there is no augmentation.
      defaults: The default of each setting. A setting of the record that
        equals its default is left out of the page.

    Raises:
      ValueError: The labels, probabilities and names do not fit one another,
        or a probability is no number from 0 to 1.
    """

    record: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    class_names: tuple[str, ...]
    labels: np.ndarray
    probabilities: np.ndarray
    images: Callable[[np.ndarray], np.ndarray]
    filters: np.ndarray | None
    augmented: tuple[np.ndarray, np.ndarray] | None
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks what the pictures rely on."""
        count, classes = len(self.labels), len(self.class_names)
        if not count:
            raise ValueError("a report needs at least one test example")
        if self.probabilities.shape != (count, classes):
            raise ValueError(
                f"probabilities {self.probabilities.shape} must be"
                f" {(count, classes)}: examples, classes"
            )
        if not (self.labels.min() >= 0 and self.labels.max() < classes):
            raise ValueError(f"labels must be from 0 to {classes - 1}")
        # Rounding may lead a little beyond 1. NaN compares as False.
        low, high = self.probabilities.min(), self.probabilities.max()
        if not (low >= 0 and high <= 1.001):
            raise ValueError("probabilities must be numbers from 0 to 1")
