"""What is exported: a model with the scaling of pixels before it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfnet.data import images as image_rule
from tfnet.data.scaling import Scaling

# Logits [n, classes] of images, uint8 [n, image_size, image_size, 3].
Predict = Callable[[np.ndarray], Any]


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A model, and what there is to know to export it.

    Attributes:
      model: Takes scaled images and gives logits.
      scaling: Scales the pixels for it.
      class_names: The name of each class.
      image_size: Height and width that the model takes, in pixels.
      calibration: Real images, uint8 [n, image_size, image_size, 3]: the range
        of what a model in integers must hold.
    """

    model: keras.Model
    scaling: Scaling
    class_names: tuple[str, ...]
    image_size: int
    calibration: np.ndarray

    def logits(self, images: Any) -> tf.Tensor:
        """Returns the logits [n, classes] of pixels from 0 to 255."""
        return self.model(
            image_rule.scale(images, self.scaling), training=False
        )

    def served(self, pixels: tf.DType) -> "Served":
        """Returns a graph that takes images in the type `pixels`."""
        return Served(self, pixels)


class Served(tf.Module):
    """A graph from `images` [batch, size, size, 3] to `logits`.

    Attributes:
      serve: The tf.function.
    """

    def __init__(self, classifier: Classifier, pixels: tf.DType) -> None:
        """Describes the graph; it is traced when it is asked for."""
        super().__init__()
        # A converter freezes only variables that the module itself holds; of
        # others it gives what memory holds by chance.
        self._variables = [v.value for v in classifier.model.variables]
        size = classifier.image_size
        self.serve = tf.function(
            lambda images: {"logits": classifier.logits(images)},
            input_signature=[
                tf.TensorSpec([None, size, size, 3], pixels, name="images")
            ],
        )
