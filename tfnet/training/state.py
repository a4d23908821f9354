"""What training changes: weights, optimizer, averages, loss scale."""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfnet.errors import counted
from tfnet.training.optimizers import leave_sum_to_caller

# As in Keras' LossScaleOptimizer and in PyTorch's GradScaler.
_INITIAL_SCALE = 2.0**15
_STEPS_TO_GROW = 2000
_GROUPS = ("model", "optimizer", "average", "loss_scale")


class TrainState:
    """Everything a step of training reads and writes.

    Attributes:
      model: The model.
      optimizer: The optimizer, built for its trainable variables.
      averages: One variable for each trainable variable; empty without ema.
      loss_scale: What float16 needs; None: nothing is scaled.
      rate: The learning rate of the step that is being traced.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *,
        ema: float | None = None,
        scales_loss: bool = False,
    ) -> None:
        """Makes the variables, in the scope of the strategy of the model.

        Args:
          model: A built model that gives logits.
          optimizer: Any Keras optimizer; it is built if it is not yet. Its
            own rate, clipping, accumulation and averaging must not be set.
          ema: From above 0 to below 1: after each step, average = ema *
            average + (1 - ema) * weight; it starts as the weight is.
          scales_loss: Whether the loss is scaled so that small gradients are
            not lost in half precision.
        """
        self.model = model
        self.optimizer = optimizer
        self._strategy = tf.distribute.get_strategy()
        self._ema = ema or 0.0
        self.rate: Any = None
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        optimizer.learning_rate = lambda: self.rate
        leave_sum_to_caller(optimizer)
        self.averages = []
        if ema is not None:
            self.averages = [
                tf.Variable(variable.value, trainable=False)
                for variable in model.trainable_variables
            ]
        self.loss_scale = LossScale() if scales_loss else None

    def follow(self, average: tf.Variable, weight: Any) -> None:
        """Lets an average follow its weight by one step."""
        average.assign_sub((1 - self._ema) * (average - weight))

    @property
    def skipped_steps(self) -> int:
        """Steps that changed nothing because a gradient was not finite."""
        if self.loss_scale is None:
            return 0
        return int(self.loss_scale.skipped.numpy())

    def capture(self) -> dict[str, np.ndarray]:
        """Returns copies of everything a step changes, by name.

        The names are of places, not of layers, which Keras counts up from
        model to model.
        """
        return {
            # Of a scalar, NumPy gives no array by itself.
            name: np.asarray(_read(variable).numpy())
            for name, variable in self._on_first_replica.items()
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Puts back what `capture` returned.

        Raises:
          ValueError: It is of another model or optimizer; nothing was changed.
        """
        variables = self._variables()
        given = {name for name in arrays if name.split("/")[0] in _GROUPS}
        if given != variables.keys():
            raise ValueError(
                f"it has {counted(len(given), 'variable')} where the model and"
                f" the optimizer have {len(variables)}"
            )
        _assign(variables, arrays)

    def first_not_finite(self, arrays: Mapping[str, np.ndarray]) -> str | None:
        """Returns the weight, among what `capture` returned, with NaN or inf.

        Returns:
          Its path; None where all weights and averages are finite.
        """
        trained = {id(one) for one in self.model.trainable_variables}
        trained |= {id(one) for one in self.averages}
        for name, variable in self._variables().items():
            values = arrays[name]
            if id(variable) in trained and not np.isfinite(values).all():
                return getattr(variable, "path", variable.name)
        return None

    @functools.cached_property
    def _on_first_replica(self) -> dict[str, tf.Variable]:
        local = self._strategy.experimental_local_results
        return {
            # Those of Keras hold one of TensorFlow's.
            name: local(
                variable.value
                if isinstance(variable, keras.Variable)
                else variable
            )[0]
            for name, variable in self._variables().items()
        }

    def _variables(self) -> dict[str, Any]:
        scale = self.loss_scale
        groups = {
            "model": self.model.variables,
            "optimizer": self.optimizer.variables,
            "average": self.averages,
            "loss_scale": [scale.scale, scale.good_steps, scale.skipped]
            if scale
            else [],
        }
        return {
            f"{group}/{number}": variable
            for group, variables in groups.items()
            for number, variable in enumerate(variables)
        }

    @contextlib.contextmanager
    def averages_in_use(self) -> Iterator[None]:
        """Gives the model its averaged weights; takes them back at the end.

        Moments that each replica takes for itself become those of the first,
        which are the ones that are exported.
        """
        for variable in self.model.non_trainable_variables:
            variable.assign(variable.numpy())
        weights = [v.value for v in self.model.trainable_variables]
        kept = [weight.numpy() for weight in weights[: len(self.averages)]]
        for weight, average in zip(weights, self.averages, strict=False):
            weight.assign(average.numpy())
        try:
            yield
        finally:
            for weight, value in zip(weights, kept, strict=False):
                weight.assign(value)


def _read(variable: tf.Variable) -> tf.Tensor:
    # Its own `read_value` checks much first, and a checkpoint, which reads all
    # variables between two steps, took twice as long by it.
    return tf.raw_ops.ReadVariableOp(
        resource=variable.handle, dtype=variable.dtype
    )


def set_trained_weights(
    model: keras.Model, arrays: Mapping[str, np.ndarray]
) -> None:
    """Gives a model what training has made of it: averages, if there are any.

    Args:
      model: Its variables are set.
      arrays: What `TrainState.capture` returned, of a model like this one.

    Raises:
      ValueError: It was another model; nothing was changed.
    """
    trainable = {id(one) for one in model.trainable_variables}
    averages = sorted(
        (name for name in arrays if name.startswith("average/")), key=_number
    )
    names: dict[str, Any] = {}
    for number, variable in enumerate(model.variables):
        is_averaged = averages and id(variable) in trainable
        name = averages.pop(0) if is_averaged else f"model/{number}"
        names[name] = variable
    count = sum(name.startswith("model/") for name in arrays)
    if count != len(model.variables) or averages:
        raise ValueError(
            f"it has {counted(count, 'variable')} where the model has"
            f" {len(model.variables)}"
        )
    _assign(names, arrays)


def _number(name: str) -> int:
    return int(name.rpartition("/")[2])


def _assign(
    variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Assigns all or, where one does not fit, none."""
    values = {}
    for name, variable in variables.items():
        # NumPy's files know no bfloat16.
        dtype = tf.as_dtype(variable.dtype).as_numpy_dtype
        array = arrays[name]
        array = array.view(dtype) if array.dtype.kind == "V" else array
        if (array.shape, array.dtype) != (tuple(variable.shape), dtype):
            raise ValueError(
                f"{name} has shape {array.shape} in {array.dtype} where"
                f" there is {tuple(variable.shape)} in {np.dtype(dtype)}"
            )
        values[name] = array
    for name, variable in variables.items():
        variable.assign(values[name])


class LossScale:
    """A factor on the loss that adapts to what the gradients can bear.

    Micikevicius et al., Mixed Precision Training (2018): halved, and the step
    left out, where a gradient is not finite; doubled after 2,000 steps in
    which all were.

    Attributes:
      scale: float32 scalar variable.
      good_steps: int64 scalar variable: steps since it last changed.
      skipped: int64 scalar variable: steps left out.
    """

    def __init__(self) -> None:
        """Makes the variables, in the scope of a strategy."""

        def variable(value: float, dtype: tf.DType) -> tf.Variable:
            return tf.Variable(value, trainable=False, dtype=dtype)

        self.scale = variable(_INITIAL_SCALE, tf.float32)
        self.good_steps = variable(0, tf.int64)
        self.skipped = variable(0, tf.int64)

    def step_taken(self) -> None:
        """Counts a step whose gradients were finite."""
        full = tf.equal(self.good_steps + 1, _STEPS_TO_GROW)
        self.scale.assign(tf.where(full, self.scale * 2, self.scale))
        self.good_steps.assign(
            tf.where(full, tf.zeros([], tf.int64), self.good_steps + 1)
        )

    def step_left_out(self) -> None:
        """Counts a step with a gradient that was not finite."""
        self.scale.assign(self.scale / 2)
        self.good_steps.assign(0)
        self.skipped.assign_add(1)
