"""One way to export, whatever the format: write aside, load back, compare."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfnet import files
from tfnet.errors import ConfigError, Error, RunError, one_line
from tfnet.exports.formats import FORMATS, Format

if TYPE_CHECKING:
    import keras

    from tfnet.data.scaling import Scaling
    from tfnet.exports.classifier import Classifier, Predict

# Other software adds up in another order: some last bits of what the model
# computes in.
_TOLERANCE = {"float16": 2.0**-8, "bfloat16": 2.0**-5}
_USUAL_TOLERANCE = 1e-4
_CALIBRATION_IMAGES = 256
_CHUNK = 128


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An exported model beside the one that was trained, on the same images.

    Attributes:
      max_difference: The largest difference of a logit.
      accuracy: The share that the exported model classifies right, in [0, 1].
      reference_accuracy: The same of the trained one.
      images: On how many images.
    """

    max_difference: float
    accuracy: float
    reference_accuracy: float
    images: int


def export(
    format: str,
    path: Path,
    model: "keras.Model",
    class_names: tuple[str, ...],
    *,
    scaling: "Scaling",
    image_size: int,
    examples: np.ndarray,
    labels: np.ndarray,
    calibration: np.ndarray | None = None,
) -> Comparison:
    """Exports a model, loads it back, and compares.

    Args:
      format: A name in `FORMATS`.
      path: The file or directory to make; it appears when it is whole and
        checked. What was there is replaced.
      model: Takes scaled images and gives logits.
      class_names: The name of each class.
      scaling: What scaled them in training.
      image_size: Height and width that the model takes, in pixels.
      examples: Real images to compare on, one at least: uint8 [n, image_size,
        image_size, 3].
      labels: Their classes: integers [n].
      calibration: Other real images, of the training data, whose range the
        integers of `tflite_int8` are made for: uint8 [n, image_size,
        image_size, 3]. None: the examples.

    Returns:
      How it compares with the model. The formats in floating point agree with
      it to rounding; `tflite_int8` as far as 8 bits go.

    Raises:
      ConfigError: There is no such format, a package that it needs is not
        installed, or it is not for this model or what that computes in.
      OSError: It could not be written; what was there before is unchanged.
      RunError: The model can't be had in this format, or what was loaded back
        gives something else; what was there before is unchanged.
    """
    from tfnet.exports.classifier import Classifier

    if format not in FORMATS:
        raise ConfigError(
            f"the format ({format}) must be one of {', '.join(FORMATS)}; for"
            " example saved_model."
        )
    kind = FORMATS[format]
    kind.check_precision(model.compute_dtype)
    module = kind.module()
    if calibration is None:
        calibration = examples
    classifier = Classifier(
        model,
        scaling,
        class_names,
        image_size,
        calibration[:_CALIBRATION_IMAGES],
    )
    with _new(kind, path) as aside:
        try:
            module.write(aside, classifier)
            readers = module.read(aside)
            return _compare(kind, readers, classifier, examples, labels)
        except (Error, OSError, MemoryError):
            raise
        except Exception as error:
            # The converters raise anything for a layer they do not know.
            raise RunError(
                f"this model can't be exported as {format}:"
                f" {one_line(error)}; nothing was kept of it."
            ) from error


def _new(kind: Format, path: Path) -> contextlib.AbstractContextManager[Path]:
    if not kind.holds:
        return files.new_file(path)
    return files.new_directory(path, replaces=kind.holds)


def _compare(
    kind: Format,
    readers: "Mapping[str, Predict]",
    classifier: "Classifier",
    examples: np.ndarray,
    labels: np.ndarray,
) -> Comparison:
    expected = _predict(classifier.logits, examples)
    found = {name: _predict(one, examples) for name, one in readers.items()}
    for name, logits in found.items():
        if kind.is_exact:
            _check(f"{kind.name} ({name})", logits, expected, classifier.model)
    return Comparison(
        max_difference=max(
            _largest(logits - expected) for logits in found.values()
        ),
        accuracy=min(_accuracy(logits, labels) for logits in found.values()),
        reference_accuracy=_accuracy(expected, labels),
        images=len(examples),
    )


def _check(
    name: str, logits: np.ndarray, expected: np.ndarray, model: Any
) -> None:
    tolerance = _TOLERANCE.get(model.compute_dtype, _USUAL_TOLERANCE)
    # Relative to the largest: a small logit is a difference of large sums. A
    # model that gives NaN must give it when loaded back, too.
    allowed = tolerance * max(1.0, _largest(expected))
    if not np.allclose(logits, expected, rtol=0, atol=allowed, equal_nan=True):
        raise RunError(
            f"the exported model, {name}, gives other logits than the trained"
            f" one: they differ by {_largest(logits - expected):.3g}, where"
            f" {allowed:.3g} is rounding; it was not kept."
        )


def _predict(predict: "Predict", images: np.ndarray) -> np.ndarray:
    """Returns logits [n, classes], in float64; some images at a time."""
    logits = [np.asarray(predict(chunk)) for chunk in _chunks(images)]
    return np.concatenate(logits).astype(np.float64)


def _chunks(images: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(images), _CHUNK):
        yield images[start : start + _CHUNK]


def _largest(values: np.ndarray) -> float:
    return float(np.max(np.abs(values), initial=0))


def _accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(logits.argmax(axis=1) == labels))
