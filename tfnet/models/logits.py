"""What a model gives for many images."""

import keras
import numpy as np
import tensorflow as tf

from tfnet.data import images as image_rule
from tfnet.data.dataset import Examples
from tfnet.data.scaling import Scaling

_CHUNK = 500
_CHUNK_BYTES = 2**25


def compute_logits(
    model: keras.Model, examples: Examples, scaling: Scaling
) -> np.ndarray:
    """Returns the logits of every example, on the first device.

    Args:
      model: Takes scaled images and gives logits.
      examples: The images.
      scaling: Scales their pixels for the model.

    Returns:
      float64 or float32 [examples, classes].
    """

    @tf.function(reduce_retracing=True, autograph=False)
    def logits(images: tf.Tensor) -> tf.Tensor:
        found = model(image_rule.scale(images, scaling), training=False)
        return found if found.dtype == tf.float64 else tf.cast(found, "float32")

    chunk = max(1, min(_CHUNK, _CHUNK_BYTES // examples.image_bytes))
    parts = []
    for start in range(0, len(examples), chunk):
        indices = np.arange(start, min(start + chunk, len(examples)))
        images, _ = examples.take(indices)
        parts.append(logits(tf.constant(images)).numpy())
    return np.concatenate(parts)
