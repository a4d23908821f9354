"""How good a model is on examples: every figure that a person asks for."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tfnet.report import figures
from tfnet.report.figures import ClassScores


@dataclasses.dataclass(frozen=True)
class Scores:
    """How good a model is on some examples.

    Attributes:
      images: How many there are.
      loss: Mean cross-entropy, in nats; neither smoothed nor weighted.
      accuracy: The share that is classified right, in [0, 1].
      top_5_accuracy: The share whose class is among the best five, in [0, 1].
      calibration_error: Expected calibration error, in [0, 1], see
        `report.figures.calibration_error`.
      classes: Precision, recall, F1 and number of examples of each class.
      confusion: int64 [classes, classes]: a row for each true class, a column
        a guess.
    """

    images: int
    loss: float
    accuracy: float
    top_5_accuracy: float
    calibration_error: float
    classes: Mapping[str, ClassScores]
    confusion: np.ndarray


def score(
    labels: np.ndarray, logits: np.ndarray, class_names: tuple[str, ...]
) -> Scores:
    """Returns how good logits are.

    Args:
      labels: The true classes: int32 [n], n at least 1.
      logits: float [n, classes].
      class_names: The name of each class.
    """
    logits = logits.astype(np.float64)
    highest = logits.max(axis=1, keepdims=True)
    sums = np.exp(logits - highest).sum(axis=1, keepdims=True)
    log_probabilities = logits - highest - np.log(sums)
    own = np.take_along_axis(log_probabilities, labels[:, np.newaxis], axis=1)
    confusion = figures.count_confusion(labels, logits)
    probabilities = np.exp(log_probabilities)
    return Scores(
        images=len(labels),
        loss=float(-own.mean()),
        accuracy=float(np.trace(confusion) / len(labels)),
        top_5_accuracy=figures.top_k_accuracy(labels, logits, 5),
        calibration_error=figures.calibration_error(labels, probabilities),
        classes=dict(
            zip(class_names, figures.class_scores(confusion), strict=True)
        ),
        confusion=confusion,
    )


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities: of the shape and type of `logits`."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
