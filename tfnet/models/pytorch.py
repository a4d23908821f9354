"""Weights of the seed's network in PyTorch's `state_dict` layout.

PyTorch keeps convolutions as OIHW and Keras as HWIO; PyTorch's dense weights
are [out, in] and Keras' [in, out]; and PyTorch flattens channels first, so
the inputs of fc1 are permuted.
"""

from collections.abc import Mapping

import keras
import numpy as np

_CONVOLUTIONS = ("conv1", "conv2")
_DENSE = ("fc1", "fc2", "fc3")


def is_net(model: keras.Model) -> bool:
    """Says whether a model is of `models.net`, by the names of its layers."""
    names = [layer.name for layer in model.layers]
    return names == [
        "conv1",
        "pool1",
        "conv2",
        "pool2",
        "flatten",
        *_DENSE,
    ]


def to_state_dict(model: keras.Model) -> dict[str, np.ndarray]:
    """Returns the weights of `models.net` as PyTorch names and lays them out.

    Args:
      model: What `models.net.build` returned.

    Returns:
      Arrays, float32 (float64 with --precision=float64), under
      `conv1.weight` ([6, 3, 5, 5]), `conv1.bias`, ..., `fc3.bias`: what
      `load_state_dict` of the seed's Net takes, after `torch.from_numpy` on
      each.
    """
    state = {}
    for name in (*_CONVOLUTIONS, *_DENSE):
        kernel, bias = model.get_layer(name).get_weights()
        if name == "fc1":
            shape = _feature_shape(model)
            kernel = kernel.reshape(*shape, -1).transpose(3, 2, 0, 1)
            kernel = kernel.reshape(kernel.shape[0], -1)
        else:
            kernel = np.moveaxis(kernel, (-1, -2), (0, 1))
        state[f"{name}.weight"] = np.ascontiguousarray(kernel)
        state[f"{name}.bias"] = bias
    return state


def from_state_dict(
    model: keras.Model, state: Mapping[str, np.ndarray]
) -> None:
    """Sets the weights of `models.net` from PyTorch's.

    Args:
      model: What `models.net.build` returned; its weights are replaced.
      state: Arrays as `to_state_dict` returns them.

    Raises:
      ValueError: A name is missing or unknown, a shape does not fit, or
        values are no numbers, or not finite; the model is then unchanged.
    """
    expected = to_state_dict(model)
    _check_names(set(state), set(expected))
    arrays = {
        name: np.asarray(array, expected[name].dtype)
        for name, array in state.items()
    }
    wrong = [
        f"{name} must be {list(array.shape)} and is {list(arrays[name].shape)}"
        for name, array in expected.items()
        if arrays[name].shape != array.shape
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has a number that is not finite")
    for name in (*_CONVOLUTIONS, *_DENSE):
        kernel = arrays[f"{name}.weight"]
        if name == "fc1":
            height, width, channels = _feature_shape(model)
            kernel = kernel.reshape(-1, channels, height, width)
            kernel = kernel.transpose(2, 3, 1, 0)
            kernel = kernel.reshape(-1, kernel.shape[-1])
        else:
            kernel = np.moveaxis(kernel, (0, 1), (-1, -2))
        model.get_layer(name).set_weights([kernel, arrays[f"{name}.bias"]])


def _check_names(given: set[str], expected: set[str]) -> None:
    missing, unknown = sorted(expected - given), sorted(given - expected)
    odd = [
        f"{what}: {', '.join(names)}"
        for what, names in (("missing", missing), ("unknown", unknown))
        if names
    ]
    if odd:
        raise ValueError("; ".join(odd))


def _feature_shape(model: keras.Model) -> tuple[int, int, int]:
    """Returns height, width and channels of what is flattened."""
    _, height, width, channels = model.get_layer("pool2").output.shape
    return height, width, channels
