"""The figures of a classifier, from true classes and probabilities.

Pure functions of arrays. A figure whose denominator is 0 is undefined, and is
None: never 0, never NaN.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class ClassScores:
    """The scores of one class, each from 0 to 1.

    Attributes:
      precision: Of the guesses of this class, the share that is right. None:
        it was never guessed.
      recall: Of the examples of this class, the share that was found. None:
        there are none.
      f1: The harmonic mean of the two. None: it was never guessed, and there
        are no examples.
      support: How many examples there are.
    """

    precision: float | None
    recall: float | None
    f1: float | None
    support: int


@dataclasses.dataclass(frozen=True)
class CalibrationBins:
    """Examples put together by the probability of their guess.

    Attributes:
      counts: How many examples each bin holds: int64 [bins].
      confidence: The mean probability of their guesses: float64 [bins], 0 in
        a bin that is empty.
      accuracy: The share of their guesses that is right: the same.
    """

    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def error(self) -> float:
        """The mean of |accuracy - confidence|, weighted by the counts."""
        gaps = np.abs(self.accuracy - self.confidence)
        return float(np.sum(self.counts * gaps) / np.sum(self.counts))


def count_confusion(
    labels: np.ndarray, probabilities: np.ndarray
) -> np.ndarray:
    """Counts how many examples of each class were taken for which.

    Args:
      labels: The true classes: int32 [n].
      probabilities: float32 [n, classes].

    Returns:
      int64 [classes, classes]: a row for each true class, a column a guess.
    """
    classes = probabilities.shape[1]
    pairs = labels.astype(np.int64) * classes + probabilities.argmax(axis=1)
    counts = np.bincount(pairs, minlength=classes**2)
    return counts.reshape(classes, classes)


def class_scores(confusion: np.ndarray) -> list[ClassScores]:
    """Returns the scores of each class.

    Args:
      confusion: Counts, a row for each true class, a column a guess: integers
        [classes, classes].
    """
    right = np.diagonal(confusion)
    support, guessed = confusion.sum(axis=1), confusion.sum(axis=0)
    return [
        ClassScores(
            precision=_ratio(right[i], guessed[i]),
            recall=_ratio(right[i], support[i]),
            f1=_ratio(2 * right[i], guessed[i] + support[i]),
            support=int(support[i]),
        )
        for i in range(len(confusion))
    ]


def top_k_accuracy(
    labels: np.ndarray, probabilities: np.ndarray, k: int
) -> float:
    """Returns the share of examples whose class is among the k likeliest.

    An example counts when fewer than `k` classes are likelier than its own,
    as in a run's own evaluation.

    Args:
      labels: The true classes: int32 [n], n at least 1.
      probabilities: float32 [n, classes].
      k: At least 1.
    """
    own = probability_of(labels, probabilities)[:, np.newaxis]
    likelier = np.sum(probabilities > own, axis=1)
    return float(np.mean(likelier < k))


def mean_loss(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Returns the mean cross-entropy, in nats.

    A probability of 0 counts as the smallest that float32 can hold to full
    precision, so that the loss is finite.

    Args:
      labels: The true classes: int32 [n], n at least 1.
      probabilities: float32 [n, classes].
    """
    own = probability_of(labels, probabilities).astype(np.float64)
    own = np.clip(own, np.finfo(np.float32).tiny, 1)
    return float(np.mean(np.log(1 / own)))


def calibration_bins(
    labels: np.ndarray, probabilities: np.ndarray, bins: int = 15
) -> CalibrationBins:
    """Puts examples into bins of equal width by their guess's probability.

    As in Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural
    Networks, ICML 2017: bin m of M holds what is in ((m - 1)/M, m/M].

    Args:
      labels: The true classes: int32 [n].
      probabilities: float32 [n, classes].
      bins: How many, at least 1.
    """
    guesses = probabilities.argmax(axis=1)
    confidence = probability_of(guesses, probabilities).astype(np.float64)
    places = np.ceil(confidence * bins).astype(np.int64) - 1
    places = np.clip(places, 0, bins - 1)
    counts = np.bincount(places, minlength=bins)
    divisor = np.maximum(counts, 1)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(places, values, minlength=bins) / divisor

    return CalibrationBins(counts, mean(confidence), mean(guesses == labels))


def calibration_error(
    labels: np.ndarray, probabilities: np.ndarray, bins: int = 15
) -> float:
    """Returns the expected calibration error, from 0 to 1.

    That of Guo et al. 2017, see `calibration_bins`.

    Args:
      labels: The true classes: int32 [n], n at least 1.
      probabilities: float32 [n, classes].
      bins: How many bins of equal width.
    """
    return calibration_bins(labels, probabilities, bins).error


def confused_pairs(
    confusion: np.ndarray, most: int
) -> list[tuple[int, int, int]]:
    """Returns which class was taken for which, the most frequent first.

    Args:
      confusion: Counts, a row for each true class, a column a guess: integers
        [classes, classes].
      most: How many pairs at most.

    Returns:
      True class, guess and count of each pair that occurs; of equal counts,
      in the order of the classes.
    """
    mistakes = np.array(confusion)
    np.fill_diagonal(mistakes, 0)
    order = np.argsort(-mistakes, axis=None, kind="stable")[:most]
    rows, columns = np.unravel_index(order, mistakes.shape)
    return [
        (int(row), int(column), int(mistakes[row, column]))
        for row, column in zip(rows, columns, strict=True)
        if mistakes[row, column]
    ]


def worst_mistakes(
    labels: np.ndarray, probabilities: np.ndarray, most: int
) -> np.ndarray:
    """Returns the mistakes of the highest loss, the highest first.

    Args:
      labels: The true classes: int32 [n].
      probabilities: float32 [n, classes].
      most: How many at most.

    Returns:
      Indices of examples: int64 [at most `most`].
    """
    own = probability_of(labels, probabilities)
    return _first(labels, probabilities, own)[:most]


def most_certain_mistakes(
    labels: np.ndarray, probabilities: np.ndarray, most: int
) -> np.ndarray:
    """Returns the mistakes whose guess is likeliest, the likeliest first.

    Args:
      labels: The true classes: int32 [n].
      probabilities: float32 [n, classes].
      most: How many at most.

    Returns:
      Indices of examples: int64 [at most `most`].
    """
    return _first(labels, probabilities, -probabilities.max(axis=1))[:most]


def probability_of(
    classes: np.ndarray, probabilities: np.ndarray
) -> np.ndarray:
    """Returns the probability that each example gives to a class of its own.

    Args:
      classes: Integers [n].
      probabilities: float32 [n, classes].

    Returns:
      float32 [n].
    """
    return np.take_along_axis(
        probabilities, classes[:, np.newaxis].astype(np.int64), axis=1
    )[:, 0]


def _first(
    labels: np.ndarray, probabilities: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    """Returns the mistakes, the smallest key first, equal ones by index."""
    mistakes = np.flatnonzero(probabilities.argmax(axis=1) != labels)
    return mistakes[np.argsort(keys[mistakes], kind="stable")]


def _ratio(part: int, whole: int) -> float | None:
    return float(part / whole) if whole else None
