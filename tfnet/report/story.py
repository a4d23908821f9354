"""The pictures of a report, in the order that tells the story of a run.

Each has a sentence that says how to read it. What can't be drawn has one that
says why.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from tfnet.report import (
    calibration,
    classes,
    confusion,
    curves,
    examples,
    figures,
    filters,
    style,
)
from tfnet.report.examples import Guess, percent
from tfnet.report.facts import Facts

_MOST_PAIRS = 6


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture and its words, or the words alone.

    Attributes:
      name: Fit for a file name.
      title: What is seen.
      words: How to read it, and what it lacks; or why it is not there.
      alt: What a person is told who can't see it.
      png: The file. None: it can't be drawn.
      size: Width and height in pixels; (0, 0) where there is none.
    """

    name: str
    title: str
    words: str
    alt: str = ""
    png: bytes | None = None
    size: tuple[int, int] = (0, 0)


@dataclasses.dataclass(frozen=True)
class Chapter:
    """Pictures that answer one question."""

    title: str
    pictures: tuple[Picture, ...]


@dataclasses.dataclass(frozen=True)
class Study:
    """The facts, and the figures that follow from them, computed once."""

    facts: Facts

    @functools.cached_property
    def guesses(self) -> np.ndarray:
        """The likeliest class of each example: int64 [n]."""
        return self.facts.probabilities.argmax(axis=1)

    @functools.cached_property
    def confusion(self) -> np.ndarray:
        """The confusion matrix: int64 [classes, classes]."""
        return figures.count_confusion(
            self.facts.labels, self.facts.probabilities
        )

    @functools.cached_property
    def scores(self) -> list[figures.ClassScores]:
        """The scores of each class."""
        return figures.class_scores(self.confusion)

    @functools.cached_property
    def bins(self) -> figures.CalibrationBins:
        """The test examples by the probability of their guess."""
        return figures.calibration_bins(
            self.facts.labels, self.facts.probabilities
        )

    @functools.cached_property
    def worst(self) -> np.ndarray:
        """The mistakes that fill a grid, the highest loss first: int64."""
        return figures.worst_mistakes(
            self.facts.labels, self.facts.probabilities, examples.GRID_IMAGES
        )

    @property
    def accuracy(self) -> float:
        """The share of right guesses."""
        return float(np.mean(self.guesses == self.facts.labels))

    @property
    def has_mistakes(self) -> bool:
        """Whether any guess is wrong."""
        return bool(np.any(self.guesses != self.facts.labels))

    @functools.cached_property
    def absent(self) -> list[str]:
        """The names of the classes that have no test example."""
        return [
            name
            for name, one in zip(
                self.facts.class_names, self.scores, strict=True
            )
            if not one.support
        ]


def tell(study: Study) -> tuple[Chapter, ...]:
    """Draws everything.

    To be called within `style.drawing()`.
    """
    return (
        Chapter(
            "How it learned",
            (
                _learning_curves(study),
                _augmented(study),
                _learning_rate(study),
                _speed(study),
            ),
        ),
        Chapter(
            "What it confuses",
            (
                _confusion(study),
                _class_scores(study),
                _pairs(study),
                _worst_mistakes(study),
            ),
        ),
        Chapter(
            "How far to trust it",
            (
                _calibration(study),
                _certain_mistakes(study),
            ),
        ),
        Chapter(
            "What it recognises",
            (
                _right_guesses(study),
                _filters(study),
            ),
        ),
    )


def _drawn(
    name: str, title: str, figure: Figure, *sentences: str, alt: str
) -> Picture:
    width, height = (figure.get_size_inches() * style.DPI).round().astype(int)
    return Picture(
        name,
        title,
        " ".join(one for one in sentences if one),
        alt,
        style.encode_png(figure),
        (int(width), int(height)),
    )


def _learning_curves(study: Study) -> Picture:
    name, title = "learning_curves", "Loss and accuracy"
    history = study.facts.history
    train = curves.column(history, "train", "step", "loss")
    test = curves.column(history, "test", "step", "loss")
    if not len(train) and not len(test):
        return Picture(
            name,
            title,
            "Not drawn: metrics.csv has no row with a loss that is finite.",
        )
    lost = len(history) - len(train) - len(test)
    return _drawn(
        name,
        title,
        curves.draw_learning_curves(history, _steps_per_epoch(study)),
        "Training numbers are means over the steps since the point before;"
        " where the test loss rises while the training loss falls, the model"
        " learns its examples by heart.",
        "" if len(train) > 1 else _few_rows(len(train), "training"),
        "" if len(test) > 1 else _few_rows(len(test), "test"),
        f"Left out: {lost:,} rows without a finite loss." if lost else "",
        alt=f"Loss and accuracy over the steps, {len(train)} points of"
        f" training and {len(test)} of test.",
    )


def _few_rows(count: int, split: str) -> str:
    if count:
        return f"There is one {split} row, so its curve is a point."
    if split == "test":
        return "There was no evaluation, so there is no test curve."
    return "There is no training row, so there is no training curve."


def _learning_rate(study: Study) -> Picture:
    name, title = "learning_rate", "Learning rate"
    history = study.facts.history
    points = curves.column(history, "train", "step", "learning_rate")
    if not len(points):
        return Picture(
            name, title, "Not drawn: metrics.csv has no learning rate."
        )
    first, last = points[0, 1], points[-1, 1]
    return _drawn(
        name,
        title,
        curves.draw_learning_rate(history),
        "What a step multiplied its gradient with, at the end of each window"
        " of steps.",
        f"It was {last:g} throughout."
        if np.all(points[:, 1] == last)
        else f"It went from {first:g} to {last:g}.",
        alt=f"Learning rate over the steps, from {first:g} to {last:g}.",
    )


def _speed(study: Study) -> Picture:
    name, title = "speed", "Speed"
    history = study.facts.history
    points = curves.column(history, "train", "seconds", "images_per_second")
    if not len(points):
        return Picture(name, title, "Not drawn: metrics.csv has no speed.")
    low, high = points[:, 1].min(), points[:, 1].max()
    return _drawn(
        name,
        title,
        curves.draw_speed(history),
        "Images trained on in a second; a dip is other work on the machine, or"
        " data that came late.",
        alt=f"Images per second over the time, from {low:,.0f} to {high:,.0f}.",
    )


def _augmented(study: Study) -> Picture:
    name, title = "augmented", "Augmentation"
    if study.facts.augmented is None:
        return Picture(
            name,
            title,
            "Not drawn: the run trained on the images as they are.",
        )
    originals, augmented = study.facts.augmented
    if not augmented.size:
        return Picture(name, title, "Not drawn: no image was given.")
    return _drawn(
        name,
        title,
        examples.draw_augmented(originals, augmented),
        "Each row is one training image, first as it is, then as it may be"
        " changed in an epoch; its class must still be plain to see.",
        alt="Rows of training images and augmented views of each.",
    )


def _confusion(study: Study) -> Picture:
    names = study.facts.class_names
    return _drawn(
        "confusion",
        "Confusion matrix",
        confusion.draw_confusion(study.confusion, names),
        "A row is a true class and adds up to 100%, with counts in brackets"
        " where there is room; right guesses are on the diagonal.",
        f"Without a test image, so grey: {_listed(study.absent)}."
        if study.absent
        else "",
        alt=f"Confusion matrix of {len(names)} classes;"
        f" {percent(study.accuracy)} are on the diagonal.",
    )


def _class_scores(study: Study) -> Picture:
    names = study.facts.class_names
    defined = [
        (one.f1, name)
        for one, name in zip(study.scores, names, strict=True)
        if one.f1 is not None
    ]
    (low, worst), (high, best) = min(defined), max(defined)
    never = [
        name
        for one, name in zip(study.scores, names, strict=True)
        if one.precision is None
    ]
    shown = classes.choose_classes(study.scores)
    if not shown:
        return Picture(
            "class_scores",
            "Scores of each class",
            f"Not drawn: none of the {len(names):,} classes has an F1 above 0.",
        )
    return _drawn(
        "class_scores",
        "Scores of each class",
        classes.draw_class_scores(study.scores, names),
        "Precision is the share of the guesses of a class that is right, recall"
        " the share of its images that is found, F1 their harmonic mean; the"
        " lowest F1 is on top.",
        f"Without a test image, so without recall: {_listed(study.absent)}."
        if study.absent
        else "",
        f"Never guessed, so without precision: {_listed(never)}."
        if never
        else "",
        _left_out(study, len(shown)),
        alt=f"Precision, recall and F1 of each class; F1 is from"
        f" {percent(low)} ({worst}) to {percent(high)} ({best}).",
    )


def _left_out(study: Study, shown: int) -> str:
    """Returns what the picture of the scores lacks."""
    if shown == len(study.scores):
        return ""
    names = study.facts.class_names
    zero = [
        name
        for one, name in zip(study.scores, names, strict=True)
        if not one.f1
    ]
    middle = len(names) - len(zero) - shown
    parts = []
    if middle:
        parts.append(f"{middle:,} between the lowest and the highest F1")
    if zero:
        parts.append(f"{len(zero):,} without an F1 above 0: {_listed(zero)}")
    return f"Left out: {'; '.join(parts)}."


def _pairs(study: Study) -> Picture:
    name, title = "confused_pairs", "Most confused"
    pairs = figures.confused_pairs(study.confusion, _MOST_PAIRS)
    if not pairs:
        return Picture(name, title, _no_mistakes(study))
    names, labels = study.facts.class_names, study.facts.labels
    images = []
    for truth, guess, _ in pairs:
        those = np.flatnonzero((labels == truth) & (study.guesses == guess))
        certain = study.facts.probabilities[those, guess]
        order = np.argsort(-certain, kind="stable")[: examples.PAIR_IMAGES]
        images.append(study.facts.images(those[order]))
    truth, guess, count = pairs[0]
    return _drawn(
        name,
        title,
        examples.draw_pairs(
            pairs, [one.support for one in study.scores], images, names
        ),
        "The guesses that were wrong most often, with the images where the"
        " model was surest of them.",
        alt=f"Examples of the most confused pairs; first, {names[truth]} taken"
        f" for {names[guess]}, {count:,} times.",
    )


def _calibration(study: Study) -> Picture:
    return _drawn(
        "calibration",
        "Calibration",
        calibration.draw_calibration(study.bins),
        "Of the guesses that the model gives 80%, 80% should be right: bars"
        " below the dashed line are overconfident, above it too modest. The"
        " expected calibration error is the mean distance over"
        f" {len(study.bins.counts)} bins of equal width, weighted by their"
        " images (Guo et al., ICML 2017).",
        alt="Reliability diagram; the expected calibration error is"
        f" {percent(study.bins.error)}.",
    )


def _worst_mistakes(study: Study) -> Picture:
    return _grid(
        study,
        "worst_mistakes",
        "Worst mistakes",
        study.worst,
        "Images of the highest loss, where the true class (above) got least;"
        " below, in orange, the guess. Some may be labelled wrongly in the data"
        " set.",
    )


def _certain_mistakes(study: Study) -> Picture:
    name, title = "certain_mistakes", "Most certain mistakes"
    found = figures.most_certain_mistakes(
        study.facts.labels, study.facts.probabilities, examples.GRID_IMAGES
    )
    if len(found) and np.array_equal(found, study.worst):
        return Picture(
            name,
            title,
            "Not drawn: they are the worst mistakes, in the same order.",
        )
    return _grid(
        study,
        name,
        title,
        found,
        "Wrong guesses of the highest probability: a threshold that keeps"
        " these out keeps out many right guesses too.",
    )


def _right_guesses(study: Study) -> Picture:
    name, title = "right_guesses", "Right guesses"
    labels = study.facts.labels
    right = np.flatnonzero(study.guesses == labels)
    if not len(right):
        return Picture(name, title, "Not drawn: no guess is right.")
    by_class = right[np.argsort(labels[right], kind="stable")]
    count = min(len(right), examples.GRID_IMAGES)
    chosen = by_class[np.arange(count) * len(right) // count]
    return _grid(
        study,
        name,
        title,
        chosen,
        "What went well, chosen evenly over the classes, with the probability"
        " of the guess.",
    )


def _grid(
    study: Study, name: str, title: str, indices: np.ndarray, words: str
) -> Picture:
    if not len(indices):
        return Picture(name, title, _no_mistakes(study))
    labels, probabilities = study.facts.labels, study.facts.probabilities
    guesses = [
        Guess(
            truth=int(labels[i]),
            guess=int(study.guesses[i]),
            truth_probability=float(probabilities[i, labels[i]]),
            guess_probability=float(probabilities[i, study.guesses[i]]),
        )
        for i in indices
    ]
    names = study.facts.class_names
    told = ", ".join(
        f"{names[one.truth]} as {names[one.guess]}" for one in guesses[:3]
    )
    return _drawn(
        name,
        title,
        examples.draw_grid(
            study.facts.images(indices),
            guesses,
            names,
            title=f"{title}: true class"
            + (", guess in orange" if name.endswith("mistakes") else "")
            + ", with probability",
        ),
        words,
        alt=f"{len(indices)} test images: {told}"
        f"{' and others' if len(indices) > 3 else ''}.",
    )


def _filters(study: Study) -> Picture:
    name, title = "filters", "Filters of the first layer"
    kernel = study.facts.filters
    if kernel is None:
        return Picture(
            name,
            title,
            "Not drawn: the model does not begin with a convolution.",
        )
    if not filters.can_draw(kernel):
        return Picture(
            name,
            title,
            f"Not drawn: its kernel is {' x '.join(map(str, kernel.shape))},"
            " and only one that looks at 3 colours, or at grey, is a picture.",
        )
    count = kernel.shape[3]
    more = count - filters.MOST_FILTERS
    return _drawn(
        name,
        title,
        filters.draw_filters(kernel),
        "The weights of each filter as colours, stretched to its largest; grey"
        " is 0. Edges and blobs of colour are what training makes of noise.",
        f"Left out: the last {more}." if more > 0 else "",
        alt=f"{min(count, filters.MOST_FILTERS)} filters as colours.",
    )


def _no_mistakes(study: Study) -> str:
    assert not study.has_mistakes
    count = len(study.facts.labels)
    return f"Not drawn: all {count:,} guesses are right."


def _steps_per_epoch(study: Study) -> int | None:
    record = study.facts.record
    if "dataset" not in record or "batch_size" not in record:
        return None
    batches = record.get("settings", {}).get("accumulate_steps", 1)
    # Rounded up: the last step of an epoch may be smaller.
    return -(-record["dataset"]["train"] // (record["batch_size"] * batches))


def _listed(names: Sequence[str], most: int = 10) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
