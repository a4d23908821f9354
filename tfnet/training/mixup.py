"""Mixup: every example is mixed with another one of its step.

Zhang et al., mixup: Beyond Empirical Risk Minimization, 2018. Of n examples in
a step, number i goes with number n - 1 - i; the order of an epoch is random,
so any other pairing would do. The weight is drawn once a step, for all
replicas and accumulated batches.
"""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from tfnet.training.share import Share


@dataclasses.dataclass(frozen=True)
class Partners:
    """The examples that those of a share are mixed with, last one first.

    Attributes:
      images: uint8 [rows, height, width, 3].
      labels: int32 [rows].
      alpha: The weight of an example comes from Beta(alpha, alpha).
    """

    images: Any
    labels: Any
    alpha: float


def partners_share(share: Share) -> Share:
    """Returns the share that `Partners` of `share` are: it draws for them."""
    # The last of the share stands where the first partner stands, counted
    # from the end of the step.
    beyond = tf.cast(share.step_examples - share.rows, tf.int64)
    position = 2 * share.step_position + beyond - share.position
    return dataclasses.replace(share, position=position)


def draw_weight(share: Share, alpha: float) -> tf.Tensor:
    """Draws what an example weighs, from Beta(alpha, alpha): floatx scalar.

    Its partner weighs the rest. A Gamma variable divided by the sum of two is
    a Beta variable; in float64, where alpha = 0.05 does not round both to 0.

    Args:
      share: Draws the same for all shares of a step.
      alpha: Of the distribution, at least 0.05.
    """
    gammas = tf.random.stateless_gamma(
        [2],
        share.step_seed(),
        alpha=tf.constant(alpha, tf.float64),
        dtype=tf.float64,
    )
    return tf.cast(gammas[0] / tf.reduce_sum(gammas), keras.config.floatx())
