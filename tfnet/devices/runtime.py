"""The process before TensorFlow is in it: environment, noise, backend."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from tfnet.devices.imports import quick_imports
from tfnet.errors import ConfigError


def prepare_process(*, verbose: bool) -> None:
    """Imports TensorFlow and Keras, set up the way tfnet needs them.

    What the environment already says about TensorFlow's logging stays as it
    is. oneDNN's kernels were turned on when tfnet was imported.

    Args:
      verbose: Whether to let TensorFlow's start-up messages through.

    Raises:
      ConfigError: Keras is set to another backend, number format or data
        layout.
    """
    if "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if verbose else "2")
    if "keras" not in sys.modules:
        backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        if backend != "tensorflow":
            raise _wrong_backend(backend)
    with _standard_error_held_back(not verbose), quick_imports():
        import keras
        import tensorflow
    if not verbose:
        # Several runs in one process are several programs: TensorFlow takes
        # them for one that is traced too often, and says so in Python.
        tensorflow.get_logger().setLevel("ERROR")
    if keras.backend.backend() != "tensorflow":
        raise _wrong_backend(keras.backend.backend())
    settings = (
        keras.config.floatx(),
        keras.config.dtype_policy().name,
        keras.config.image_data_format(),
    )
    if settings != ("float32", "float32", "channels_last"):
        raise ConfigError(
            f"Keras is set to floatx, dtype policy and data format"
            f" {', '.join(settings)}; tfnet needs float32, float32,"
            " channels_last (~/.keras/keras.json holds these settings)."
        )


def _wrong_backend(backend: str) -> ConfigError:
    return ConfigError(
        f"KERAS_BACKEND ({backend}) must be tensorflow; set it before Keras is"
        " imported, or leave it unset."
    )


@contextlib.contextmanager
def _standard_error_held_back(active: bool) -> Iterator[None]:
    """Keeps what is written to standard error for the case of a failure.

    By file descriptor: TensorFlow's C++ code writes its first lines there,
    whatever TF_CPP_MIN_LOG_LEVEL says.
    """
    if not active:
        yield
        return
    if sys.stderr is not None:
        sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:
            held.seek(0)
            os.write(saved, held.read())
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def hold_back_noise(*, verbose: bool) -> contextlib.AbstractContextManager:
    """Returns a context that keeps TensorFlow's start-up messages away.

    Args:
      verbose: Let them through instead.
    """
    return _standard_error_held_back(not verbose)
