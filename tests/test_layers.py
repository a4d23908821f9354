"""Layers that look beyond one example, against Keras' own and NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from harness import random_examples, train

from tfnet import training
from tfnet.training.share import Share, working_on

layers = keras.layers


def model_of(*middle, size=8):
    """A model whose middle is what the functions make."""
    return keras.Sequential(
        [
            keras.Input((size, size, 3)),
            *(make() for make in middle),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )


def whole_step(rows, *, epoch=0, position=0):
    return Share(
        seed=0,
        epoch=tf.constant(epoch, tf.int64),
        position=tf.constant(position, tf.int64),
        rows=tf.constant(rows),
        real=None,
        step_position=tf.constant(position, tf.int64),
        step_examples=tf.constant(rows),
        is_whole_step=True,
    )


def called(layer, inputs, *, epoch=0, position=0):
    """Calls a layer as a step of training does."""
    share = whole_step(len(inputs), epoch=epoch, position=position)
    with working_on(share):
        return layer(inputs, training=True).numpy()


def prepared(layer, shape):
    model = keras.Sequential([keras.Input(shape), layer])
    training.synchronise(model, replicas=1)
    return layer


@pytest.mark.parametrize("replicas", [1, 2, 5, 8])
def test_moments_are_those_of_the_whole_batch(strategy_of, replicas):
    # 11 by 4: shares of 1 and 0 on 5 and on 8 replicas, and a last batch of 3.
    examples = random_examples(11)
    found = train(
        strategy_of(replicas),
        lambda: model_of(layers.BatchNormalization),
        examples,
        batch=4,
        precision="float64",
    )
    from tfnet.data.order import epoch_order

    scaled = (examples.images.astype(np.float64) / 255 - 0.5) / 0.5
    order = epoch_order(11, seed=0, epoch=0)
    mean, variance = np.zeros(3), np.ones(3)
    for batch in (order[:4], order[4:8], order[8:]):
        mean = 0.99 * mean + 0.01 * scaled[batch].mean((0, 1, 2))
        variance = 0.99 * variance + 0.01 * scaled[batch].var((0, 1, 2))
    by_name = dict(
        zip(
            [weight.name for weight in found.state.model.weights],
            found.weights,
            strict=True,
        )
    )
    np.testing.assert_allclose(by_name["moving_mean"], mean, atol=1e-15)
    np.testing.assert_allclose(by_name["moving_variance"], variance, atol=1e-15)


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_batch_normalisation_trains_as_keras_own_on_one_device(
    strategy_of, replicas
):
    examples = random_examples(7)

    def build():
        return model_of(
            lambda: layers.Conv2D(4, 3),
            layers.BatchNormalization,
            lambda: layers.BatchNormalization(axis=1, scale=False),
        )

    found = train(
        strategy_of(replicas),
        build,
        examples,
        batch=7,
        epochs=5,
        precision="float64",
        make=keras.optimizers.Adam,
        rate=0.01,
    )
    from tfnet.models.precision import computing_in

    with computing_in("float64"):
        keras.utils.set_random_seed(0)
        model = build()
        optimizer = keras.optimizers.Adam(0.01)
        variables = model.trainable_variables
        scaled = (examples.images.astype(np.float64) / 255 - 0.5) / 0.5
        for _ in range(5):
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    examples.labels, model(scaled, training=True)
                )
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, [v.value for v in variables])
            optimizer.apply(gradients, variables)
    for ours, theirs in zip(found.weights, model.get_weights(), strict=True):
        # Adam divides by the root of a square: 1e-16 grows to 1e-11.
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_moments_do_not_cancel_where_the_mean_is_large(strategy_of, replicas):
    # In float32, E[x^2] - E[x]^2 of 1000 +- 1 is wrong in the first digit;
    # means that are rounded before they are compared, in the fifth.
    examples = random_examples(9)
    found = train(
        strategy_of(replicas),
        lambda: model_of(
            lambda: layers.Rescaling(1.0, offset=1000.0),
            lambda: layers.BatchNormalization(momentum=0.0),
        ),
        examples,
        batch=9,
        rate=1e-9,
    )
    scaled = (examples.images.astype(np.float32) / 255 - 0.5) / 0.5
    values = (scaled + np.float32(1000)).astype(np.float64)
    variance = next(
        weight
        for variable, weight in zip(
            found.state.model.weights, found.weights, strict=True
        )
        if variable.name == "moving_variance"
    )
    want = values.var((0, 1, 2))
    np.testing.assert_allclose(variance, want, rtol=1e-5)


def test_moments_of_each_replica_are_had_on_request_and_told(strategy_of):
    def trained(replicas, sync):
        return train(
            strategy_of(replicas),
            lambda: model_of(layers.BatchNormalization),
            random_examples(9),
            batch=4,
            sync=sync,
        )

    one = trained(1, False)
    assert one.notes == []
    two = trained(2, False)
    assert len(two.notes) == 1
    assert "each replica's own moments" in two.notes[0]
    assert trained(2, True).notes == []
    # The last batch has one example: the other replica has seen nothing.
    for weights in (one.weights, two.weights):
        assert all(np.isfinite(weight).all() for weight in weights)
    assert np.abs(one.weights[-1] - two.weights[-1]).max() > 1e-6


def test_a_frozen_layer_normalises_by_what_it_has(strategy_of):
    def build():
        model = model_of(layers.BatchNormalization)
        model.layers[0].trainable = False
        return model

    found = train(strategy_of(2), build, random_examples(9), batch=4)
    names = [weight.name for weight in found.state.model.weights]
    by_name = dict(zip(names, found.weights, strict=True))
    assert by_name["moving_mean"].tolist() == [0, 0, 0]
    assert by_name["moving_variance"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.5, 1.0])
def test_dropout_drops_its_share_and_scales_the_rest(rate):
    layer = prepared(layers.Dropout(rate), (1000,))
    found = called(layer, np.ones((100, 1000), np.float32))
    kept = found != 0
    # 100,000 decisions: a deviation of 1.6e-3 at most.
    assert abs(kept.mean() - (1 - rate)) < 6e-3
    if rate < 1:
        np.testing.assert_allclose(found[kept], 1 / (1 - rate), rtol=1e-6)


def test_dropout_is_new_for_every_example_epoch_and_layer():
    model = keras.Sequential(
        [keras.Input((200,)), layers.Dropout(0.5), layers.Dropout(0.5)]
    )
    training.synchronise(model, replicas=1)
    ones = np.ones((8, 200), np.float32)
    first = called(model.layers[0], ones)
    assert len(np.unique(first, axis=0)) == 8
    np.testing.assert_array_equal(first, called(model.layers[0], ones))
    assert np.any(first != called(model.layers[0], ones, epoch=1))
    assert np.any(first != called(model.layers[0], ones, position=8))
    # Both in one pass: what is left is what both keep, a quarter.
    both = called(model, ones)
    assert abs((both != 0).mean() - 0.25) < 0.05


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: layers.SpatialDropout1D(0.5), (6, 4)),
        (lambda: layers.SpatialDropout2D(0.5), (3, 5, 4)),
        (lambda: layers.SpatialDropout3D(0.5), (2, 3, 2, 4)),
        (lambda: layers.Dropout(0.5, noise_shape=(None, 1, 4)), (6, 4)),
    ],
)
def test_spatial_dropout_drops_whole_channels(make, shape):
    found = called(prepared(make(), shape), np.ones((50, *shape), np.float32))
    flat = found.reshape(50, -1, shape[-1])
    assert np.all(flat == flat[:, :1])
    assert len(np.unique(flat[:, 0], axis=0)) > 5


def test_spatial_dropout_knows_where_the_channels_are():
    layer = layers.SpatialDropout2D(0.5, data_format="channels_first")
    found = called(prepared(layer, (4, 3, 5)), np.ones((50, 4, 3, 5), "f"))
    flat = found.reshape(50, 4, -1)
    assert np.all(flat == flat[:, :, :1])


def test_noise_is_as_strong_as_it_says():
    zeros, ones = np.zeros((100, 1000), "f"), np.ones((100, 1000), "f")
    noise = called(prepared(layers.GaussianNoise(0.3), (1000,)), zeros)
    assert abs(noise.mean()) < 5e-3
    assert abs(noise.std() - 0.3) < 5e-3
    # sqrt(rate / (1 - rate)) = 0.5
    factor = called(prepared(layers.GaussianDropout(0.2), (1000,)), ones)
    assert abs(factor.mean() - 1) < 1e-2
    assert abs(factor.std() - 0.5) < 1e-2


def test_outside_of_a_step_a_layer_is_as_keras_made_it():
    layer = prepared(layers.Dropout(0.5, seed=3), (100,))
    other = layers.Dropout(0.5, seed=3)
    ones = np.ones((4, 100), np.float32)
    np.testing.assert_array_equal(
        layer(ones, training=True), other(ones, training=True)
    )
    np.testing.assert_array_equal(layer(ones, training=False), ones)
    with working_on(whole_step(4)):
        np.testing.assert_array_equal(layer(ones, training=False), ones)


class Own(keras.layers.Layer):
    """A layer with layers in it that Keras' Model.layers does not list."""

    def __init__(self):
        super().__init__()
        self.parts = [layers.Conv2D(3, 3, padding="same")]
        self.named = {"norm": layers.BatchNormalization()}
        self.drop = layers.Dropout(0.3)
        self.seed_generator = keras.random.SeedGenerator(7)

    def build(self, shape):
        self.parts[0].build(shape)
        self.named["norm"].build(shape)

    def call(self, inputs, training=False):
        outputs = self.named["norm"](self.parts[0](inputs), training=training)
        if training:
            outputs += keras.random.normal(
                keras.ops.shape(outputs), seed=self.seed_generator
            )
        return inputs + self.drop(outputs, training=training)


def attention():
    inputs = keras.Input((8, 8, 3))
    rows = layers.Reshape((8, 24))(inputs)
    mixed = layers.MultiHeadAttention(2, 4, dropout=0.3)(rows, rows)
    inner = keras.Sequential(
        [keras.Input((8, 24)), layers.Dense(4), layers.BatchNormalization()]
    )
    mixed = layers.TimeDistributed(layers.Dropout(0.3))(inner(mixed))
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(mixed)))


def attention_of_keras_own():
    inputs = keras.Input((8, 8, 3))
    rows = layers.Reshape((8, 24))(inputs)
    rows = layers.Attention(dropout=0.3, use_scale=True)([rows, rows])
    rows = layers.AdditiveAttention(dropout=0.3)([rows, rows, rows])
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(rows)))


class Sampler(keras.layers.Layer):
    """As in a variational autoencoder: its loss is 0 for inputs of 0."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(3)

    def call(self, inputs, training=False):
        self.add_loss(0.1 * keras.ops.mean(inputs**2))
        noise = keras.random.normal(
            keras.ops.shape(inputs), dtype=inputs.dtype,
            seed=self.seed_generator,
        )  # fmt: skip
        return inputs + 0.1 * noise


class Position(keras.layers.Layer):
    """Drops from weights that all examples share: the first axis is 1."""

    def __init__(self):
        super().__init__()
        self.drop = layers.Dropout(0.5)

    def build(self, shape):
        self.embedding = self.add_weight(
            shape=(1, *shape[1:]), initializer="random_normal"
        )

    def call(self, inputs, training=False):
        dropped = self.drop(1 * self.embedding, training=training)
        return inputs + dropped


def compiled(*middle):
    """As people have it from `fit`; Keras then holds more in the model."""
    model = model_of(*middle)
    model.compile("adam", "mse", metrics=["accuracy"])
    return model


class MeanLoss(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(0.1 * keras.ops.mean(inputs**2))
        return inputs


MODELS = {
    "dropout": lambda: model_of(
        lambda: layers.Dropout(0.5),
        lambda: layers.SpatialDropout2D(0.3),
        lambda: layers.GaussianNoise(0.1),
        lambda: layers.GaussianDropout(0.2),
    ),
    "alpha dropout": lambda: model_of(lambda: layers.AlphaDropout(0.5)),
    "same noise for all": lambda: model_of(
        lambda: layers.Dropout(0.5, noise_shape=(1, 8, 8, 3))
    ),
    "random images": lambda: model_of(
        layers.RandomFlip, lambda: layers.RandomTranslation(0.2, 0.2)
    ),
    "own layer": lambda: model_of(Own),
    "attention": attention,
    "attention of several tensors": attention_of_keras_own,
    "losses of layers": lambda: model_of(
        lambda: layers.Conv2D(3, 3, activity_regularizer="l2"),
        lambda: layers.ActivityRegularization(l1=0.01),
        lambda: layers.Dense(3, kernel_regularizer="l2"),
        MeanLoss,
    ),
    # Its collective has the replicas wait for each other between the losses.
    "losses around moments": lambda: model_of(
        lambda: layers.Conv2D(
            3, 3, activity_regularizer="l2", kernel_regularizer="l2"
        ),
        MeanLoss,
        layers.BatchNormalization,
        MeanLoss,
        lambda: layers.Dense(3, activity_regularizer="l2"),
        layers.BatchNormalization,
    ),
    "a loss and a draw": lambda: model_of(Sampler),
    "dropout of a position": lambda: model_of(
        Position, layers.BatchNormalization
    ),
    "compiled": lambda: compiled(lambda: layers.Dropout(0.5)),
    "several dtypes": lambda: model_of(
        lambda: layers.Dense(4, dtype="float32"),
        lambda: layers.BatchNormalization(dtype="float32"),
        lambda: layers.Dropout(0.3, dtype="float32"),
        lambda: layers.Dense(3),
    ),
}
# What a layer computes in float32 is as good as that.
ROUNDING = {"several dtypes": 1e-6}


@pytest.mark.parametrize("name", MODELS)
def test_layers_give_the_numbers_of_one_replica(strategy_of, name):
    one, many = (
        train(
            strategy_of(replicas),
            MODELS[name],
            random_examples(13),
            batch=6,
            precision="float64",
        )
        for replicas in (1, 4)
    )
    assert many.notes == []
    assert many.differs_from(one) < ROUNDING.get(name, 1e-13)


@pytest.mark.parametrize(
    "name", ["dropout", "random images", "losses of layers"]
)
def test_accumulated_batches_draw_as_one_large_one(strategy_of, name):
    def trained(replicas, batch, batches):
        return train(
            strategy_of(replicas),
            MODELS[name],
            random_examples(23),
            batch=batch,
            batches=batches,
            precision="float64",
        )

    large = trained(1, 12, 1)
    assert trained(1, 4, 3).differs_from(large) < 1e-13
    assert trained(2, 4, 3).differs_from(large) < 1e-13


def test_what_all_examples_share_is_dropped_anew_in_every_step(strategy_of):
    found = train(
        strategy_of(2), MODELS["dropout of a position"],
        random_examples(12), batch=4, rate=0.0, precision="float64",
        make=lambda rate: keras.optimizers.SGD(rate),
    )  # fmt: skip
    again = train(
        strategy_of(1), MODELS["dropout of a position"],
        random_examples(12), batch=4, rate=0.0, precision="float64",
        make=lambda rate: keras.optimizers.SGD(rate), epochs=2,
    )  # fmt: skip
    np.testing.assert_allclose(found.losses, again.losses[:3], rtol=1e-12)
    assert np.all(again.losses[3:] != again.losses[:3])


def test_moments_inside_a_condition_name_the_way_out(strategy_of):
    class Conditional(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.norm = layers.BatchNormalization()

        def build(self, shape):
            self.norm.build(shape)

        def call(self, inputs, training=False):
            if isinstance(inputs, keras.KerasTensor):
                return inputs
            return tf.cond(
                tf.reduce_sum(inputs) > 1e9,
                lambda: inputs,
                lambda: self.norm(inputs, training=training),
            )

    def trained(replicas, sync):
        return train(
            strategy_of(replicas), lambda: model_of(Conditional),
            random_examples(8), batch=4, sync=sync,
        )  # fmt: skip

    trained(1, True)
    trained(2, False)
    with pytest.raises(Exception, match="--nosync_batch_norm"):
        trained(2, True)


def test_random_images_are_new_for_every_example_and_epoch():
    flip = prepared(layers.RandomFlip("horizontal"), (2, 2, 1))
    image = np.array([[[1.0], [2.0]], [[1.0], [2.0]]], np.float32)
    images = np.tile(image, (64, 1, 1, 1))
    first, second = (
        called(flip, images, epoch=epoch)[:, 0, 0, 0] == 2 for epoch in (0, 1)
    )
    assert 16 < first.sum() < 48
    assert np.any(first != second)


def test_the_losses_of_layers_count_in_the_gradient(strategy_of):
    """The activity regulariser and add_loss, by hand on one step."""
    examples = random_examples(5)

    def build():
        return model_of(
            # What floating-point numbers hold exactly: Keras rounds it to
            # float32.
            lambda: layers.Dense(
                2, activity_regularizer=keras.regularizers.L2(0.25)
            ),
            MeanLoss,
        )

    found = train(
        strategy_of(3), build, examples, batch=5, precision="float64",
        make=lambda rate: keras.optimizers.SGD(rate), rate=1.0,
    )  # fmt: skip
    from tfnet.models.precision import computing_in

    with computing_in("float64"):
        keras.utils.set_random_seed(0)
        model = build()
        scaled = (examples.images.astype(np.float64) / 255 - 0.5) / 0.5
        with tf.GradientTape() as tape:
            hidden = model.layers[0](scaled)
            logits = model(scaled)
            target = (
                tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(
                        examples.labels, logits
                    )
                )
                + 0.25 * tf.reduce_sum(hidden**2) / 5
                + 0.1 * tf.reduce_mean(hidden**2)
            )
        weights = [variable.value for variable in model.trainable_variables]
        expected = [
            (weight - gradient).numpy()
            for weight, gradient in zip(
                weights, tape.gradient(target, weights), strict=True
            )
        ]
    for ours, theirs in zip(found.weights, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-13)


class Remembering(keras.layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(
            shape=(), initializer="zeros", trainable=False
        )

    def call(self, inputs, training=False):
        if training:
            self.seen.assign_add(1.0)
        return inputs


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: layers.BatchNormalization(renorm=True), "own moments"),
        (Remembering, "keeps a state on each replica"),
    ],
)
def test_what_cannot_be_equal_is_told(make, text):
    def notes(replicas):
        return training.synchronise(model_of(make), replicas=replicas)

    assert notes(1) == []
    (note,) = notes(2)
    assert text in note
    assert "\n" not in note


def test_a_cell_without_dropout_has_nothing_to_tell():
    class Cell(keras.layers.Layer):
        state_size = 4

        def __init__(self):
            super().__init__()
            self.seed_generator = keras.random.SeedGenerator(0)

        def call(self, inputs, states):
            return inputs, states

    model = keras.Sequential([keras.Input((8, 4)), layers.RNN(Cell())])
    assert training.synchronise(model, replicas=2) == []


def test_a_recurrent_layer_that_drops_is_told():
    def model(dropout):
        return keras.Sequential(
            [keras.Input((8, 3)), layers.LSTM(4, dropout=dropout)]
        )

    assert training.synchronise(model(0.0), replicas=2) == []
    (note,) = training.synchronise(model(0.5), replicas=2)
    assert "draws the same on every replica" in note


def test_moments_of_accumulated_batches_are_told():
    model = model_of(layers.BatchNormalization)
    (note,) = training.synchronise(model, replicas=1, accumulates=True)
    assert "each accumulated batch" in note
