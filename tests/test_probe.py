"""What a layer of a user does over the batch is found, and named."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnet import training
from tfnet.data.scaling import SEED
from tfnet.models.precision import computing_in

layers = keras.layers


class Noisy(keras.layers.Layer):
    """Draws by TensorFlow, of which tfnet knows nothing."""

    def call(self, inputs, training=False):
        return inputs + tf.random.normal(tf.shape(inputs), dtype=inputs.dtype)


class SameNoise(keras.layers.Layer):
    """Draws the same for the first example of every share."""

    def call(self, inputs, training=False):
        shape = keras.ops.shape(inputs)
        return inputs + keras.random.normal(shape, dtype=inputs.dtype, seed=7)


class SumLoss(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(keras.ops.sum(inputs**2))
        return inputs


class MeanLoss(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(keras.ops.mean(inputs**2))
        return inputs


class Around(keras.layers.Layer):
    """Holds another layer."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, inputs):
        return 2 * self.inner(inputs)


class Drawing(keras.layers.Layer):
    """Draws as Keras says a layer should."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, inputs, training=False):
        shape = keras.ops.shape(inputs)
        return inputs + keras.random.normal(
            shape, dtype=inputs.dtype, seed=self.seed_generator
        )


class ByExample(keras.layers.Layer):
    def call(self, inputs):
        mean = keras.ops.mean(inputs, axis=(1, 2), keepdims=True)
        return inputs - mean


class Failing(keras.layers.Layer):
    """Works while a model is built, and not in a step."""

    def call(self, inputs):
        if not isinstance(inputs, keras.KerasTensor):
            raise ValueError("not today")
        return inputs

    def compute_output_shape(self, shape):
        return shape


def tried(make, precision="float32"):
    def build():
        return keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layers.Conv2D(4, 3),
                layers.BatchNormalization(),
                layers.Dropout(0.3),
                make(),
                layers.Flatten(),
                layers.Dense(3),
            ]
        )

    with computing_in(precision):
        synchronise = functools.partial(training.synchronise, replicas=2)
        model = build()
        found = training.try_in_shares(
            model, build(), synchronise, (8, 8, 3), SEED
        )
        names = [layer.name for layer in model.layers]
        return found, names


CENTRED = layers.Lambda(lambda x: x - tf.reduce_mean(x, 0, keepdims=True))


@pytest.mark.parametrize(
    ("make", "name", "text"),
    [
        (Noisy, "noisy (Noisy)", "another batch"),
        (SameNoise, "same_noise", "another batch"),
        (lambda: CENTRED, "lambda", "another batch"),
        # Keras gives every image of a batch the pixels of the first.
        (
            lambda: layers.RandomElasticTransform(1.0, value_range=(-1, 1)),
            "random_elastic_transform",
            "another batch",
        ),
        (lambda: layers.Softmax(axis=0), "softmax", "another batch"),
        (
            lambda: layers.UnitNormalization(axis=0),
            "unit_normalization",
            "another batch",
        ),
        (SumLoss, "sum_loss", "adds a loss that is no mean"),
        (lambda: Around(Noisy()), "noisy", "another batch"),
        (Failing, "the layers of the model", "not today"),
    ],
)
def test_what_looks_over_the_batch_is_named(make, name, text):
    (note,), _ = tried(make)
    assert name in note
    assert text in note
    assert "\n" not in note


@pytest.mark.parametrize("precision", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(
    "make",
    [
        MeanLoss,
        Drawing,
        ByExample,
        lambda: Around(ByExample()),
        lambda: layers.RandomFlip("horizontal"),
        lambda: layers.Dense(4, activity_regularizer="l2"),
        lambda: layers.Lambda(lambda x: x * 2),
        lambda: layers.Softmax(),
        lambda: layers.RandomTranslation(0.2, 0.2),
    ],
)
def test_what_treats_each_example_by_itself_is_not(make, precision):
    found, _ = tried(make, precision)
    assert found == []


def test_the_name_is_that_of_the_model_that_is_trained():
    (note,), names = tried(Noisy)
    assert note.split(" ")[0] in names
    assert note.split(" ")[0].startswith("noisy")


def test_an_operation_that_is_no_layer_is_told_of_its_model():
    def build():
        inputs = keras.Input((8, 8, 3))
        centred = inputs - keras.ops.mean(inputs, axis=0, keepdims=True)
        outputs = layers.Dense(3)(layers.Flatten()(centred))
        return keras.Model(inputs, outputs, name="centring")

    synchronise = functools.partial(training.synchronise, replicas=2)
    (note,) = training.try_in_shares(
        build(), build(), synchronise, (8, 8, 3), SEED
    )
    assert note.startswith("centring")


def test_what_is_known_to_differ_is_not_told_again():
    def build():
        inputs = keras.Input((8, 8, 3))
        rows = layers.Reshape((8, 24))(inputs)
        return keras.Model(
            inputs, layers.Dense(3)(layers.LSTM(4, dropout=0.5)(rows))
        )

    synchronise = functools.partial(training.synchronise, replicas=2)
    assert synchronise(build())
    assert not training.try_in_shares(
        build(), build(), synchronise, (8, 8, 3), SEED
    )


def test_trying_leaves_the_moments_as_they_are():
    model, copy = (
        keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layers.BatchNormalization(),
                layers.Flatten(),
                layers.Dense(3),
            ]
        )
        for _ in range(2)
    )
    before = copy.get_weights()
    synchronise = functools.partial(training.synchronise, replicas=2)
    assert not training.try_in_shares(model, copy, synchronise, (8, 8, 3), SEED)
    assert copy.layers[0].trainable
    for one, other in zip(before, copy.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
