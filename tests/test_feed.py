import numpy as np
import pytest

from tfnet.data import Examples
from tfnet.data.feed import blocks, steps_in_epoch
from tfnet.data.order import epoch_order, split_evenly


def numbered(count):
    """Examples whose first pixel and label say which they are."""
    images = np.zeros((count, 2, 2, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(count) % 256
    return Examples(images, np.arange(count, dtype=np.int32))


def made(count, batch, replicas, *, first=0, last=None, size=lambda step: 3):
    if last is None:
        last = steps_in_epoch(count, batch)
    order = epoch_order(count, seed=0, epoch=0)
    return order, list(
        blocks(
            numbered(count),
            order,
            batch_size=batch,
            replicas=replicas,
            first_step=first,
            last_step=last,
            next_size=size,
        )
    )


def labels_in_order(found):
    return [
        label
        for block in found
        for step in range(block.steps)
        for part in block.labels
        for label in part[step].tolist()
    ]


@pytest.mark.parametrize("count", [1, 2, 7, 24, 50])
@pytest.mark.parametrize("batch", [1, 4, 8, 60])
@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
def test_every_example_comes_once_in_the_order(count, batch, replicas):
    order, found = made(count, batch, replicas)
    assert labels_in_order(found) == order.tolist()
    assert sum(block.steps for block in found) == -(-count // batch)
    for block in found:
        shares = [part.shape[1] for part in block.labels]
        assert shares == split_evenly(block.batch_size, replicas)
        assert block.has_empty_share == (min(shares) == 0)
        for images, labels in zip(block.images, block.labels, strict=True):
            assert images.shape == (*labels.shape, 2, 2, 3)
            np.testing.assert_array_equal(images[..., 0, 0, 0], labels % 256)


def test_a_window_is_what_lies_in_it():
    order, found = made(50, 8, 2, first=2, last=5)
    assert labels_in_order(found) == order[16:40].tolist()
    assert [block.first_step for block in found] == [2]
    assert made(50, 8, 2, first=7, last=7)[1] == []


def test_the_last_smaller_batch_is_a_block_of_its_own():
    _, found = made(50, 8, 4, size=lambda step: 100)
    assert [(block.steps, block.batch_size) for block in found] == [
        (6, 8),
        (1, 2),
    ]


def test_the_size_of_blocks_changes_only_where_they_end():
    order, found = made(41, 2, 3, size=lambda step: 1 + step % 4)
    assert labels_in_order(found) == order.tolist()
    assert [block.steps for block in found][:3] == [1, 2, 4]


def test_an_error_of_the_reader_comes_to_the_caller():
    examples = Examples(np.zeros((2, 2, 2, 3), np.uint8), np.zeros(9, np.int32))
    with pytest.raises(IndexError):
        list(
            blocks(
                examples,
                np.arange(9),
                batch_size=3,
                replicas=1,
                first_step=0,
                last_step=3,
                next_size=lambda step: 1,
            )
        )
