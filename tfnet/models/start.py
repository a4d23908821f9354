"""Weights of the seed's network from a file, as --init_from names it."""

from pathlib import Path

import keras

from tfnet.errors import ConfigError
from tfnet.models import pytorch
from tfnet.models.weights import read_weights


def start_from_file(model: keras.Model, path: Path) -> None:
    """Sets the weights of `models.net` from a file.

    Args:
      model: What `models.net.build` returned.
      path: A file that `read_weights` reads, with PyTorch's names.

    Raises:
      ConfigError: It can't be read, or does not fit; nothing was changed.
    """
    state = read_weights(path)
    try:
        pytorch.from_state_dict(model, state)
    except ValueError as error:
        raise ConfigError(
            f"--init_from ({path}) does not fit the model: {error}. It must"
            " hold the state_dict of the seed's network, for the classes of"
            " this data set and this --image_size."
        ) from error
