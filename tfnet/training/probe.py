"""Finds layers that give an example other numbers in a smaller share.

Most layers treat each example by itself, and `layers` sees to those of Keras
that do not. What a layer of a user does can't be read off its class, so it is
tried: on some examples at once, and on the same ones in two shares.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfnet.data import images as image_rule
from tfnet.data.scaling import Scaling
from tfnet.errors import one_line
from tfnet.training.layers import all_layers
from tfnet.training.share import Share, working_on

_EXAMPLES = 16
# Relative to the largest number. What rounding does is far below, what a
# batch of another size or another draw does is far above.
_TOLERANCES = {"float16": 0.03, "bfloat16": 0.1}
_USUAL_TOLERANCE = 1e-3


def try_in_shares(
    model: keras.Model,
    copy: keras.Model,
    synchronise: Callable[[keras.Model], list[str]],
    image_shape: tuple[int, int, int],
    scaling: Scaling,
) -> list[str]:
    """Tries a model on a batch and on its halves, and compares.

    Args:
      model: The model that will be trained; it gives the names.
      copy: The same, built once more; it is tried, and can be thrown away.
      synchronise: What is done to its layers for training; says which of
        them are known to differ.
      image_shape: Height, width and channels.
      scaling: Scales the pixels for the model.

    Returns:
      A line for each other layer that differs, and in what.
    """
    try:
        found = _differences(copy, synchronise, image_shape, scaling)
    except Exception as error:
        # Whatever a user's layer does: the training will tell it, or not.
        return [
            "what the layers of the model do could not be tried in shares"
            f" ({one_line(error)}); with several replicas, or batches in a"
            " step, the numbers may differ from those of one."
        ]
    # Keras counts its names up from model to model.
    names = {
        id(layer): trained.name
        for layer, trained in zip(
            all_layers(copy), all_layers(model), strict=False
        )
    }
    return [
        f"{names.get(id(layer), layer.name)} ({type(layer).__name__}) {text};"
        " with several replicas, or batches in a step, the numbers differ from"
        " those of one."
        for layer, text in found
    ]


def _differences(
    model: keras.Model,
    synchronise: Callable[[keras.Model], list[str]],
    image_shape: tuple[int, int, int],
    scaling: Scaling,
) -> list[tuple[keras.Layer, str]]:
    """Returns the layers that differ, without those around them."""
    told = {note.partition(" ")[0] for note in synchronise(model)}
    layers = list(all_layers(model))
    random = np.random.default_rng(0)
    shape = (_EXAMPLES, *image_shape)
    images = random.integers(0, 256, shape, np.uint8)
    half = _EXAMPLES // 2
    whole = _try(model, layers, images, 0, scaling)
    parts = [
        _try(model, layers, images[i : i + half], i, scaling) for i in (0, half)
    ]
    found = {
        id(layer): (layer, text)
        for i, layer in enumerate(layers)
        if (text := _difference(layer, whole[i], [part[i] for part in parts]))
    }
    known = {id(layer) for layer in layers if layer.name in told}
    return [
        (layer, text)
        for layer, text in found.values()
        if id(layer) not in known
        and not any(
            id(inner) in known | found.keys()
            for inner in all_layers(layer)
            if inner is not layer
        )
    ]


@dataclasses.dataclass
class _Seen:
    """What a layer was given and gave, in short, and the losses it added."""

    inputs: list[Any] = dataclasses.field(default_factory=list)
    outputs: list[Any] = dataclasses.field(default_factory=list)
    losses: list[Any] = dataclasses.field(default_factory=list)

    @property
    def loss(self) -> float:
        return float(sum(self.losses))


def _try(
    model: keras.Model,
    layers: list[keras.Layer],
    images: np.ndarray,
    position: int,
    scaling: Scaling,
) -> list[_Seen]:
    """Calls the model as a step of training does; says what layers saw."""

    # The number of rows is unknown, as it is there.
    @tf.function(
        input_signature=[tf.TensorSpec([None, *images.shape[1:]], tf.uint8)],
        autograph=False,
    )
    def forward(images: Any) -> list[dict[str, Any]]:
        seen = [_Seen() for _ in layers]
        rows = tf.shape(images)[0]
        share = Share(
            seed=0,
            epoch=tf.constant(0, tf.int64),
            position=tf.constant(position, tf.int64),
            rows=rows,
            real=None,
            step_position=tf.constant(0, tf.int64),
            step_examples=tf.constant(_EXAMPLES),
            is_whole_step=is_whole_step,
            # They are those of the batch by design.
            keeps_moments=True,
        )
        with contextlib.ExitStack() as stack:
            for layer, one in zip(layers, seen, strict=True):
                stack.enter_context(_watched(layer, one))
            stack.enter_context(working_on(share))
            model(image_rule.scale(images, scaling), training=True)
        of_layer = {
            id(layer): one for layer, one in zip(layers, seen, strict=True)
        }
        for layer, loss in share.losses:
            of_layer[id(layer)].losses.append(tf.cast(loss, tf.float64))
        return [vars(one) for one in seen]

    is_whole_step = len(images) == _EXAMPLES
    seen = keras.tree.map_structure(np.asarray, forward(images))
    return [_Seen(**one) for one in seen]


@contextlib.contextmanager
def _watched(layer: keras.Layer, seen: _Seen) -> Iterator[None]:
    call = layer.call
    graph = tf.compat.v1.get_default_graph()

    def watch(*args: Any, **kwargs: Any) -> Any:
        outputs = call(*args, **kwargs)
        if tf.compat.v1.get_default_graph() is not graph:
            # In a loop: what goes around is seen where that is called.
            return outputs
        seen.inputs += _in_short([args, kwargs])
        seen.outputs += _in_short(outputs)
        return outputs

    layer.call = watch
    try:
        yield
    finally:
        layer.call = call


def _in_short(values: Any) -> list[Any]:
    """Returns two numbers a row for each tensor: [rows, 2].

    A sum with weights that no reflection or move keeps, and the size.
    """
    short = []
    for value in keras.tree.flatten(values):
        if tf.is_tensor(value) and value.dtype.is_floating and value.shape.rank:
            rows = tf.reshape(
                tf.cast(value, tf.float64), [tf.shape(value)[0], -1]
            )
            length = tf.cast(tf.shape(rows)[1], tf.float64)
            weights = tf.cos(tf.range(length) ** 1.5)
            total = tf.linalg.matvec(rows, weights)
            size = tf.linalg.norm(rows, axis=1)
            short.append(tf.stack([total, size], 1) / tf.sqrt(length))
    return short


def _difference(layer: keras.Layer, whole: _Seen, parts: list[_Seen]) -> str:
    tolerance = _TOLERANCES.get(layer.compute_dtype, _USUAL_TOLERANCE)

    def agree(kind: str) -> bool:
        pairs = [getattr(seen, kind) for seen in (whole, *parts)]
        return all(
            _close(one, np.concatenate(halves), tolerance)
            for one, *halves in zip(*pairs, strict=True)
        )

    if not agree("inputs"):
        # The difference is another's.
        return ""
    if not agree("outputs"):
        return (
            "gives an example other numbers in another batch (it looks over"
            " the batch, or draws random numbers that tfnet does not know of)"
        )
    total = sum(part.loss for part in parts)
    if abs(total - whole.loss) > tolerance * max(abs(whole.loss), abs(total)):
        return "adds a loss that is no mean over examples"
    return ""


def _close(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    if one.shape != other.shape:
        return False
    largest = np.max(one[:, 1], initial=0)
    return np.allclose(
        one, other, rtol=0, atol=tolerance * largest, equal_nan=True
    )
