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


def test_color_is_its_formula(images):
    # Factors 1 + 0.5 * (2 u - 1) of brightness, contrast and saturation.
    draws = np.random.default_rng(1).random((4, 3)).astype(np.float32)
    found = Augmentation(color=0.5)(images, Given(draws)).numpy()
    assert found.dtype == np.float32
    weights = np.array([0.299, 0.587, 0.114])
    for image, drawn, ours in zip(images, draws, found, strict=True):
        b, c, s = 0.5 + drawn.astype(float)
        x = np.clip(b * image, 0, 255)
        x = np.clip(c * x + (1 - c) * (x @ weights).mean(), 0, 255)
        x = np.clip(s * x + (1 - s) * (x @ weights)[..., None], 0, 255)
        np.testing.assert_allclose(ours, x, rtol=0, atol=1e-3)
        assert np.abs(ours - image).max() > 1


def test_color_in_the_middle_changes_nothing(images):
    found = Augmentation(color=0.9)(images, Given(np.full((4, 3), 0.5)))
    np.testing.assert_allclose(found, images, rtol=0, atol=1e-4)


@pytest.mark.parametrize("side", [1, 2, 3, 6])
def test_cutout_is_a_square_clipped_at_the_border(side, images):
    # Of 5 rows and 6 columns: floor(draw * size).
    draws = np.array([[0.0, 0.0], [0.99, 0.99], [0.5, 0.5], [0.3, 0.9]])
    found = Augmentation(cutout=side)(images, Given(draws)).numpy()
    for i, (row, column) in enumerate([(0, 0), (4, 5), (2, 3), (1, 5)]):
        want = images[i].astype(float)
        top, left = row - side // 2, column - side // 2
        want[max(top, 0) : top + side, max(left, 0) : left + side] = 127.5
        np.testing.assert_array_equal(found[i], want)


def test_what_is_cut_out_is_zero_once_scaled(images):
    from tfnet.data.images import scale
    from tfnet.data.scaling import SEED

    cut = Augmentation(cutout=6)(images, Given(np.full((4, 2), 0.5)))
    assert set(scale(cut, SEED).numpy()[:, 1].ravel()) == {0.0}


def test_it_is_the_same_in_a_graph(images):
    draws = {1: 0.1, 2: 0.7, 3: 0.2}
    augmentation = Augmentation(flip=True, crop=1, color=0.4, cutout=2)

    class Draws:
        def uniform(self, *shape):
            return tf.fill(shape, draws[shape[-1]])

    eager = augmentation(images, Draws()).numpy()

    @tf.function(input_signature=[tf.TensorSpec([None, 5, 6, 3], tf.uint8)])
    def graph(images):
        return augmentation(images, Draws())

    np.testing.assert_allclose(graph(images), eager, rtol=0, atol=1e-4)
