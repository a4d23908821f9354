import numpy as np
import pytest

from tfnet.data import Examples
from tfnet.data.aligned import empty_aligned, is_aligned
from tfnet.data.feed import blocks
from tfnet.training.step import place


def filled(shape, dtype):
    array = empty_aligned(shape, dtype)
    array[...] = np.arange(array.size).reshape(shape)
    return array


@pytest.mark.parametrize("shape", [(3,), (7, 4, 4, 3), (2, 1, 3)])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float64"])
def test_what_is_aligned_is_not_copied(shape, dtype):
    array = filled(shape, dtype)
    assert is_aligned(array)
    (tensor,) = place((array,), ("CPU:0",))
    assert tensor.dtype == dtype
    np.testing.assert_array_equal(tensor.numpy(), array)
    # The same memory, seen by a write that nobody else makes.
    array.flat[0] = 9
    assert tensor.numpy().flat[0] == 9


def test_a_tensor_outlives_the_name_of_its_array():
    array = filled((1000, 1000), "uint8")
    want = array.copy()
    (tensor,) = place((array,), ("CPU:0",))
    del array
    filled((1000, 1000), "uint8")[...] = 0
    np.testing.assert_array_equal(tensor.numpy(), want)


@pytest.mark.parametrize(
    "change",
    [
        lambda array: array[1:],
        lambda array: array[:, 1:],
        lambda array: array[::-1],
        lambda array: array.T,
        lambda array: np.broadcast_to(array[0], array.shape),
    ],
)
def test_what_is_not_aligned_is_copied(change):
    array = change(filled((5, 3), "int32"))
    assert not is_aligned(array)
    (tensor,) = place((array,), ("CPU:0",))
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_an_empty_share_is_placed_too():
    (tensor,) = place((empty_aligned((0, 5), "uint8"),), ("CPU:0",))
    assert tensor.shape == (0, 5)


def test_read_only_arrays_are_copied():
    array = filled((5, 3), "int32")
    array.flags.writeable = False
    assert not is_aligned(array)
    (tensor,) = place((array,), ("CPU:0",))
    np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("indices", [[0, 3], [-1, 0], [7]])
def test_no_other_image_is_given_for_one_that_is_not_there(indices):
    examples = Examples(np.zeros((3, 2, 2, 3), "u1"), np.zeros(9, np.int32))
    with pytest.raises(IndexError, match="an image before 0 or behind 2"):
        examples.take(np.array(indices))


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_images_of_a_block_are_aligned(replicas):
    images = np.zeros((24, 3, 3, 3), np.uint8)
    examples = Examples(images, np.zeros(24, np.int32))
    for block in blocks(
        examples.take,
        np.arange(24),
        batch_size=6,
        replicas=replicas,
        first_step=0,
        last_step=4,
        next_size=lambda step: 2,
    ):
        assert all(is_aligned(part) for part in block.images)
