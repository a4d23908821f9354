"""Mixup, against NumPy and the moments of its distribution."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from harness import random_examples, train
from test_equality import dense

import tfnet
from tfnet.data.feed import blocks
from tfnet.data.order import epoch_order
from tfnet.models.precision import computing_in
from tfnet.training import gradients
from tfnet.training.mixup import draw_weight
from tfnet.training.share import Share


def share(step):
    return Share(
        seed=0,
        epoch=tf.constant(0, tf.int64),
        position=tf.constant(step, tf.int64),
        rows=tf.constant(4),
        real=None,
        step_position=tf.constant(step, tf.int64),
        step_examples=tf.constant(4),
        is_whole_step=True,
    )


@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0, 5.0])
def test_the_weight_is_of_beta(alpha):
    drawn = np.array([draw_weight(share(i), alpha) for i in range(400)])
    assert ((drawn >= 0) & (drawn <= 1)).all()
    # Mean 1/2, variance 1 / (4 (2 alpha + 1)); five standard errors.
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(drawn.mean() - 0.5) < 5 * np.sqrt(variance / 400)
    assert abs(drawn.var() - variance) < 0.25 * variance


def test_partners_are_the_step_the_other_way_round():
    examples = random_examples(11)
    order = epoch_order(11, seed=0, epoch=0)
    for replicas in (1, 2, 3, 8):
        for block in blocks(
            examples.take,
            order,
            batch_size=3,
            batches=2,
            replicas=replicas,
            first_step=0,
            last_step=2,
            next_size=lambda step: 1,
            with_partners=True,
        ):
            start = 6 * block.first_step
            step = order[start : start + 6]
            where = dict(zip(step.tolist(), step[::-1].tolist(), strict=True))
            for replica in range(replicas):
                for batch, count in enumerate(block.counts[replica][0]):
                    first = block.positions[replica][0, batch]
                    mine = order[first : first + count]
                    want = [examples.labels[where[i]] for i in mine.tolist()]
                    theirs = block.partner_labels[replica][0, batch][::-1]
                    assert theirs[:count].tolist() == want


@pytest.mark.parametrize(
    ("replicas", "batches"), [(1, 1), (2, 1), (3, 1), (2, 3)]
)
def test_a_step_is_what_numpy_says(replicas, batches, strategy_of, monkeypatch):
    weight = 0.3
    monkeypatch.setattr(
        gradients, "draw_weight", lambda *_: tf.constant(weight, tf.float64)
    )
    # Steps of 6 and a last one of 5.
    examples = random_examples(11, size=2)
    with computing_in("float64"):
        keras.utils.set_random_seed(0)
        kernel, bias = dense().get_weights()
    found = train(
        strategy_of(replicas),
        dense,
        examples,
        batch=6 // batches,
        batches=batches,
        precision="float64",
        make=lambda rate: keras.optimizers.SGD(0.5),
        rate=0.5,
        mixup=0.2,
    )
    order = epoch_order(11, seed=0, epoch=0)
    for step, start in enumerate((0, 6)):
        chosen = order[start : start + 6]
        x = (examples.images[chosen].reshape(len(chosen), -1) / 255 - 0.5) / 0.5
        y = np.eye(3)[examples.labels[chosen]]
        x = weight * x + (1 - weight) * x[::-1]
        # The cross-entropy is linear in the target.
        y = weight * y + (1 - weight) * y[::-1]
        logits = x @ kernel + bias
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        loss = -(y * log_p).sum(axis=1).mean()
        np.testing.assert_allclose(found.losses[step], loss, rtol=0, atol=1e-13)
        slope = (np.exp(log_p) - y) / len(chosen)
        kernel = kernel - 0.5 * x.T @ slope
        bias = bias - 0.5 * slope.sum(axis=0)
    for mine, want in zip(found.weights, (kernel, bias), strict=True):
        np.testing.assert_allclose(mine, want, rtol=0, atol=1e-13)


def test_the_rule_of_the_flag():
    assert tfnet.Config(mixup=0.2).mixup == 0.2
    for value in (0, 0.01, 101):
        with pytest.raises(tfnet.ConfigError, match="--mixup"):
            tfnet.Config(mixup=value)
