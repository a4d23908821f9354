"""From a name, or a user's own function, to a Keras optimizer."""

import math
from typing import Any

import keras

from tfnet.errors import ConfigError, one_line
from tfnet.training.sgd import FusedSGD
from tfnet.user_code import import_function

_NAMES = {
    "sgd": FusedSGD,
    "adadelta": keras.optimizers.Adadelta,
    "adafactor": keras.optimizers.Adafactor,
    "adagrad": keras.optimizers.Adagrad,
    "adam": keras.optimizers.Adam,
    "adamax": keras.optimizers.Adamax,
    "adamw": keras.optimizers.AdamW,
    "ftrl": keras.optimizers.Ftrl,
    "lamb": keras.optimizers.Lamb,
    "lion": keras.optimizers.Lion,
    "muon": keras.optimizers.Muon,
    "nadam": keras.optimizers.Nadam,
    "rmsprop": keras.optimizers.RMSprop,
}


def create_optimizer(
    name: str,
    *,
    learning_rate: float,
    momentum: float,
    weight_decay: float | None = None,
) -> keras.optimizers.Optimizer:
    """Creates an optimizer, in the scope of the strategy that will use it.

    Args:
      name: A Keras optimizer, in lower case, or `package.module:function`,
        which is called as `function(learning_rate)`.
      learning_rate: Above 0.
      momentum: Of SGD, from 0 to below 1: v = momentum * v - rate * gradient;
        w = w + v. While the rate is constant these are the weights that
        PyTorch's v = momentum * v + gradient; w = w - rate * v gives.
      weight_decay: Takes rate * weight_decay * w from each weight in a step,
        apart from the gradient (Loshchilov and Hutter, Decoupled Weight Decay
        Regularization, 2019); None: as the optimizer has it by itself.

    Raises:
      ConfigError: The function can't be imported or called, or gives
        something else, or an optimizer with settings that tfnet has itself.
    """
    if name not in _NAMES:
        return _own(name, learning_rate)
    settings: dict[str, Any] = {}
    if name == "sgd":
        settings["momentum"] = momentum
    if weight_decay is not None:
        settings["weight_decay"] = weight_decay
    if weight_decay is not None and name == "muon":
        # Of the weights that it gives to Adam.
        settings["adam_weight_decay"] = weight_decay
    return _NAMES[name](learning_rate, **settings)


def _own(name: str, learning_rate: float) -> keras.optimizers.Optimizer:
    function = import_function("optimizer", name)
    try:
        optimizer = function(learning_rate)
    except (Exception, SystemExit) as error:
        # Whatever goes wrong in a user's function is named as theirs.
        raise ConfigError(
            f"--optimizer ({name}) raised {one_line(error)}; it was called as"
            f" function({learning_rate}); --verbosity=1 shows where."
        ) from error
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ConfigError(
            f"--optimizer ({name}) must return a Keras 3 optimizer; it"
            f" returned a {type(optimizer).__name__}."
        )
    for attribute, flag in (
        ("clipnorm", "--clip_norm"),
        ("clipvalue", "--clip_value"),
        ("global_clipnorm", "--clip_norm"),
        ("gradient_accumulation_steps", "--accumulate_steps"),
        ("use_ema", "--ema"),
        ("inner_optimizer", "--precision=float16"),
        ("loss_scale_factor", "--precision=float16"),
        ("optimizers", "one of Keras' optimizers"),
    ):
        if getattr(optimizer, attribute, None):
            raise ConfigError(
                f"--optimizer ({name}) must not set {attribute}, which tfnet"
                f" does itself; use {flag}."
            )
    rate = optimizer.get_config().get("learning_rate")
    if not isinstance(rate, float | int) or not math.isclose(
        rate, learning_rate, rel_tol=1e-6
    ):
        raise ConfigError(
            f"--optimizer ({name}) must have the learning rate that it is"
            " called with; use --learning_rate and --schedule to have another."
        )
    return optimizer


def leave_sum_to_caller(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes an optimizer take gradients that are summed over the replicas.

    `apply` sums what it is given once more, and has no public way around it;
    clipping and loss scaling need the sum first. `update_step`, which is
    public, would leave out what some optimizers do around it (Nadam).

    Raises:
      RuntimeError: This version of Keras sums in another place.
    """
    if not hasattr(optimizer, "_all_reduce_sum_gradients"):
        raise RuntimeError(
            f"Keras {keras.__version__} sums gradients in a way that tfnet"
            " does not know."
        )
    optimizer._all_reduce_sum_gradients = lambda pairs: pairs
