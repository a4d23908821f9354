"""The seed's network, in Keras: 62,006 parameters for 32x32 and ten classes.

Two convolutions with pooling and three dense layers, as in PyTorch's
tutorial "Training a Classifier", with PyTorch's initialisation.
"""

import math

import keras
import numpy as np

from tfnet.errors import ConfigError

_MINIMUM_SIZE = 16


def build(
    image_shape: tuple[int, int, int], num_classes: int, *, seed: int
) -> keras.Model:
    """Builds the network.

    Args:
      image_shape: Height, width (16 at least) and channels.
      num_classes: How many logits it gives.
      seed: Fixes the initial weights.

    Returns:
      A model: float32 images [batch, *image_shape] to logits [batch,
      num_classes].

    Raises:
      ConfigError: The images are too small for two convolutions and poolings.
    """
    if min(image_shape[:2]) < _MINIMUM_SIZE:
        raise ConfigError(
            f"--image_size ({min(image_shape[:2])}) must be at least"
            f" {_MINIMUM_SIZE} for --model=net; for example --image_size=32."
        )
    height, width, channels = image_shape
    flat = 16 * _after_convolutions(height) * _after_convolutions(width)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(image_shape, name="images"),
            layers.Conv2D(
                6,
                5,
                activation="relu",
                name="conv1",
                **_initializers(channels * 25, seed, 1),
            ),
            layers.MaxPooling2D(2, name="pool1"),
            layers.Conv2D(
                16,
                5,
                activation="relu",
                name="conv2",
                **_initializers(6 * 25, seed, 2),
            ),
            layers.MaxPooling2D(2, name="pool2"),
            layers.Flatten(name="flatten"),
            layers.Dense(
                120,
                activation="relu",
                name="fc1",
                **_initializers(flat, seed, 3),
            ),
            layers.Dense(
                84, activation="relu", name="fc2", **_initializers(120, seed, 4)
            ),
            layers.Dense(
                num_classes,
                name="fc3",
                # Logits in half precision would lose the small losses.
                dtype=keras.config.dtype_policy().variable_dtype,
                **_initializers(84, seed, 5),
            ),
        ],
        name="net",
    )


def _after_convolutions(size: int) -> int:
    return ((size - 4) // 2 - 4) // 2


def _initializers(fan_in: int, seed: int, layer: int) -> dict:
    """Returns PyTorch's default for Conv2d and Linear.

    Weights and biases are uniform in +-1/sqrt(fan_in): `reset_parameters` of
    both calls kaiming_uniform_ with a = sqrt(5), which comes to that bound.
    """
    bound = 1 / math.sqrt(fan_in)
    return {
        f"{kind}_initializer": keras.initializers.RandomUniform(
            -bound, bound, seed=_layer_seed(seed, layer, kind)
        )
        for kind in ("kernel", "bias")
    }


def _layer_seed(seed: int, layer: int, kind: str) -> int:
    words = np.random.SeedSequence([seed, layer, kind == "bias"])
    return int(words.generate_state(1)[0])
