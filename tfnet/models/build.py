"""From `--model` to a Keras model that gives logits."""

from typing import Any

import keras

from tfnet.errors import ConfigError, one_line
from tfnet.models import net
from tfnet.user_code import import_function

_BUILT = "_built_by_tfnet"


def build_model(
    name: str, image_shape: tuple[int, int, int], num_classes: int, *, seed: int
) -> keras.Model:
    """Builds a model, in the scope of the strategy that will train it.

    Keras' global seed is set, so that models which draw their initial weights
    from it begin the same in every run.

    Args:
      name: `net`, or `package.module:function`, which is called as
        `function(image_shape, num_classes)`.
      image_shape: Height, width and channels.
      num_classes: How many logits the model must give.
      seed: Fixes the initial weights.

    Returns:
      A built model: float32 images [batch, *image_shape], scaled, to
      logits [batch, num_classes].

    Raises:
      ConfigError: The function can't be imported or called, or gives
        something else.
    """
    keras.utils.set_random_seed(seed)
    if name == "net":
        return net.build(image_shape, num_classes, seed=seed)
    function = import_function("model", name)
    try:
        model = function(image_shape, num_classes)
    except (Exception, SystemExit) as error:
        # Whatever goes wrong in a user's function is named as theirs.
        raise ConfigError(
            f"--model ({name}) raised {one_line(error)}; it was called as"
            f" function({image_shape}, {num_classes}); --verbosity=1 shows"
            " where."
        ) from error
    _check(name, model, image_shape, num_classes)
    _check_is_new(name, model)
    return model


def _check_is_new(name: str, model: keras.Model) -> None:
    """Refuses weights that a function gave before: they may be trained."""
    if any(hasattr(variable, _BUILT) for variable in model.variables):
        raise ConfigError(
            f"--model ({name}) must make its layers anew in each call, inside"
            " the function; this one gave weights that it gave before."
        )
    for variable in model.variables:
        setattr(variable, _BUILT, True)


def _check(name: str, model: Any, image_shape: tuple, num_classes: int) -> None:
    if not isinstance(model, keras.Model):
        raise ConfigError(
            f"--model ({name}) must return a Keras 3 model; it returned a"
            f" {type(model).__module__}.{type(model).__name__}."
        )
    try:
        output = model.compute_output_spec(keras.KerasTensor((2, *image_shape)))
        shape = getattr(output, "shape", None)
        if not model.built:
            model.build((None, *image_shape))
    except Exception as error:
        raise ConfigError(
            f"--model ({name}) does not take images {list(image_shape)}:"
            f" {one_line(error)}."
        ) from error
    if shape is None or tuple(shape)[1:] != (num_classes,):
        raise ConfigError(
            f"--model ({name}) must give logits [batch, {num_classes}], one a"
            f" class; it gives {shape if shape is None else list(shape)}."
        )
    if not keras.backend.is_float_dtype(output.dtype):
        raise ConfigError(
            f"--model ({name}) must give logits in floating point; it gives"
            f" {output.dtype}."
        )
    if not model.trainable_variables:
        raise ConfigError(
            f"--model ({name}) must have a weight to train; all of its"
            f" {len(model.variables)} are frozen."
        )
    if _ends_in_softmax(model):
        raise ConfigError(
            f"--model ({name}) must give logits; it ends in a softmax. Leave"
            " that out: the loss has it, and so has the exported model."
        )


def _ends_in_softmax(model: keras.Model) -> bool:
    last = model
    while isinstance(last, keras.Model) and last.layers:
        last = last.layers[-1]
    return (
        isinstance(last, keras.layers.Softmax)
        or getattr(last, "activation", None) is keras.activations.softmax
    )
