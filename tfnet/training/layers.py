"""Layers that look beyond one example: batch statistics, random numbers.

Keras' own give each replica its own statistics and every replica the same
random numbers. Here they are made to give what one replica gives, whatever
the layer's place in the model: its `call` is replaced, on the layer itself,
for the steps of training; at all other times the layer is as it was.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfnet.training.share import (
    NotUnderXlaError,
    Share,
    current,
    replica_id,
)

_DROPOUTS = (
    keras.layers.Dropout,
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.SpatialDropout3D,
)


def synchronise(
    model: keras.Model,
    *,
    replicas: int,
    batch_statistics: bool = True,
    accumulates: bool = False,
) -> list[str]:
    """Makes the layers of a model act on the batch as a whole.

    Args:
      model: A built model. Its layers are changed.
      replicas: On how many replicas it is trained.
      batch_statistics: Whether BatchNormalization takes the moments of the
        whole batch; else, those of each replica's share.
      accumulates: Whether a step is made of several batches.

    Returns:
      A line for each layer that does not give the numbers of one replica, or
      of one large batch.
    """
    notes = []
    for layer in all_layers(model):
        difference = _synchronise(layer, batch_statistics)
        if difference and replicas > 1:
            notes.append(
                f"{layer.name} ({type(layer).__name__}) {difference}; with"
                " several replicas the numbers differ from those of one."
            )
        if accumulates and isinstance(layer, keras.layers.BatchNormalization):
            notes.append(
                f"{layer.name} ({type(layer).__name__}) takes the moments of"
                " each accumulated batch, not of the step."
            )
    return notes


def _synchronise(layer: keras.Layer, batch_statistics: bool) -> str:
    """Changes one layer; returns in what its replicas still differ."""
    _collect_losses(layer)
    kind = type(layer)
    if kind is keras.layers.BatchNormalization and not layer.renorm:
        _replace_call(
            layer,
            functools.partial(_normalise, over_replicas=batch_statistics),
        )
        return "" if batch_statistics else "takes each replica's own moments"
    if isinstance(layer, keras.layers.BatchNormalization):
        return "takes each replica's own moments"
    if kind in _DROPOUTS and _drops_by_example(layer):
        _replace_call(layer, _dropout)
    elif kind is keras.layers.GaussianDropout:
        _replace_call(layer, _gaussian_dropout)
    elif kind is keras.layers.GaussianNoise:
        _replace_call(layer, _gaussian_noise)
    elif _seed_generators(layer):
        if hasattr(layer, "state_size"):
            drops = any(
                getattr(layer, name, 0)
                for name in ("dropout", "recurrent_dropout")
            )
            return "draws the same on every replica" if drops else ""
        for generator in _seed_generators(layer):
            generator.next = functools.partial(_next_seed, generator)
        _replace_call(layer, _draw_for_the_step)
    elif _is_own(kind) and _keeps_state(layer):
        return "keeps a state on each replica"
    return ""


def all_layers(layer: keras.Layer) -> Iterator[keras.Layer]:
    """Yields a layer and every layer it holds, each once.

    Keras has no public way to the layers inside one that is no model, such
    as the Dropout of MultiHeadAttention; they are found as attributes.
    """
    seen = set()
    waiting = [layer]
    while waiting:
        layer = waiting.pop()
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        yield layer
        waiting += _held(list(vars(layer).values()))


def _held(value: Any) -> list[keras.Layer]:
    """Returns the layers in a value; not by keras.tree, which sorts keys."""
    if isinstance(value, keras.Layer):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list | tuple):
        return []
    return [layer for one in value for layer in _held(one)]


def _seed_generators(layer: keras.Layer) -> list[keras.random.SeedGenerator]:
    return [
        value
        for value in vars(layer).values()
        if isinstance(value, keras.random.SeedGenerator)
    ]


def _is_own(kind: type) -> bool:
    """Whether a layer's class is not one of Keras."""
    return kind.__module__.partition(".")[0] != "keras"


def _keeps_state(layer: keras.Layer) -> bool:
    """Whether a layer itself has weights that no gradient changes."""
    own = {id(variable) for variable in layer.non_trainable_variables}
    for inner in all_layers(layer):
        if inner is not layer:
            own -= {id(variable) for variable in inner.variables}
    return layer.trainable and bool(own)


def _drops_by_example(layer: keras.layers.Dropout) -> bool:
    shape = layer.noise_shape
    return layer.rate > 0 and (shape is None or shape[0] is None)


def _collect_losses(layer: keras.Layer) -> None:
    """Makes a layer add its losses to the share, in a step of training.

    Keras keeps them in the layer, which all replicas have in common: where one
    waits for the others, as in BatchNormalization, they would take each
    other's.
    """
    original = layer.add_loss

    @functools.wraps(original)
    def add_loss(loss: Any) -> None:
        share = current()
        if share is None:
            original(loss)
            return
        for one in keras.tree.flatten(loss):
            share.add_loss(layer, tf.convert_to_tensor(one))

    layer.add_loss = add_loss


def _replace_call(layer: keras.Layer, step_call: Callable) -> None:
    """Makes a layer do `step_call` in the steps of training."""
    original = layer.call
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        share = current()
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if share is None or not bound.arguments.get("training", True):
            return original(*args, **kwargs)
        return step_call(layer, share, bound, original)

    layer.call = call


def _normalise(
    layer: keras.layers.BatchNormalization,
    share: Share,
    bound: inspect.BoundArguments,
    original: Callable,
    *,
    over_replicas: bool,
) -> Any:
    """Normalises as Keras does, with the moments of the examples that count."""
    if share.keeps_moments:
        bound.arguments["training"] = False
    if share.keeps_moments or not layer.trainable:
        return original(*bound.args, **bound.kwargs)
    inputs = bound.arguments["inputs"]
    values = tf.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
    axis = layer.axis % len(values.shape)
    counts = _weights(share, bound.arguments.get("mask"), len(values.shape))
    count, mean, variance = _moments(values, axis, counts, over_replicas)
    for moving, new in (
        (layer.moving_mean, mean),
        (layer.moving_variance, variance),
    ):
        old = tf.cast(moving.value, new.dtype)
        mixed = old * layer.momentum + new * (1.0 - layer.momentum)
        # A replica without an example has seen nothing.
        moving.assign(tf.where(count > 0, mixed, old))
    outputs = keras.ops.batch_normalization(
        values,
        mean,
        variance,
        axis,
        offset=None if layer.beta is None else tf.cast(layer.beta, mean.dtype),
        scale=None if layer.gamma is None else tf.cast(layer.gamma, mean.dtype),
        epsilon=layer.epsilon,
    )
    return tf.cast(outputs, layer.compute_dtype)


def _weights(share: Share, mask: Any, rank: int) -> Any:
    """Returns 1 for what counts and 0 for the rest, or None for all ones."""
    weights = None
    if share.real is not None:
        shape = [share.rows] + [1] * (rank - 1)
        weights = tf.reshape(share.real, shape)
    if mask is not None:
        mask = tf.cast(mask, tf.bool)[..., tf.newaxis]
        weights = mask if weights is None else tf.logical_and(weights, mask)
    return weights


def _moments(
    values: Any, axis: int, weights: Any, over_replicas: bool
) -> tuple[Any, Any, Any]:
    """Returns count, mean and variance of each channel: [channels].

    In two passes, by deviations from the mean: E[x^2] - E[x]^2 cancels where
    the mean is large. The replicas' parts are put together by the formula of
    Chan, Golub and LeVeque (Updating formulae and a pairwise algorithm for
    computing sample variances, 1979), in one collective: every replica fills
    a row of its own in a table that is summed.
    """
    axes = [i for i in range(len(values.shape)) if i != axis]

    def add_up(terms: Any) -> Any:
        if weights is not None:
            terms *= tf.cast(weights, terms.dtype)
        return tf.reduce_sum(terms, axes, keepdims=True)

    count = add_up(tf.ones_like(values))
    mean = tf.math.divide_no_nan(add_up(values), count)
    # The slope of the sum of squares at the mean is 0.
    deviations = values - tf.stop_gradient(mean)
    squares = add_up(deviations**2)
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if over_replicas and replicas > 1:
        # What rounding has left out of the mean.
        rest = tf.math.divide_no_nan(add_up(deviations), count)
        parts = tf.stack([count, mean, tf.stop_gradient(rest), squares])
        row = tf.one_hot(replica_id(), replicas, dtype=values.dtype)
        table = row[:, None, None] * tf.reshape(parts, [4, -1])
        table = _all_reduce(context, table)
        counts, means, rests, parts = tf.unstack(table, axis=1)
        count = tf.reduce_sum(counts, 0)
        # From the first one's mean: a large mean would swallow differences.
        offsets = means - means[0] + rests
        offset = tf.reduce_sum(counts * offsets, 0) / count
        mean = means[0] + offset
        squares = tf.reduce_sum(parts + counts * (offsets - offset) ** 2, 0)
    count, mean, squares = (
        tf.reshape(one, [-1]) for one in (count, mean, squares)
    )
    return count, mean, tf.math.divide_no_nan(squares, count)


def _all_reduce(context: Any, table: Any) -> Any:
    try:
        return context.all_reduce(tf.distribute.ReduceOp.SUM, table)
    except RuntimeError as error:
        # TensorFlow's words are about merge_call.
        share = current()
        if share is not None and share.in_xla:
            raise NotUnderXlaError(
                "XLA can't take the moments of all devices"
            ) from error
        raise ValueError(
            "BatchNormalization can't take the moments of all devices inside a"
            " loop or a condition; use --nosync_batch_norm"
        ) from error


def _dropout(
    layer: keras.layers.Dropout,
    share: Share,
    bound: inspect.BoundArguments,
    original: Callable,
) -> Any:
    inputs = bound.arguments["inputs"]
    if layer.rate >= 1:
        return tf.zeros_like(inputs)
    kept = share.uniform(*_noise_shape(layer, inputs)) >= layer.rate
    return tf.where(kept, inputs / (1 - layer.rate), tf.zeros_like(inputs))


def _noise_shape(layer: keras.layers.Dropout, inputs: Any) -> list[Any]:
    """Returns the shape of the mask: 1 where it is the same along an axis."""
    shape = _shape(inputs)
    if type(layer) is not keras.layers.Dropout:
        # Spatial: one decision for a whole channel.
        first = getattr(layer, "data_format", "") == "channels_first"
        channels = 1 if first else len(shape) - 1
        return [n if i in (0, channels) else 1 for i, n in enumerate(shape)]
    given = layer.noise_shape or [None] * len(shape)
    return [
        size if wish is None else wish
        for size, wish in zip(shape, given, strict=True)
    ]


def _shape(tensor: Any) -> list[Any]:
    dynamic = tf.shape(tensor)
    return [
        dynamic[i] if size is None else size
        for i, size in enumerate(tensor.shape)
    ]


def _gaussian_dropout(
    layer: keras.layers.GaussianDropout,
    share: Share,
    bound: inspect.BoundArguments,
    original: Callable,
) -> Any:
    inputs = bound.arguments["inputs"]
    deviation = math.sqrt(layer.rate / (1 - layer.rate))
    noise = 1 + deviation * share.normal(*_shape(inputs))
    return inputs * tf.cast(noise, inputs.dtype)


def _gaussian_noise(
    layer: keras.layers.GaussianNoise,
    share: Share,
    bound: inspect.BoundArguments,
    original: Callable,
) -> Any:
    inputs = bound.arguments["inputs"]
    noise = layer.stddev * share.normal(*_shape(inputs))
    return inputs + tf.cast(noise, inputs.dtype)


def _draw_for_the_step(
    layer: keras.Layer,
    share: Share,
    bound: inspect.BoundArguments,
    original: Callable,
) -> Any:
    """Calls any layer that draws, as if its share were all of the step.

    Every replica draws for all examples of the step, from one seed, and keeps
    what belongs to its own.
    """
    if share.is_whole_step:
        return original(*bound.args, **bound.kwargs)
    rows = share.rows
    with share.as_whole_step() as (before, after):

        def pad(value: Any) -> Any:
            # One of known length does not hold the rows of the batch.
            if not tf.is_tensor(value) or value.shape[:1] != [None]:
                return value
            ends = [[0, 0]] * (len(value.shape) - 1)
            return tf.pad(value, [[before, after], *ends])

        args, kwargs = keras.tree.map_structure(
            pad, (bound.args, bound.kwargs), none_is_leaf=False
        )
        outputs = original(*args, **kwargs)
    return keras.tree.map_structure(
        lambda output: output[before : before + rows], outputs
    )


def _next_seed(
    generator: keras.random.SeedGenerator, ordered: bool = True
) -> tf.Tensor:
    """Stands for `generator.next`: in a step of training, the step's seed."""
    share = current()
    if share is None:
        return type(generator).next(generator, ordered)
    return tf.cast(share.step_seed(), generator.state.dtype)
