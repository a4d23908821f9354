"""Augmentation, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tfnet.data.augment import Augmentation


class Given:
    """Draws what it is given."""

    def __init__(self, *values):
        self.values = list(values)

    def uniform(self, *shape):
        drawn = np.asarray(self.values.pop(0), np.float32)
        assert drawn.shape == tuple(int(size) for size in shape)
        return tf.constant(drawn)


@pytest.fixture
def images():
    random = np.random.default_rng(0)
    return random.integers(1, 256, (4, 5, 6, 3)).astype(np.uint8)


def test_nothing_asked_for_is_nothing_done(images):
    assert Augmentation()(images, Given()) is images


def test_flip_mirrors_those_below_one_half(images):
    draws = np.array([0.1, 0.5, 0.49, 0.9]).reshape(4, 1, 1, 1)
    found = Augmentation(flip=True)(images, Given(draws)).numpy()
    assert found.dtype == np.uint8
    for i, is_mirrored in enumerate([True, False, True, False]):
        want = images[i, :, ::-1] if is_mirrored else images[i]
        np.testing.assert_array_equal(found[i], want)


def test_crop_moves_and_fills_with_black(images):
    # Of 2 * 2 + 1 places, floor(draw * 5): 0, 4, 2 and 1.
    draws = np.array([[0.0, 0.99], [0.5, 0.5], [0.19, 0.2], [0.8, 0.3]])
    found = Augmentation(crop=2)(images, Given(draws)).numpy()
    padded = np.pad(images, [(0, 0), (2, 2), (2, 2), (0, 0)])
    for i, (top, left) in enumerate([(0, 4), (2, 2), (0, 1), (4, 1)]):
        want = padded[i, top : top + 5, left : left + 6]
        np.testing.assert_array_equal(found[i], want)
    np.testing.assert_array_equal(found[1], images[1])


def test_it_is_the_same_in_a_graph(images):
    draws = (np.full((4, 1, 1, 1), 0.1), np.full((4, 2), 0.7))
    augmentation = Augmentation(flip=True, crop=1)
    eager = augmentation(images, Given(*draws)).numpy()

    @tf.function(input_signature=[tf.TensorSpec([None, 5, 6, 3], tf.uint8)])
    def graph(images):
        class Draws:
            def uniform(self, *shape):
                return tf.fill(shape, 0.1 if len(shape) == 4 else 0.7)

        return augmentation(images, Draws())

    np.testing.assert_array_equal(graph(images), eager)
