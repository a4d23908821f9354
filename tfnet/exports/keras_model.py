"""Keras' own format, with the scaling of pixels as a first layer.

A network that was trained on [-1, 1] and is fed 0 to 255 gives nonsense and no
error, so the scaling goes with it; the network as it was trained is the last
layer of what is loaded.
"""

from pathlib import Path

import keras

from tfnet.exports.classifier import Classifier, Predict


def write(path: Path, classifier: Classifier) -> None:
    """Writes a `.keras` file: uint8 images of `image_size` to logits."""
    size = classifier.image_size
    keras.Sequential(
        [
            keras.Input((size, size, 3), dtype="uint8", name="images"),
            # In full precision, whatever the model goes on in.
            keras.layers.Rescaling(
                1 / 127.5, offset=-1, dtype=keras.config.floatx(), name="scale"
            ),
            classifier.model,
        ],
        name="classifier",
    ).save(path)


def read(path: Path) -> dict[str, Predict]:
    """Loads the file, as any process with Keras would."""
    model = keras.models.load_model(path)
    return {"images": lambda images: model.predict(images, verbose=0)}
