"""PyTorch: the weights of the seed's network by its names, and its class.

A directory with `model.safetensors`, `net.py` and, where PyTorch is installed,
`model.pt`. The weights do not scale pixels: that is done outside, as in
PyTorch's tutorial, with the numbers that `net.py` gives.
"""

import ast
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from tfnet.data.scaling import Scaling
from tfnet.errors import ConfigError, RunError
from tfnet.exports.classifier import Classifier, Predict
from tfnet.models import pytorch
from tfnet.models.weights import has_pytorch, read_weights

NET = "net.py"
WEIGHTS = "model.safetensors"
PICKLED = "model.pt"
_NET = '''\
"""The network of these weights, as PyTorch's tutorial writes it.

Takes float32 images [batch, 3, {size}, {size}], scaled as they were in
training: (x / 255 - MEAN) / STD for pixels x of red, green and blue, which is
transforms.ToTensor() and transforms.Normalize(MEAN, STD) of torchvision.
Gives logits [batch, {classes}].
"""

import torch
from torch import nn

MEAN = {mean}
STD = {std}


class Net(nn.Module):
    """Two convolutions with pooling and three dense layers."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear({flat}, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, {classes})

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)
'''


def write(path: Path, classifier: Classifier) -> None:
    """Writes the weights and the class into the directory `path`.

    Raises:
      ConfigError: The model is not the seed's network.
    """
    if not pytorch.is_net(classifier.model):
        raise ConfigError(
            "the format pytorch is for --model=net, whose weights PyTorch's"
            f" tutorial has names for; this is {classifier.model.name}. Use"
            " another format, such as onnx."
        )
    state = pytorch.to_state_dict(classifier.model)
    # Its own save_file leaves a file that only its owner may read.
    (path / WEIGHTS).write_bytes(save(state))
    if has_pytorch():
        _pickle(path / PICKLED, state)
    classes, _ = state["fc3.weight"].shape
    _, flat = state["fc1.weight"].shape
    text = _NET.format(
        size=classifier.image_size,
        classes=classes,
        flat=flat,
        mean=classifier.scaling.mean,
        std=classifier.scaling.std,
    )
    (path / NET).write_text(text, encoding="utf-8")


def _pickle(path: Path, state: dict[str, np.ndarray]) -> None:
    import torch

    torch.save(
        {name: torch.from_numpy(array) for name, array in state.items()}, path
    )


def read(path: Path) -> dict[str, Predict]:
    """Reads the weights; runs the network in NumPy, as PyTorch defines it.

    Raises:
      RunError: The two files do not hold the same.
    """
    state = read_weights(path / WEIGHTS)
    if (path / PICKLED).exists():
        other = read_weights(path / PICKLED)
        if state.keys() != other.keys() or any(
            state[name].tobytes() != other[name].tobytes() for name in state
        ):
            raise RunError(
                f"{PICKLED}, read back, holds other weights than {WEIGHTS};"
                " nothing was kept."
            )
    scaling = _read_scaling(path / NET)
    return {"images": lambda images: _forward(state, scaling, images)}


def _read_scaling(path: Path) -> Scaling:
    """Returns the numbers in net.py, which imports PyTorch if it is run."""
    numbers = {
        target.id: ast.literal_eval(line.value)
        for line in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(line, ast.Assign)
        for target in line.targets
        if isinstance(target, ast.Name)
    }
    return Scaling(numbers["MEAN"], numbers["STD"])


def _forward(
    state: dict[str, np.ndarray], scaling: Scaling, images: np.ndarray
) -> np.ndarray:
    """Returns the logits of images, uint8 [n, height, width, 3]."""
    x = ((images / 255 - scaling.mean) / scaling.std).transpose(0, 3, 1, 2)
    for name in ("conv1", "conv2"):
        x = _pool(np.maximum(_convolve(state, name, x), 0))
    x = x.reshape(len(x), -1)
    for name in ("fc1", "fc2"):
        x = np.maximum(_dense(state, name, x), 0)
    return _dense(state, "fc3", x)


def _convolve(
    state: dict[str, np.ndarray], name: str, x: np.ndarray
) -> np.ndarray:
    weight = state[f"{name}.weight"]
    windows = np.lib.stride_tricks.sliding_window_view(
        x, weight.shape[2:], axis=(2, 3)
    )  # [n, channels, height, width, 5, 5]
    found = np.tensordot(windows, weight, axes=([1, 4, 5], [1, 2, 3]))
    return (found + state[f"{name}.bias"]).transpose(0, 3, 1, 2)


def _pool(x: np.ndarray) -> np.ndarray:
    n, channels, height, width = x.shape
    height, width = height // 2, width // 2
    x = x[:, :, : 2 * height, : 2 * width]
    return x.reshape(n, channels, height, 2, width, 2).max(axis=(3, 5))


def _dense(
    state: dict[str, np.ndarray], name: str, x: np.ndarray
) -> np.ndarray:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]
