"""One picture by itself, as a PNG file."""

from collections.abc import Sequence

import numpy as np

from tfnet.report import confusion, examples, style


def confusion_png(matrix: np.ndarray, class_names: Sequence[str]) -> bytes:
    """Draws the confusion matrix.

    Args:
      matrix: Counts, a row for each true class: integers [classes, classes].
      class_names: The name of each class.
    """
    with style.drawing():
        return style.encode_png(confusion.draw_confusion(matrix, class_names))


def examples_png(
    images: np.ndarray,
    labels: np.ndarray,
    views: np.ndarray | None,
    class_names: Sequence[str],
) -> bytes:
    """Draws training images as they are fed.

    Args:
      images: uint8 [k, height, width, 3], k at least 1.
      labels: Their classes: integers [k].
      views: What augmentation made of each: uint8 [k, times, height, width,
        3]; None: they are fed as they are.
      class_names: The name of each class.
    """
    with style.drawing():
        if views is None:
            figure = examples.draw_examples(images, labels, class_names)
        else:
            figure = examples.draw_augmented(images, views)
        return style.encode_png(figure)
