"""Keras' own format, with the scaling of pixels as a first layer.

A network that was trained on scaled pixels and is fed 0 to 255 gives nonsense
and no error, so the scaling goes with it; the network as it was trained is the
last layer of what is loaded.
"""

from pathlib import Path
from typing import Any

import keras

from tfnet.data.scaling import SEED, Scaling
from tfnet.exports.classifier import Classifier, Predict


def write(path: Path, classifier: Classifier) -> None:
    """Writes a `.keras` file: uint8 images of `image_size` to logits."""
    size = classifier.image_size
    keras.Sequential(
        [
            keras.Input((size, size, 3), dtype="uint8", name="images"),
            _first_layer(classifier.scaling),
            classifier.model,
        ],
        name="classifier",
    ).save(path)


def _first_layer(scaling: Scaling) -> Any:
    # In full precision, whatever the model goes on in.
    dtype = keras.config.floatx()
    if scaling == SEED:
        return keras.layers.Rescaling(
            1 / 127.5, offset=-1, dtype=dtype, name="scale"
        )
    # Subtracts first, as in training: where the deviation is small, what a
    # Rescaling adds afterwards would cancel.
    return keras.layers.Normalization(
        mean=list(scaling.zero),
        variance=[one**2 for one in scaling.one],
        dtype=dtype,
        name="scale",
    )


def read(path: Path) -> dict[str, Predict]:
    """Loads the file, as any process with Keras would."""
    model = keras.models.load_model(path)
    return {"images": lambda images: model.predict(images, verbose=0)}
