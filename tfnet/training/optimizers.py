"""From a name and a rate to a Keras optimizer."""

import keras


def create_optimizer(
    name: str, *, learning_rate: float, momentum: float
) -> keras.optimizers.Optimizer:
    """Creates an optimizer, in the scope of the strategy that will use it.

    Args:
      name: `sgd`, `adam` or `adamw`.
      learning_rate: Above 0.
      momentum: Of SGD, from 0 to below 1. With a constant learning rate,
        Keras' v = momentum * v - rate * gradient; w = w + v gives the same
        weights as PyTorch's v = momentum * v + gradient; w = w - rate * v.
    """
    if name == "sgd":
        return keras.optimizers.SGD(learning_rate, momentum=momentum)
    classes = {"adam": keras.optimizers.Adam, "adamw": keras.optimizers.AdamW}
    return classes[name](learning_rate)
