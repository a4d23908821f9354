"""Where a model's weights start, if not where it draws them: --init_from."""

from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

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


def start_from_checkpoint(
    model: keras.Model, arrays: Mapping[str, np.ndarray], where: str
) -> bool:
    """Sets the weights of a model from those of a run.

    The averaged weights are taken where the run kept averages. What layers
    draw random numbers from stays as the model has it.

    Args:
      model: Any built model.
      arrays: Of a checkpoint: `model/0`, ... in the order of
        `model.variables`, and perhaps `average/0`, ... in that of
        `model.trainable_variables`.
      where: What they are from, for the text of an error.

    Returns:
      Whether they are averages.

    Raises:
      ConfigError: They are of a model of other shapes; nothing was changed.
    """
    count = sum(name.startswith("model/") for name in arrays)
    if count != len(model.variables):
        raise ConfigError(
            f"{where} holds {count} weights where the model has"
            f" {len(model.variables)}; it must be of a run of the same model."
        )
    values = {
        id(variable): arrays[f"model/{number}"]
        for number, variable in enumerate(model.variables)
    }
    has_averages = "average/0" in arrays
    if has_averages:
        for number, variable in enumerate(model.trainable_variables):
            values[id(variable)] = arrays[f"average/{number}"]
    for variable in model.weights:
        shape = values[id(variable)].shape
        if shape != tuple(variable.shape):
            raise ConfigError(
                f"{where} does not fit the model: {variable.path} must be"
                f" {list(variable.shape)} and is {list(shape)}; it must be of a"
                " run of the same model, classes and image size."
            )
    for variable in model.weights:
        variable.assign(_numbers(values[id(variable)]))
    return has_averages


def _numbers(array: np.ndarray) -> np.ndarray:
    # NumPy's files know no bfloat16.
    if array.dtype.kind == "V":
        return array.view(tf.bfloat16.as_numpy_dtype)
    return array
