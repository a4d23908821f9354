import numpy as np
import pytest

import tfnet
from tfnet.models import build_model

MODULE = """
import functools
import keras


def good(image_shape, num_classes):
    return keras.Sequential([
        keras.Input(image_shape),
        keras.layers.Flatten(),
        keras.layers.Dense(num_classes),
    ])


def wrong_classes(image_shape, num_classes):
    return good(image_shape, num_classes + 1)


def no_model(image_shape, num_classes):
    return 3


@functools.cache
def once(image_shape, num_classes):
    return ending_in(image_shape, keras.layers.Dense(num_classes))


backbone = keras.layers.Dense(3)


def around_once(image_shape, num_classes):
    return ending_in(image_shape, backbone, keras.layers.Dense(num_classes))


def exiting(image_shape, num_classes):
    raise SystemExit(3)


def softmax_inside(image_shape, num_classes):
    return ending_in(
        image_shape, keras.layers.Dense(num_classes, activation="softmax")
    )


def softmax_behind(image_shape, num_classes):
    inner = ending_in(
        image_shape, keras.layers.Dense(num_classes), keras.layers.Softmax()
    )
    return keras.Sequential([keras.Input(image_shape), inner])


def frozen(image_shape, num_classes):
    model = ending_in(image_shape, keras.layers.Dense(num_classes))
    model.trainable = False
    return model


def whole_numbers(image_shape, num_classes):
    return ending_in(
        image_shape,
        keras.layers.Dense(num_classes),
        Rounding(),
    )


class Rounding(keras.layers.Layer):
    def call(self, inputs):
        return keras.ops.cast(inputs, "int32")


def ending_in(image_shape, *last):
    return keras.Sequential(
        [keras.Input(image_shape), keras.layers.Flatten(), *last]
    )


def raising(image_shape, num_classes):
    raise KeyError("mine")


def wrong_input(image_shape, num_classes):
    return good((7, 7, 1), num_classes)


value = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_models_for_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return "my_models_for_tests"


def build(name, **keywords):
    return build_model(name, (32, 32, 3), 10, seed=0, **keywords)


def test_the_net_has_the_seeds_layers():
    model = build("net")
    shapes = [
        (layer.name, layer.output.shape[1:], layer.count_params())
        for layer in model.layers
    ]
    # seed.md's table: output (NHWC) and parameters.
    assert shapes == [
        ("conv1", (28, 28, 6), 456),
        ("pool1", (14, 14, 6), 0),
        ("conv2", (10, 10, 16), 2416),
        ("pool2", (5, 5, 16), 0),
        ("flatten", (400,), 0),
        ("fc1", (120,), 48120),
        ("fc2", (84,), 10164),
        ("fc3", (10,), 850),
    ]
    assert model.count_params() == 62006


def test_the_net_takes_other_sizes_and_classes():
    for size, classes in [(16, 2), (33, 5), (64, 100)]:
        model = build_model("net", (size, size, 3), classes, seed=0)
        logits = model(np.zeros((2, size, size, 3), np.float32))
        assert logits.shape == (2, classes)


def test_images_too_small_for_the_net_are_refused():
    with pytest.raises(tfnet.ConfigError) as caught:
        build_model("net", (15, 15, 3), 10, seed=0)
    assert "--image_size (15) must be at least 16" in str(caught.value)


def test_a_users_own_function_builds_the_model(module):
    model = build(f"{module}:good")
    assert model(np.zeros((2, 32, 32, 3), np.float32)).shape == (2, 10)


def test_a_users_model_starts_the_same_for_the_same_seed(module):
    first, again = build(f"{module}:good"), build(f"{module}:good")
    other = build_model(f"{module}:good", (32, 32, 3), 10, seed=1)
    np.testing.assert_array_equal(
        first.get_weights()[0], again.get_weights()[0]
    )
    assert np.any(first.get_weights()[0] != other.get_weights()[0])


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("wrong_classes", "must give logits [batch, 10]"),
        ("no_model", "must return a Keras 3 model"),
        ("raising", "raised KeyError: 'mine'"),
        ("wrong_input", "does not take images [32, 32, 3]"),
        ("missing", "can't be imported"),
        ("value", "must name a function"),
        ("once", "must make its layers anew in each call"),
        ("around_once", "must make its layers anew in each call"),
        ("exiting", "raised SystemExit: 3"),
        ("softmax_inside", "it ends in a softmax"),
        ("softmax_behind", "it ends in a softmax"),
        ("frozen", "must have a weight to train; all of its 2 are frozen"),
        ("whole_numbers", "in floating point; it gives int32"),
    ],
)
def test_what_a_users_function_does_wrong_is_one_line(module, function, text):
    if "once" in function:
        build(f"{module}:{function}")
    with pytest.raises(tfnet.ConfigError) as caught:
        build(f"{module}:{function}")
    assert f"--model ({module}:{function})" in str(caught.value)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(tfnet.ConfigError, match="no_such_module_xyz"):
        build("no_such_module_xyz:f")
