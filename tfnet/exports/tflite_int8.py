"""TFLite in 8-bit integers from the first operation to the last.

Takes the pixels as they are, uint8 of the model's size, and gives int8 logits,
with the scale and zero point in the file that make numbers of them. It costs
accuracy; how much, `exports.export` says.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfnet.errors import RunError
from tfnet.exports import tflite
from tfnet.exports.classifier import Classifier, Predict


def write(path: Path, classifier: Classifier) -> None:
    """Writes a `.tflite` file with one signature, `images` to `logits`.

    Raises:
      RunError: A pixel would not be taken as it is.
    """
    converter = tflite.converter(classifier, tf.float32)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: _samples(classifier.calibration)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.uint8
    converter.inference_output_type = tf.int8
    path.write_bytes(tflite.convert(converter))


def _samples(images: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    for number, image in enumerate(images.astype(np.float32)):
        if number == 0:
            # With the whole range, 256 steps from 0 to 255, an integer is a
            # pixel.
            image[0, 0], image[-1, -1] = 0, 255
        yield {"images": image[np.newaxis]}


def read(path: Path) -> dict[str, Predict]:
    """Loads the file with LiteRT.

    Raises:
      RunError: It does not take pixels as they are.
    """
    run = tflite.runner(path)
    scale, zero_point = run.get_input_details()["images"]["quantization"]
    if zero_point != 0 or not np.isclose(scale, 1, rtol=1e-6):
        raise RunError(
            f"tflite_int8 takes a pixel as {scale} * (pixel - {zero_point}),"
            " not as it is; nothing was kept of it."
        )
    scale, zero_point = run.get_output_details()["logits"]["quantization"]

    def logits(images: np.ndarray) -> Any:
        found = run(images=images)["logits"].astype(np.float64)
        return scale * (found - zero_point)

    return {"images": logits}
