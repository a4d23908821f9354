"""Forward and backward over one replica's share of a batch.

Each replica sums the losses of its own examples and divides by the examples
of the step, over all replicas and accumulated batches. So the gradients add
up to that of the mean, whatever the shares; a mean of means would not.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from tfnet.data import images as image_rule
from tfnet.data.augment import Augmentation
from tfnet.data.scaling import Scaling
from tfnet.training.mixup import Partners, draw_weight, partners_share
from tfnet.training.objective import Objective
from tfnet.training.share import Share, working_on
from tfnet.training.state import TrainState


@dataclasses.dataclass(frozen=True)
class ShareResult:
    """What a share adds to its step.

    Attributes:
      loss: Its part of the mean loss of the step, without regularisation:
        float scalar.
      correct: Examples classified right: int32 scalar.
      gradients: Its part of the gradient, scaled by the loss scale, for each
        variable that has one.
      used: Which of the trainable variables those are.
    """

    loss: Any
    correct: Any
    gradients: list[Any]
    used: list[int]


def share_gradients(
    state: TrainState,
    images: Any,
    labels: Any,
    share: Share,
    partners: Partners | None,
    *,
    objective: Objective,
    augmentation: Augmentation,
    scaling: Scaling,
    jit_compile: bool = False,
) -> ShareResult:
    """Returns what a share adds to its step; in a replica, while it is traced.

    Args:
      state: Its model gives logits.
      images: uint8 [rows, height, width, 3].
      labels: int32 [rows].
      share: Which examples these are, of which step.
      partners: What the examples are mixed with; None: nothing.
      objective: Gives the loss of each example.
      augmentation: Changes the images.
      scaling: Scales their pixels.
      jit_compile: Whether XLA compiles the forward and the backward pass.
    """

    def prepared(images: Any, draws: Share) -> Any:
        changed = augmentation(images, draws, scaling.zero)
        return image_rule.scale(changed, scaling)

    used: list[int] = []

    def forward_and_backward() -> Any:
        if jit_compile:
            # XLA knows the rows of what it is given, not those of a number.
            share.rows = tf.shape(inputs)[0]
            share.in_xla = True
        loss, correct, found = _gradients(
            state, inputs, labels, share, others, weight, objective
        )
        used[:] = [i for i, one in enumerate(found) if one is not None]
        return loss, correct, [tf.convert_to_tensor(found[i]) for i in used]

    with working_on(share):
        # Before this share draws: the partners draw the same way.
        others_share = share if partners is None else partners_share(share)
        inputs = prepared(images, share)
        others, weight = None, None
        if partners is not None:
            theirs = prepared(partners.images, others_share)
            weight = draw_weight(share, partners.alpha)
            inputs = weight * inputs + (1 - weight) * theirs[::-1]
            others = partners.labels[::-1]
        if jit_compile:
            # One for each replica, whose variables it takes in.
            forward_and_backward = tf.function(
                forward_and_backward, autograph=False, jit_compile=True
            )
        loss, correct, gradients = forward_and_backward()
    return ShareResult(loss, correct, gradients, used)


def _gradients(
    state: TrainState,
    inputs: Any,
    labels: Any,
    share: Share,
    others: Any,
    weight: Any,
    objective: Objective,
) -> tuple[Any, Any, list[Any]]:
    """Goes forward and backward through the model.

    Args:
      state: Its model gives logits.
      inputs: What it takes: [rows, height, width, 3].
      labels: int32 [rows].
      share: Which examples these are, of which step.
      others: The labels that the examples are mixed with; None: nothing.
      weight: That of their own label, then.
      objective: Gives the loss of each example.

    Returns:
      Loss and correct as in `ShareResult`, and for each trainable variable its
      gradient; None: it has none.
    """
    model = state.model
    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        logits = model(inputs, training=True)
        losses = objective.losses(labels, logits)
        if others is not None:
            weight = tf.cast(weight, losses.dtype)
            rest = objective.losses(others, logits)
            losses = weight * losses + (1 - weight) * rest
        examples = tf.cast(share.step_examples, losses.dtype)
        if share.real is not None:
            # Not a product: a copy's loss may be anything.
            losses = tf.where(share.real, losses, tf.zeros_like(losses))
        loss = tf.reduce_sum(losses) / examples
        # What is left in the model are the penalties on its weights. They
        # count once in all: by this share's part.
        for penalty in model.losses:
            share.add_loss(model, penalty)
        target = loss
        for _, added in share.losses:
            target += tf.cast(added, target.dtype)
        if state.loss_scale is not None:
            target *= tf.cast(state.loss_scale.scale, target.dtype)
    found = tape.gradient(target, variables)
    guesses = tf.argmax(logits, axis=-1, output_type=tf.int32)
    hits = guesses == labels
    if share.real is not None:
        hits = tf.logical_and(hits, share.real)
    return loss, tf.math.count_nonzero(hits, dtype=tf.int32), found
