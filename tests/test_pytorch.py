"""The seed's network and recipe, held against PyTorch itself.

`golden/pytorch.npz` was made by `benchmarks/pytorch_golden.py`, which says
what is in it.
"""

import math
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnet import training
from tfnet.data import Examples
from tfnet.data.feed import blocks
from tfnet.data.images import scale
from tfnet.data.sample import open_sample
from tfnet.data.scaling import SEED
from tfnet.models import net
from tfnet.models.pytorch import from_state_dict, to_state_dict

GOLDEN = Path(__file__).parent / "golden" / "pytorch.npz"

# What one output of each layer sees: channels * 5 * 5, or the inputs.
FAN_IN = {"conv1": 75, "conv2": 150, "fc1": 400, "fc2": 120, "fc3": 84}


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as file:
        return dict(file)


def state_of(golden, when):
    return {
        name.removeprefix(f"{when}/"): array
        for name, array in golden.items()
        if name.startswith(f"{when}/")
    }


@pytest.fixture(scope="module")
def sample():
    """Training images and labels and 16 test images, as the file has them."""
    source = open_sample()
    chunks = list(source.read("train", 28, None))
    images = np.concatenate([images for images, _ in chunks])
    labels = np.concatenate([labels for _, labels in chunks])
    shown, _ = next(source.read("test", 28, 16))
    return padded(images), labels.astype(np.int32), padded(shown)


def padded(images):
    return np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)))


def build(seed=0, image_shape=(32, 32, 3), classes=10):
    return net.build(image_shape, classes, seed=seed)


def logits_of(model, images):
    return np.asarray(model(scale(images, SEED)))


def test_pixels_are_scaled_as_the_seed_does():
    pixels = np.arange(256, dtype=np.uint8)
    want = (np.arange(256) / 255 - 0.5) / 0.5
    # A graph may multiply by 1/255 where eager code divides. Either rounds
    # numbers up to 1 a few times (6e-8), and the last step doubles that.
    for function in (scale, tf.function(scale)):
        found = function(tf.constant(pixels), SEED).numpy()
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, want, rtol=0, atol=2.4e-7)
        assert found[[0, 255]].tolist() == [-1, 1]


def test_equal_weights_give_pytorchs_logits(golden, sample):
    model = build()
    from_state_dict(model, state_of(golden, "initial"))
    np.testing.assert_allclose(
        logits_of(model, sample[2]), golden["logits_before"], rtol=0, atol=1e-5
    )
    from_state_dict(model, state_of(golden, "final"))
    np.testing.assert_allclose(
        logits_of(model, sample[2]), golden["logits_after"], rtol=0, atol=1e-5
    )


def test_200_steps_of_the_recipe_are_pytorchs(golden, sample, strategy_of):
    images, labels, shown = sample
    batches = golden["batches"]
    assert batches.shape == (200, 4)
    strategy = strategy_of(1)
    with strategy.scope():
        model = build()
        optimizer = training.create_optimizer(
            "sgd", learning_rate=0.001, momentum=0.9
        )
        state = training.TrainState(model, optimizer)
    from_state_dict(model, state_of(golden, "initial"))
    train = training.TrainFunction(
        strategy, state, (32, 32, 3), training.StepRule(seed=0)
    )
    (block,) = blocks(
        Examples(images, labels).take,
        batches.ravel(),
        batch_size=4,
        replicas=1,
        first_step=0,
        last_step=200,
        next_size=lambda step: 200,
    )
    losses, _ = train(block, 0, np.full(200, 0.001))
    np.testing.assert_allclose(losses, golden["losses"], rtol=0, atol=1e-4)
    # Rounding alone leaves 2e-7 in a weight, or 2.5e-5 where it tips one
    # comparison of a ReLU or a pooling: PyTorch against itself, with its
    # initial weights changed in the last bit, shows either. A learning rate
    # that is 0.1 % off shows 1.7e-3; the largest weight change is 0.03.
    found = to_state_dict(model)
    want = state_of(golden, "final")
    assert set(found) == set(want)
    for name, array in want.items():
        np.testing.assert_allclose(
            found[name], array, rtol=0, atol=1e-4, err_msg=name
        )
    np.testing.assert_allclose(
        logits_of(model, shown), golden["logits_after"], rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("when", ["initial", "final"])
def test_weights_go_from_pytorch_and_back_exactly(golden, when):
    state = state_of(golden, when)
    model = build()
    from_state_dict(model, state)
    found = to_state_dict(model)
    assert list(found) == list(state)
    for name, array in state.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], array)


def test_weights_go_to_pytorch_and_back_exactly():
    model, other = build(seed=1), build(seed=2)
    from_state_dict(other, to_state_dict(model))
    for first, again in zip(
        model.get_weights(), other.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(first, again)


def test_the_layout_is_pytorchs_by_its_definition():
    # Height and width differ, so that one taken for the other shows: pool2
    # gives [2, 3, 16].
    model = build(image_shape=(20, 24, 3), classes=4)
    state = to_state_dict(model)
    conv2, _ = model.get_layer("conv2").get_weights()
    for row, column, given, made in np.ndindex(5, 5, 6, 16):
        assert (
            state["conv2.weight"][made, given, row, column]
            == conv2[row, column, given, made]
        )
    fc1, _ = model.get_layer("fc1").get_weights()
    for row, column, channel in np.ndindex(2, 3, 16):
        np.testing.assert_array_equal(
            state["fc1.weight"][:, (channel * 2 + row) * 3 + column],
            fc1[(row * 3 + column) * 16 + channel],
        )
    fc3, bias = model.get_layer("fc3").get_weights()
    np.testing.assert_array_equal(state["fc3.weight"], fc3.T)
    np.testing.assert_array_equal(state["fc3.bias"], bias)
    other = build(seed=1, image_shape=(20, 24, 3), classes=4)
    from_state_dict(other, state)
    for first, again in zip(
        model.get_weights(), other.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(first, again)


def test_the_state_dict_is_a_copy():
    model = build()
    before = model.get_weights()
    for array in to_state_dict(model).values():
        array[...] = 7
    for first, again in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda state: state.pop("fc3.bias"), "fc3.bias"),
        (lambda state: state.update({"fc4.bias": np.ones(1)}), "fc4.bias"),
        (lambda state: state.update({"Conv1.bias": state.pop("conv1.bias")}),
         "Conv1.bias"),
        (lambda state: state.update({"fc1.weight": state["fc1.weight"].T}),
         "fc1.weight"),
        (lambda state: state.update({"fc2.bias": np.ones((84, 1))}),
         "fc2.bias"),
        (lambda state: state.update({"fc3.bias": np.float32(1)}), "fc3.bias"),
        (lambda state: state.update({"conv2.weight": np.ones((5, 5, 6, 16))}),
         "conv2.weight"),
        # Of the right shape, and found out before the first is replaced.
        (lambda state: state.update({"fc3.bias": np.array(["x"] * 10)}),
         "could not convert"),
    ],
    ids=["missing", "unknown", "misspelt", "transposed", "an axis more",
         "a scalar", "Keras' layout", "text"],
)  # fmt: skip
def test_a_wrong_state_dict_changes_nothing(golden, change, name):
    model = build()
    before = model.get_weights()
    state = state_of(golden, "initial")
    change(state)
    with pytest.raises(ValueError, match=name):
        from_state_dict(model, state)
    for first, again in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(first, again)


def assert_uniform(values):
    """Asserts that values are as if drawn evenly from [-1, 1]."""
    values = np.sort(values.astype(np.float64))
    count = len(values)
    assert -1 - 1e-6 <= values[0] < -0.95
    assert 0.95 < values[-1] <= 1 + 1e-6
    # Kolmogorov and Smirnov: the largest gap between the share of values up
    # to x and (x + 1) / 2. Even values leave more than 2.2 / sqrt(count) once
    # in ten thousand times.
    share = (values + 1) / 2
    gap = max(
        (np.arange(1, count + 1) / count - share).max(),
        (share - np.arange(count) / count).max(),
    )
    assert gap < 2.2 / math.sqrt(count)


def scaled_weights(model):
    """Returns (layer, kind): flat values, in units of 1 / sqrt(fan_in)."""
    return {
        (layer, kind): array.ravel() * math.sqrt(FAN_IN[layer])
        for layer in FAN_IN
        for kind, array in zip(
            ("weight", "bias"),
            model.get_layer(layer).get_weights(),
            strict=True,
        )
    }


def test_initial_weights_are_spread_as_pytorchs(golden):
    # That this is PyTorch's rule: its own weights keep it.
    state = state_of(golden, "initial")
    for layer, fan_in in FAN_IN.items():
        drawn = np.concatenate(
            [state[f"{layer}.{kind}"].ravel() for kind in ("weight", "bias")]
        )
        assert_uniform(drawn * math.sqrt(fan_in))
    # Several seeds, since the smallest bias has but six values.
    models = [scaled_weights(build(seed)) for seed in range(20)]
    for key in models[0]:
        assert_uniform(np.concatenate([model[key] for model in models]))


def test_every_layer_and_seed_draws_its_own_weights():
    # The first six values, as many as the smallest bias has; to --seed's limit.
    drawn = [
        np.round(values[:6], 4)
        for seed in (0, 1, 2, 3, 2**32 - 1)
        for values in scaled_weights(build(seed)).values()
    ]
    assert len({tuple(values) for values in drawn}) == 5 * 10


def test_a_seed_gives_the_same_weights_whatever_came_before():
    first = build(seed=3).get_weights()
    keras.utils.set_random_seed(99)
    build(seed=4)
    for old, new in zip(first, build(seed=3).get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_there_are_as_many_parameters_as_in_pytorch(golden):
    state = state_of(golden, "initial")
    assert sum(array.size for array in state.values()) == 62006
    assert build().count_params() == 62006
