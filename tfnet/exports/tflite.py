"""TFLite in float32: uint8 images of the model's size to logits.

The scaling of pixels is inside, decoding and resizing are not.
"""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfnet.devices.runtime import hold_back_noise
from tfnet.errors import RunError, one_line
from tfnet.exports.classifier import Classifier, Predict


def write(path: Path, classifier: Classifier) -> None:
    """Writes a `.tflite` file with one signature, `images` to `logits`."""
    path.write_bytes(convert(converter(classifier, tf.uint8)))


def read(path: Path) -> dict[str, Predict]:
    """Loads the file with LiteRT, which follows tf.lite.Interpreter."""
    run = runner(path)
    return {"images": lambda images: run(images=images)["logits"]}


def converter(classifier: Classifier, pixels: tf.DType) -> Any:
    """Returns TensorFlow's converter for a model that takes `pixels`."""
    served = classifier.served(pixels)
    return tf.lite.TFLiteConverter.from_concrete_functions(
        [served.serve.get_concrete_function()], served
    )


def convert(converter: Any) -> bytes:
    """Converts; what TensorFlow says of its own inside is kept away.

    Raises:
      RunError: The model holds what TFLite has no operation for.
    """
    with hold_back_noise(verbose=False), warnings.catch_warnings():
        # The converter tells its caller to leave what it uses itself.
        warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprec")
        try:
            return converter.convert()
        except Exception as error:
            failure = error
    # Outside, for it would let pages of noise through.
    unknown = re.search(r"(?:TF Select|Custom) ops: (.*)", str(failure))
    what = f"it has no {unknown[1]}" if unknown else one_line(failure)
    raise RunError(
        f"this model can't be exported as TFLite: {what}; nothing was kept of"
        " it."
    ) from failure


def runner(path: Path) -> Any:
    """Returns what runs the signature of a file; takes any batch size."""
    from ai_edge_litert.interpreter import Interpreter

    with hold_back_noise(verbose=False):
        interpreter = Interpreter(model_path=str(path))
        run = interpreter.get_signature_runner()
        # The first call sets up the kernels, and says so.
        (given,) = run.get_input_details().values()
        run(images=np.zeros([1, *given["shape"][1:]], given["dtype"]))
    return run
