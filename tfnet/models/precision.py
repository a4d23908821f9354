"""The number format that a model computes in."""

import contextlib
from collections.abc import Iterator

import keras

# Half precision computes in 16 bits and keeps its weights in float32.
_POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
    "float64": "float64",
}


@contextlib.contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Makes models that are built, and traced, compute in a number format.

    Args:
      precision: `float32`, `bfloat16`, `float16` or `float64`.
    """
    policy, floatx = keras.config.dtype_policy(), keras.config.floatx()
    keras.config.set_dtype_policy(_POLICIES[precision])
    keras.config.set_floatx("float64" if precision == "float64" else "float32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        keras.config.set_floatx(floatx)
