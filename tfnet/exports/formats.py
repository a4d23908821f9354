"""The formats: what each is called, where it is written and what it needs."""

import dataclasses
import importlib
import importlib.util
from typing import Any

from tfnet.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that a model can be exported to.

    Attributes:
      name: As a user names it.
      file: The usual name of what is written: a file, or a directory.
      summary: What it is for, in a few words.
      packages: What must be importable beside tfnet's own requirements, and
        the package of each that pip installs.
      precisions: What a model may compute in; empty: anything.
      is_directory: Whether `file` is a directory.
      is_exact: Whether it gives the model's logits, to rounding.
    """

    name: str
    file: str
    summary: str
    packages: tuple[tuple[str, str], ...] = ()
    precisions: tuple[str, ...] = ()
    is_directory: bool = False
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

# The modules are not named after the packages that they import.
_MODULES = {
    "saved_model": "saved_model",
    "keras": "keras_model",
    "tflite": "tflite",
    "tflite_int8": "tflite_int8",
    "onnx": "onnx_graph",
    "pytorch": "state_dict",
}

FORMATS = {
    one.name: one
    for one in (
        Format(
            "saved_model",
            "saved_model",
            "for TensorFlow and TensorFlow Serving",
            is_directory=True,
        ),
        Format("keras", "model.keras", "for Keras, to train on or to predict"),
        Format(
            "tflite",
            "model.tflite",
            "for phones and small computers",
            packages=_LITERT,
            precisions=("float32",),
        ),
        Format(
            "tflite_int8",
            "model_int8.tflite",
            "the same in 8-bit integers, a quarter of the size",
            packages=_LITERT,
            precisions=("float32",),
            is_exact=False,
        ),
        Format(
            "onnx",
            "model.onnx",
            "for ONNX Runtime, and what else reads ONNX",
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
            is_directory=True,
        ),
    )
}
