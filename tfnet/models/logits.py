"""What a model gives for many images."""

import keras
import numpy as np
import tensorflow as tf

from tfnet.data import images as image_rule
from tfnet.data.dataset import Examples

_CHUNK = 500
_CHUNK_BYTES = 2**25


def compute_logits(model: keras.Model, examples: Examples) -> np.ndarray:
    """Returns the logits of every example, on the first device.

    Args:
      model: Takes images scaled to [-1, 1] and gives logits.
      examples: The images.

    Returns:
      float64 or float32 [examples, classes].
    """

    @tf.function(reduce_retracing=True, autograph=False)
    def logits(images: tf.Tensor) -> tf.Tensor:
        found = model(image_rule.scale(images), training=False)
        return found if found.dtype == tf.float64 else tf.cast(found, "float32")

    chunk = max(1, min(_CHUNK, _CHUNK_BYTES // examples.image_bytes))
    parts = []
    for start in range(0, len(examples), chunk):
        indices = np.arange(start, min(start + chunk, len(examples)))
        images, _ = examples.take(indices)
        parts.append(logits(tf.constant(images)).numpy())
    return np.concatenate(parts)
