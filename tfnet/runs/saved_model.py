"""The SavedModel: what a process without tfnet serves images with.

Decoding, resizing and scaling are inside, by the same rule as in training.
"""

import errno
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfnet import files
from tfnet.data import images as image_rule
from tfnet.errors import RunError

# Loading builds the graph anew, which may add up in another order: some last
# bits of what the model computes in.
_TOLERANCE = {"float16": 2.0**-8, "bfloat16": 2.0**-5}
_USUAL_TOLERANCE = 1e-4


class _Server(tf.Module):
    """The signatures of the exported model."""

    def __init__(
        self, model: keras.Model, class_names: tuple[str, ...], size: int
    ) -> None:
        super().__init__()
        self._model = model
        # Keras hides the state of a layer that draws from what is saved.
        self._variables = [variable.value for variable in model.variables]
        self._class_names = list(class_names)
        self._size = size

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, None, 3], tf.uint8, name="images")
        ]
    )
    def serve_images(self, images: Any) -> dict[str, Any]:
        return self._outputs(image_rule.resize(images, self._size))

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="encoded")]
    )
    def serve_encoded(self, encoded: Any) -> dict[str, Any]:
        images = tf.map_fn(
            lambda one: image_rule.resize(image_rule.decode(one), self._size),
            encoded,
            fn_output_signature=tf.TensorSpec(
                [self._size, self._size, 3], tf.uint8
            ),
        )
        return self._outputs(images)

    @tf.function(input_signature=[])
    def about(self) -> dict[str, Any]:
        return {
            "class_names": tf.constant(self._class_names),
            "image_size": tf.constant(self._size),
        }

    def _outputs(self, images: Any) -> dict[str, Any]:
        logits = self._model(image_rule.scale(images), training=False)
        class_id = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "class_id": class_id,
            "class_name": tf.gather(tf.constant(self._class_names), class_id),
        }


def export_saved_model(
    path: Path,
    model: keras.Model,
    class_names: tuple[str, ...],
    *,
    image_size: int,
    examples: np.ndarray,
) -> None:
    """Exports a model, loads it back, and compares.

    The signature `serving_default` takes `images`, uint8 [batch, height,
    width, 3] of any size; `encoded` takes the bytes of JPEG, PNG, GIF, BMP or
    WebP files, string [batch]. Both give `logits` and `probabilities` (float32
    [batch, classes]), `class_id` (int32 [batch]) and `class_name` (string
    [batch]). `about` takes nothing and gives `class_names` (string [classes])
    and `image_size` (int32).

    Args:
      path: The directory to make; it appears when it is whole and checked.
      model: Takes images scaled to [-1, 1] and gives logits.
      class_names: The name of each class.
      image_size: Height and width that the model takes, in pixels.
      examples: Real images to compare on: uint8 [n, image_size, image_size,
        3].

    Raises:
      OSError: It could not be written.
      RunError: What was loaded back gives something else.
    """
    server = _Server(model, class_names, image_size)
    with files.new_directory(path) as aside:
        try:
            tf.saved_model.save(
                server,
                str(aside),
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
        _compare(aside, model, examples)


def _compare(path: Path, model: keras.Model, examples: np.ndarray) -> None:
    tolerance = _TOLERANCE.get(model.compute_dtype, _USUAL_TOLERANCE)
    expected = model(image_rule.scale(examples), training=False).numpy()
    signatures = tf.saved_model.load(str(path)).signatures
    given = signatures["serving_default"](images=tf.constant(examples))
    encoded = [tf.io.encode_png(image) for image in examples]
    decoded = signatures["encoded"](encoded=tf.stack(encoded))
    for name, outputs in (("images", given), ("encoded", decoded)):
        logits = outputs["logits"].numpy()
        # Relative to the largest: a small logit is a difference of large
        # sums. A model that gives NaN must give it when loaded back, too.
        allowed = tolerance * max(1.0, np.max(np.abs(expected), initial=0))
        if not np.allclose(
            logits, expected, rtol=0, atol=allowed, equal_nan=True
        ):
            difference = np.max(np.abs(logits - expected))
            raise RunError(
                f"the exported model gives other logits for {name} than the"
                f" trained one (they differ by {difference:.3g}), so it was"
                " not kept."
            )
