"""The formats: what each is called, where it is written and what it needs."""

import dataclasses
import importlib
import importlib.util
from collections.abc import Iterable
from typing import Any

from tfnet import arguments
from tfnet.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that a model can be exported to.

    Attributes:
      name: As a user names it.
      file: The usual name of what is written: a file, or a directory.
      summary: What it is for, in a few words.
      takes: The images that it takes; `$size` is their height and width, and
        `$scaled` says how pixels were scaled for the network.
      gives: What it gives for them; `$scaled` likewise.
      example: Python that runs beside the file; `$size` likewise.
      packages: What must be importable beside tfnet's own requirements, and
        the package of each that pip installs.
      precisions: What a model may compute in; empty: anything.
      holds: Patterns of what is in `file`, where it is a directory; empty: it
        is a file.
      is_exact: Whether it gives the model's logits, to rounding.
    """

    name: str
    file: str
    summary: str
    takes: str
    gives: str
    example: str
    packages: tuple[tuple[str, str], ...] = ()
    precisions: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    is_exact: bool = True

    def check_precision(self, precision: str) -> None:
        """Checks what a model computes in, such as `float16`.

        Raises:
          ConfigError: This format can't hold it.
        """
        if self.precisions and precision not in self.precisions:
            raise ConfigError(
                f"the format {self.name} is for models that compute in"
                f" {' or '.join(self.precisions)}; this one computes in"
                f" {precision}. Build it with --precision=float32: the weights"
                " are the same."
            )

    def module(self) -> Any:
        """Imports the module that writes and reads this format.

        Raises:
          ConfigError: A package that it needs is not installed.
        """
        missing = [
            package
            for name, package in self.packages
            if importlib.util.find_spec(name) is None
        ]
        if missing:
            raise ConfigError(
                f"the format {self.name} needs {', '.join(missing)}, which is"
                f" not installed here; use pip install {' '.join(missing)}, or"
                " leave the format out."
            )
        return importlib.import_module(f"tfnet.exports.{_MODULES[self.name]}")


_LITERT = (("ai_edge_litert", "ai-edge-litert"),)
_PIXELS = (
    "`images`, uint8 [batch, $size, $size, 3]: red, green, blue from 0 to 255."
    " They are scaled inside"
)
_LOGITS = "`logits`, float32 [batch, classes]; the largest is the class"

# The modules are not named after the packages that they import.
_MODULES = {
    "saved_model": "saved_model",
    "keras": "keras_model",
    "tflite": "tflite",
    "tflite_int8": "tflite_int8",
    "onnx": "onnx_graph",
    "pytorch": "state_dict",
}

_ALL = (
    Format(
        "saved_model",
        "saved_model",
        "for TensorFlow and TensorFlow Serving",
        takes="`images`, uint8 [batch, height, width, 3] of any size, or, by"
        " the signature `encoded`, the bytes of JPEG, PNG, GIF, BMP or WebP"
        " files, string [batch]. They are resized and scaled inside",
        gives="`logits` and `probabilities`, float32 [batch, classes],"
        " `class_id`, int32 [batch], and `class_name`, string [batch]",
        example="""\
import tensorflow as tf

model = tf.saved_model.load("saved_model")
images = tf.zeros([1, $size, $size, 3], tf.uint8)  # here: yours
found = model.signatures["serving_default"](images=images)
print(found["class_name"], found["probabilities"])
""",
        holds=("saved_model.pb", "variables", "assets", "fingerprint.pb"),
    ),
    Format(
        "keras",
        "model.keras",
        "for Keras, to predict or to train on",
        takes=_PIXELS,
        gives=_LOGITS + ". The network as it was trained, for pixels x"
        " scaled to $scaled, is `model.layers[-1]`",
        example="""\
import keras
import numpy as np

model = keras.models.load_model("model.keras")
images = np.zeros([1, $size, $size, 3], np.uint8)  # here: yours
print(model.predict(images).argmax(axis=-1))
""",
    ),
    Format(
        "tflite",
        "model.tflite",
        "for phones and small computers",
        takes=_PIXELS,
        gives=_LOGITS,
        example="""\
import numpy as np
from ai_edge_litert.interpreter import Interpreter

run = Interpreter("model.tflite").get_signature_runner()
images = np.zeros([1, $size, $size, 3], np.uint8)  # here: yours
print(run(images=images)["logits"].argmax(axis=-1))
""",
        packages=_LITERT,
        precisions=("float32",),
    ),
    Format(
        "tflite_int8",
        "model_int8.tflite",
        "the same in 8-bit integers, about a quarter of the size",
        takes=_PIXELS,
        gives="`logits`, int8 [batch, classes]; the largest is the class."
        " Scale and zero point are in the details of the output",
        example="""\
import numpy as np
from ai_edge_litert.interpreter import Interpreter

run = Interpreter("model_int8.tflite").get_signature_runner()
images = np.zeros([1, $size, $size, 3], np.uint8)  # here: yours
print(run(images=images)["logits"].argmax(axis=-1))
""",
        packages=_LITERT,
        precisions=("float32",),
        is_exact=False,
    ),
    Format(
        "onnx",
        "model.onnx",
        "for ONNX Runtime, and what else reads ONNX",
        takes=_PIXELS,
        gives=_LOGITS,
        example="""\
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
images = np.zeros([1, $size, $size, 3], np.uint8)  # here: yours
(logits,) = session.run(["logits"], {"images": images})
print(logits.argmax(axis=-1))
""",
        packages=(
            ("onnx", "onnx"),
            ("onnxruntime", "onnxruntime"),
            ("tf2onnx", "tf2onnx"),
        ),
        precisions=("float32", "float16"),
    ),
    Format(
        "pytorch",
        "pytorch",
        "the weights of --model=net for PyTorch, and its class",
        takes="float32 [batch, 3, $size, $size]: red, green, blue. They are"
        " scaled outside, as in PyTorch's tutorial, to $scaled: by"
        " `transforms.ToTensor()` and `transforms.Normalize(MEAN, STD)`, with"
        " the numbers in `net.py`",
        gives="logits, float32 [batch, classes]; the largest is the class",
        example="""\
# In the directory pytorch, with torch and safetensors installed.
import torch
from net import MEAN, STD, Net
from safetensors.torch import load_file

net = Net()
net.load_state_dict(load_file("model.safetensors"))
images = torch.zeros(1, 3, $size, $size)  # here: yours, pixels / 255
mean, std = (torch.tensor(one).view(3, 1, 1) for one in (MEAN, STD))
print(net((images - mean) / std).argmax(dim=-1))
""",
        holds=("model.safetensors", "model.pt", "net.py", "__pycache__"),
    ),
)

FORMATS = {one.name: one for one in _ALL}


def chosen(given: str | Iterable[str], setting: str = "") -> tuple[str, ...]:
    """Returns the names of formats.

    Args:
      given: The names, as one text with commas between, or in a row.
      setting: The flag that gives them; empty: a program does.

    Raises:
      ConfigError: One is unknown, or there twice, or there is none.
    """
    try:
        names = tuple(given.split(",") if isinstance(given, str) else given)
    except TypeError:
        names = ()
    known = names and all(isinstance(one, str) for one in names)
    if known and set(names) <= set(FORMATS) and len(set(names)) == len(names):
        return names
    rule = f"some of {','.join(FORMATS)}, each once"
    if setting:
        raise ConfigError(
            f"{setting} ({given}) must be {rule}, with commas between; for"
            f" example {setting}=keras,onnx."
        )
    raise arguments.wrong(
        "formats",
        given,
        f"{rule}, as text with commas between or as a list; for example"
        " 'keras,onnx'",
    )
