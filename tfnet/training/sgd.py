"""SGD whose change of a variable is one operation, not seven.

Small networks are all overhead: of the operations of a step of the seed's
network, Keras' SGD has a third.
"""

from typing import Any

import keras
import tensorflow as tf


class FusedSGD(keras.optimizers.SGD):
    """Keras' SGD, by TensorFlow's own operations for it.

    The same rule as Keras': v = momentum * v - rate * gradient; w = w + v;
    without momentum w = w - rate * gradient.
    """

    def update_step(
        self, gradient: Any, variable: Any, learning_rate: Any
    ) -> None:
        """Changes one variable, on one device.

        Args:
          gradient: Of the shape of the variable.
          variable: A `tf.Variable` of that device.
          learning_rate: A scalar.
        """
        rate = tf.cast(learning_rate, variable.dtype)
        gradient = tf.cast(gradient, variable.dtype)
        if not self.momentum:
            tf.raw_ops.ResourceApplyGradientDescent(
                var=variable.handle, alpha=rate, delta=gradient
            )
            return
        momentum = self.momentums[self._get_variable_index(variable)]
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=momentum.value.handle,
            lr=rate,
            grad=gradient,
            momentum=tf.cast(self.momentum, variable.dtype),
        )
