"""ONNX: uint8 images of the model's size to logits, channels last.

By tf2onnx itself and not by Keras' `model.export(format="onnx")`, which asks
for float32 images, and so would leave the scaling of pixels out.
"""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfnet.devices.runtime import hold_back_noise
from tfnet.exports.classifier import Classifier, Predict

_OPSET = 17


def write(path: Path, classifier: Classifier) -> None:
    """Writes a `.onnx` file with one input, `images`, one output, `logits`."""
    import onnx
    import tf2onnx

    served = classifier.served(tf.uint8)
    with hold_back_noise(verbose=False):
        graph, _ = tf2onnx.convert.from_function(
            served.serve,
            input_signature=served.serve.input_signature,
            opset=_OPSET,
        )
    for one in (*graph.graph.input, *graph.graph.output):
        one.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.checker.check_model(graph, full_check=True)
    onnx.save(graph, path)


def read(path: Path) -> dict[str, Predict]:
    """Loads the file with ONNX Runtime, on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(
        str(path), providers=["CPUExecutionProvider"]
    )

    def logits(images: np.ndarray) -> Any:
        return session.run(["logits"], {"images": images})[0]

    return {"images": logits}
