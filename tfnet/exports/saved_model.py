"""The SavedModel: what a process without tfnet serves images with.

Decoding, resizing and scaling are inside, by the same rule as in training.
The signature `serving_default` takes `images`, uint8 [batch, height, width, 3]
of any size; `encoded` takes the bytes of JPEG, PNG, GIF, BMP or WebP files,
string [batch]. Both give `logits` and `probabilities` (float32 [batch,
classes]), `class_id` (int32 [batch]) and `class_name` (string [batch]).
`about` takes nothing and gives `class_names` (string [classes]) and
`image_size` (int32).
"""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfnet.data import images as image_rule
from tfnet.exports.classifier import Classifier, Predict


class _Server(tf.Module):
    """The signatures of the exported model."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self._classifier = classifier
        self._model = classifier.model
        # Keras hides the state of a layer that draws from what is saved.
        self._variables = [v.value for v in classifier.model.variables]
        self._size = classifier.image_size

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, None, 3], tf.uint8, name="images")
        ],
        autograph=False,
    )
    def serve_images(self, images: Any) -> dict[str, Any]:
        return self._outputs(image_rule.resize(images, self._size))

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="encoded")],
        autograph=False,
    )
    def serve_encoded(self, encoded: Any) -> dict[str, Any]:
        images = image_rule.decode_all(encoded, self._size)
        return self._outputs(images)

    @tf.function(input_signature=[], autograph=False)
    def about(self) -> dict[str, Any]:
        return {
            "class_names": tf.constant(list(self._classifier.class_names)),
            "image_size": tf.constant(self._size),
        }

    def _outputs(self, images: Any) -> dict[str, Any]:
        logits = self._classifier.logits(images)
        class_id = tf.argmax(logits, axis=-1, output_type=tf.int32)
        class_names = tf.constant(list(self._classifier.class_names))
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "class_id": class_id,
            "class_name": tf.gather(class_names, class_id),
        }


def write(path: Path, classifier: Classifier) -> None:
    """Writes a SavedModel into the directory `path`.

    Raises:
      OSError: It could not be written.
    """
    server = _Server(classifier)
    try:
        tf.saved_model.save(
            server,
            str(path),
            signatures={
                "serving_default": server.serve_images,
                "encoded": server.serve_encoded,
                "about": server.about,
            },
        )
    except tf.errors.ResourceExhaustedError as error:
        # How TensorFlow says that a disk is full.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
    except tf.errors.OpError as error:
        raise OSError(error.message.split("\n")[0]) from error


def read(path: Path) -> dict[str, Predict]:
    """Loads the SavedModel; returns each way to give it images."""
    signatures = tf.saved_model.load(str(path)).signatures

    def images(pixels: np.ndarray) -> Any:
        return signatures["serving_default"](images=tf.constant(pixels))[
            "logits"
        ]

    def encoded(pixels: np.ndarray) -> Any:
        encoded = tf.stack([tf.io.encode_png(image) for image in pixels])
        return signatures["encoded"](encoded=encoded)["logits"]

    return {"images": images, "encoded": encoded}
