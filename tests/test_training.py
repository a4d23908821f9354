"""The step and the loop, against hand-worked numbers and one device."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from harness import train

from tfnet import training
from tfnet.data import Examples
from tfnet.data.feed import blocks
from tfnet.data.scaling import SEED
from tfnet.models import build_model


def in_order(examples, *, batch, replicas, batches=1):
    """One block: the examples as they stand, in steps of a whole size."""
    steps = len(examples) // (batch * batches)
    (block,) = blocks(
        examples.take,
        np.arange(len(examples)),
        batch_size=batch,
        batches=batches,
        replicas=replicas,
        first_step=0,
        last_step=steps,
        next_size=lambda step: steps,
    )
    return block


def train_block(strategy, model, optimizer, block, rate, **rule):
    """Trains on one block; returns losses, hits and the state."""
    with strategy.scope():
        state = training.TrainState(model, optimizer, ema=rule.pop("ema", None))
    function = training.TrainFunction(
        strategy,
        state,
        block.images[0].shape[3:],
        training.StepRule(seed=0, **rule),
        accumulates=block.labels[0].shape[1] > 1,
    )
    rates = np.broadcast_to(rate, block.steps).astype(float)
    return *function(block, 0, rates), state


def small_model(shape=(2, 2, 3), classes=3, **dense):
    return keras.Sequential(
        [
            keras.Input(shape),
            keras.layers.Flatten(),
            keras.layers.Dense(classes, **dense),
        ]
    )


def net():
    return build_model("net", (32, 32, 3), 10, seed=0)


def reference_steps(kernel, bias, images, labels, rate, momentum):
    """Softmax regression by SGD with momentum, in float64, by hand."""
    kernel, bias = kernel.astype(np.float64), bias.astype(np.float64)
    speed_k, speed_b = np.zeros_like(kernel), np.zeros_like(bias)
    losses, hits = [], []
    for batch, truth in zip(images, labels, strict=True):
        x = (batch.reshape(len(batch), -1) / 255 - 0.5) / 0.5
        logits = x @ kernel + bias
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        p = odds / odds.sum(axis=1, keepdims=True)
        losses.append(-np.log(p[np.arange(len(truth)), truth]).mean())
        hits.append(int((logits.argmax(axis=1) == truth).sum()))
        # d loss / d logits = (p - one_hot) / batch
        slope = (p - np.eye(p.shape[1])[truth]) / len(truth)
        speed_k = momentum * speed_k + x.T @ slope
        speed_b = momentum * speed_b + slope.sum(axis=0)
        kernel, bias = kernel - rate * speed_k, bias - rate * speed_b
    return kernel, bias, np.array(losses), np.array(hits)


@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
def test_steps_are_those_worked_out_by_hand(strategy_of, replicas):
    # 8 replicas and 5 examples: three of them get nothing.
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (30, 2, 2, 3)).astype(np.uint8)
    labels = random.integers(0, 3, 30).astype(np.int32)
    strategy = strategy_of(replicas)
    with strategy.scope():
        model = small_model()
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    kernel, bias = model.get_weights()
    block = in_order(Examples(images, labels), batch=5, replicas=replicas)
    loss, correct, _ = train_block(strategy, model, optimizer, block, 0.1)
    want = reference_steps(
        kernel,
        bias,
        images.reshape(6, 5, 2, 2, 3),
        labels.reshape(6, 5),
        0.1,
        0.9,
    )
    np.testing.assert_allclose(model.get_weights()[0], want[0], atol=2e-7)
    np.testing.assert_allclose(model.get_weights()[1], want[1], atol=2e-7)
    np.testing.assert_allclose(loss, want[2], atol=5e-7)
    assert correct.tolist() == want[3].tolist()
    assert optimizer.iterations.numpy() == 6


@pytest.mark.parametrize(
    ("count", "batch", "replicas"),
    [
        (64, 16, 2),  # divides
        (50, 8, 4),  # a last batch of 2: shares 1, 1, 0, 0
        (33, 16, 2),  # a last batch of 1: shares 1, 0
        (35, 16, 3),  # uneven in every batch
        (3, 16, 4),  # a data set smaller than the replicas
        (12, 4, 8),  # batches smaller than the replicas
    ],
)
def test_replicas_give_the_numbers_of_one(
    strategy_of, make_examples, count, batch, replicas
):
    examples = make_examples(count)
    one, many = (
        train(strategy_of(n), net, examples, batch=batch) for n in (1, replicas)
    )
    # At most 7 steps: float32 promises 1e-7 a weight over ten.
    assert many.differs_from(one) < 1e-6


@pytest.mark.parametrize(
    "make",
    [
        keras.optimizers.Adam,
        lambda rate: keras.optimizers.AdamW(rate, weight_decay=0.1),
        lambda rate: keras.optimizers.SGD(rate, momentum=0.9, weight_decay=0.1),
        keras.optimizers.Nadam,
        keras.optimizers.Lamb,
    ],
    ids=["adam", "adamw", "sgd with decay", "nadam", "lamb"],
)
def test_the_optimizer_does_what_keras_does(strategy_of, make_examples, make):
    examples = make_examples(24, size=4, classes=3)
    ours = train(
        strategy_of(3),
        lambda: small_model((4, 4, 3)),
        examples,
        batch=24,
        epochs=4,
        make=make,
        rate=0.01,
    )
    keras.utils.set_random_seed(0)
    model = small_model((4, 4, 3))
    optimizer = make(0.01)
    scaled = ((examples.images / 255 - 0.5) / 0.5).astype(np.float32)
    for _ in range(4):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                examples.labels, model(scaled)
            )
            loss = tf.reduce_mean(losses)
        optimizer.apply(
            tape.gradient(loss, [v.value for v in model.trainable_variables]),
            model.trainable_variables,
        )
    for mine, theirs in zip(ours.weights, model.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-6)


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize(
    ("momentum", "decay"), [(0.0, None), (0.9, None), (0.9, 0.1), (0.0, 0.1)]
)
def test_sgd_in_one_operation_is_that_of_keras(
    strategy_of, make_examples, momentum, decay, replicas
):
    ours, theirs = (
        train(
            strategy_of(replicas),
            lambda: small_model((4, 4, 3)),
            make_examples(26, size=4, classes=3),
            batch=8,
            epochs=3,
            make=make,
            schedule=lambda steps: 0.1 / (1 + steps),
            precision="float64",
        )
        for make in (
            lambda rate: training.create_optimizer(
                "sgd", learning_rate=rate, momentum=momentum, weight_decay=decay
            ),
            lambda rate: keras.optimizers.SGD(
                rate, momentum=momentum, weight_decay=decay
            ),
        )
    )
    assert ours.differs_from(theirs) < 1e-14
    assert np.abs(ours.weights[0]).max() > 0.01


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_regularisation_counts_once(strategy_of, replicas):
    images = np.full((3, 2, 2, 3), 255, np.uint8)
    examples = Examples(images, np.array([0, 1, 2], np.int32))
    strategy = strategy_of(replicas)
    with strategy.scope():
        model = small_model(
            kernel_initializer="ones",
            kernel_regularizer=keras.regularizers.L2(0.05),
        )
    block = in_order(examples, batch=3, replicas=replicas)
    train_block(strategy, model, keras.optimizers.SGD(1.0), block, 1.0)
    # One example of each class and equal logits: the gradients of the
    # cross-entropy cancel, and L2 leaves weight - 1.0 * 2 * 0.05 * weight.
    np.testing.assert_allclose(model.get_weights()[0], 0.9, atol=1e-6)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_constraint_holds_after_the_step(
    strategy_of, make_examples, replicas
):
    found = train(
        strategy_of(replicas),
        lambda: small_model((4, 4, 3), kernel_constraint="non_neg"),
        make_examples(30, size=4, classes=3),
        batch=10,
    )
    assert found.weights[0].min() >= 0
    assert found.weights[0].max() > 0


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_variable_without_a_gradient_is_left_alone(
    strategy_of, make_examples, replicas
):
    def build():
        inputs = keras.Input((4, 4, 3))
        flat = keras.layers.Flatten()(inputs)
        unused = keras.layers.Dense(2, name="unused", kernel_initializer="ones")
        outputs = keras.layers.Dense(3)(flat)
        model = keras.Model(inputs, outputs)
        unused.build((None, 48))
        model.unused = unused
        return model

    examples = make_examples(3, size=4, classes=3)
    found = train(strategy_of(replicas), build, examples, batch=1, ema=0.5)
    by_shape = {weight.shape: weight for weight in found.weights}
    assert np.all(by_shape[48, 2] == 1)
    assert np.isfinite(np.concatenate([w.ravel() for w in found.weights])).all()


def test_every_variable_of_the_net_gets_a_gradient(strategy_of, make_examples):
    start = net().get_weights()
    after = train(strategy_of(1), net, make_examples(16), batch=16).weights
    assert len(start) == 10
    for old, new in zip(start, after, strict=True):
        assert np.any(old != new)


def test_a_handful_of_examples_is_learnt(strategy_of, make_examples):
    found = train(
        strategy_of(2),
        net,
        make_examples(12),
        batch=4,
        epochs=100,
        rate=0.01,
    )
    assert found.losses[:3].mean() > 2
    assert found.losses[-3:].max() < 0.05
    assert found.corrects[-3:].tolist() == [4, 4, 4]


@pytest.mark.parametrize("batches", [1, 3])
def test_the_size_of_blocks_changes_no_bit(strategy_of, make_examples, batches):
    examples = make_examples(50)
    first, *others = (
        train(
            strategy_of(2), net, examples, batch=4, batches=batches, block=block
        )
        for block in (1, 1000, 3)
    )
    for other in others:
        for ours, theirs in zip(first.weights, other.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert first.losses.tolist() == other.losses.tolist()


@pytest.mark.parametrize(("batches", "traces"), [(1, 2), (3, 8)])
def test_a_program_is_traced_once_for_all_shapes(
    strategy_of, make_examples, batches, traces
):
    seen = []

    class Spy(keras.layers.Layer):
        def call(self, inputs):
            seen.append(1)
            return inputs

    def build():
        model = keras.Sequential(
            [
                keras.Input((4, 4, 3)),
                Spy(),
                keras.layers.Flatten(),
                keras.layers.Dense(3),
            ]
        )
        seen.clear()
        return model

    # Steps in blocks of 1, 2, ..., and a last one of less, twice.
    train(
        strategy_of(2),
        build,
        make_examples(31, size=4, classes=3),
        batch=4,
        batches=batches,
        epochs=2,
    )
    # Once on each of the two replicas. With accumulation, the first batch and
    # the others, in a program without padding and one with.
    assert len(seen) == traces


def test_blocks_end_where_the_caller_acts(make_examples):
    examples = make_examples(90, size=2, classes=2)

    def function(block, epoch, rates):
        return np.zeros(block.steps), np.zeros(block.steps, np.int64)

    function.mixes = function.holds_images = False
    ends = [
        result.last_step
        for result in training.train_epoch(
            function,
            examples,
            seed=0,
            epoch=0,
            batch_size=1,
            replicas=1,
            until_stop=lambda step: 25 - step % 25,
            learning_rate=np.zeros_like,
            steps=80,
        )
    ]
    assert {25, 50, 75, 80} <= set(ends)
    assert ends[-1] == 80


def test_blocks_grow_until_they_take_the_time_they_should(make_examples):
    examples = make_examples(1000, size=2, classes=2)
    now = [0.0]
    sizes = []

    def function(block, epoch, rates):
        # 0.1 seconds a step: 0.4 seconds are 4 steps.
        now[0] += 0.1 * block.steps
        sizes.append(block.steps)
        return np.zeros(block.steps), np.zeros(block.steps, np.int64)

    function.mixes = function.holds_images = False
    for _ in training.train_epoch(
        function,
        examples,
        seed=0,
        epoch=0,
        batch_size=10,
        replicas=1,
        until_stop=lambda step: 1000,
        learning_rate=np.zeros_like,
        clock=lambda: now[0],
    ):
        pass
    assert sum(sizes) == 100
    assert sizes[0] == 1
    assert max(sizes) == 4


def test_evaluation_counts_every_example_once(strategy_of, make_examples):
    for replicas, count, lanes in [
        (1, 7, 1), (2, 7, 1), (4, 3, 1), (3, 3701, 1),
        # Parts of a share, some of them without an example.
        (1, 2, 3), (1, 7, 3), (2, 7, 8), (3, 3701, 2),
    ]:  # fmt: skip
        strategy = strategy_of(replicas)
        examples = make_examples(count, size=4, classes=3)
        with strategy.scope():
            model = small_model((4, 4, 3))
        function = training.create_evaluate_function(
            strategy, model, 3, SEED, lanes=lanes
        )
        found = training.evaluate(function, strategy, examples)
        kernel, bias = model.get_weights()
        x = (examples.images.reshape(count, -1) / 255 - 0.5) / 0.5
        logits = x @ kernel.astype(np.float64) + bias
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        truth = examples.labels
        confusion = np.zeros((3, 3), np.int64)
        np.add.at(confusion, (truth, logits.argmax(axis=1)), 1)
        assert found.confusion.tolist() == confusion.tolist()
        assert found.confusion.sum() == count
        want = -log_p[np.arange(count), truth].mean()
        assert found.loss == pytest.approx(want, abs=1e-5)
        assert found.accuracy == np.trace(confusion) / count


@pytest.mark.parametrize("replicas", [1, 3])
def test_top_five_are_those_with_fewer_than_five_before_them(
    strategy_of, make_examples, replicas
):
    strategy = strategy_of(replicas)
    examples = make_examples(100, size=4, classes=10)
    with strategy.scope():
        model = small_model((4, 4, 3), classes=10)
    function = training.create_evaluate_function(strategy, model, 10, SEED)
    found = training.evaluate(function, strategy, examples)
    logits = model((examples.images / 255 - 0.5) / 0.5).numpy()
    best = np.argsort(-logits, axis=1)[:, :5]
    assert found.top_5 == (best == examples.labels[:, None]).any(1).sum()
    assert 0 < found.top_5 < 100


def test_a_class_without_test_examples_has_no_accuracy():
    confusion = np.array([[3, 1, 0], [0, 0, 0], [0, 0, 2]])
    evaluation = training.Evaluation(0.0, confusion, 6)
    assert evaluation.class_accuracy == [0.75, None, 1.0]
    assert evaluation.accuracy == 5 / 6
    assert evaluation.top_5_accuracy == 1.0


def test_labels_are_not_needed_as_int64(strategy_of):
    images = np.zeros((4, 2, 2, 3), np.uint8)
    examples = Examples(images, np.arange(4, dtype=np.int32) % 3)
    found = train(strategy_of(1), small_model, examples, batch=2)
    assert found.losses.dtype == np.float64
