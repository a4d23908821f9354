"""Predicts image files with a SavedModel, decoding them in tf.data.

python -m benchmarks.peers.tf_predict SAVED_MODEL FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

_BATCH = 256
_SIZE = 32


def main() -> None:
    """Prints the name, the class and the probability of each file."""
    saved_model, folder = sys.argv[1:]
    files = sorted(str(path) for path in Path(folder).iterdir())
    model = tf.saved_model.load(saved_model)
    predict = model.signatures["serving_default"]

    def decode(name: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_jpeg(tf.io.read_file(name), channels=3)
        return tf.ensure_shape(image, [_SIZE, _SIZE, 3])

    images = tf.data.Dataset.from_tensor_slices(files)
    images = images.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    images = images.batch(_BATCH).prefetch(tf.data.AUTOTUNE)
    names = iter(files)
    for batch in images:
        found = predict(images=batch)
        classes = found["class_name"].numpy()
        best = np.max(found["probabilities"].numpy(), axis=1)
        for label, probability in zip(classes, best, strict=True):
            print(f"{next(names)}: {label.decode()} {probability:.1%}")


if __name__ == "__main__":
    main()
