import itertools
import threading

import numpy as np
import pytest

from tfnet.data import Examples
from tfnet.data.feed import blocks, paddings, steps_in_epoch
from tfnet.data.order import epoch_order, split_evenly


def numbered(count):
    """Examples whose first pixel and label say which they are."""
    images = np.zeros((count, 2, 2, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(count) % 256
    return Examples(images, np.arange(count, dtype=np.int32))


def made(
    count,
    batch,
    replicas,
    *,
    batches=1,
    first=0,
    last=None,
    size=lambda step: 3,
):
    if last is None:
        last = steps_in_epoch(count, batch * batches)
    order = epoch_order(count, seed=0, epoch=0)
    return order, list(
        blocks(
            numbered(count).take,
            order,
            batch_size=batch,
            batches=batches,
            replicas=replicas,
            first_step=first,
            last_step=last,
            next_size=size,
        )
    )


def shares_of(block):
    """For each step, batch and replica: labels, images and the position."""
    for step in range(block.steps):
        for batch in range(block.labels[0].shape[1]):
            for images, labels, positions, counts in zip(
                block.images,
                block.labels,
                block.positions,
                block.counts,
                strict=True,
            ):
                count = counts[step, batch]
                yield (
                    labels[step, batch, :count].tolist(),
                    images[step, batch, :count].tolist(),
                    int(positions[step, batch]),
                )


def labels_in_order(found):
    return [
        label
        for block in found
        for labels, _, _ in shares_of(block)
        for label in labels
    ]


@pytest.mark.parametrize("count", [1, 2, 7, 24, 50])
@pytest.mark.parametrize("batch", [1, 4, 8, 60])
@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
def test_every_example_comes_once_in_the_order(count, batch, replicas):
    order, found = made(count, batch, replicas)
    assert labels_in_order(found) == order.tolist()
    assert sum(block.steps for block in found) == -(-count // batch)
    for block in found:
        shares = [int(counts[0, 0]) for counts in block.counts]
        assert shares == split_evenly(block.step_examples, replicas)
        assert block.is_padded == (min(shares) == 0)
        for images, labels in zip(block.images, block.labels, strict=True):
            assert images.shape == (*labels.shape, 2, 2, 3)
            # Padding too is an image with its own label.
            np.testing.assert_array_equal(images[..., 0, 0, 0], labels % 256)
            assert labels.shape[2] >= 1


@pytest.mark.parametrize("count", [1, 2, 7, 24, 50])
@pytest.mark.parametrize("batch", [1, 4, 8, 60])
@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_which_programs_an_epoch_needs(count, batch, replicas, lanes):
    _, found = made(count, batch, replicas)
    assert paddings(
        count, batch_size=batch, batches=1, replicas=replicas, lanes=lanes
    ) == {block.is_padded or block.fewest_rows < lanes for block in found}


@pytest.mark.parametrize("count", [1, 5, 23, 24, 50])
@pytest.mark.parametrize(
    ("batch", "batches"), [(1, 3), (4, 2), (5, 4), (60, 2)]
)
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_accumulated_batches_are_those_of_one_large_one(
    count, batch, batches, replicas
):
    order, found = made(count, batch, replicas, batches=batches)
    assert labels_in_order(found) == order.tolist()
    size = batch * batches
    examples = [block.step_examples for block in found for _ in [block.steps]]
    assert (
        sum(e * b.steps for e, b in zip(examples, found, strict=True)) == count
    )
    assert sum(block.steps for block in found) == -(-count // size)
    for block in found:
        for images, labels in zip(block.images, block.labels, strict=True):
            np.testing.assert_array_equal(images[..., 0, 0, 0], labels % 256)


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_a_position_says_where_in_the_epoch_a_share_begins(batches, replicas):
    order, found = made(41, 4, replicas, batches=batches)
    looked_at = 0
    for block in found:
        for labels, _, position in shares_of(block):
            assert labels == order[position : position + len(labels)].tolist()
            looked_at += len(labels)
        # The first replica has the beginning of every batch.
        for step in range(block.steps):
            first = (block.first_step + step) * 4 * batches
            assert block.positions[0][step].tolist() == [
                first + 4 * i for i in range(block.positions[0].shape[1])
            ]
    assert looked_at == 41


def test_a_last_step_of_uneven_batches_is_padded():
    # 23 by 3 batches of 4: one full step, then batches of 4, 4 and 3.
    _, found = made(23, 4, 1, batches=3)
    assert [block.steps for block in found] == [1, 1]
    assert [block.is_padded for block in found] == [False, True]
    assert found[1].counts[0].tolist() == [[4, 4, 3]]
    assert found[1].labels[0].shape == (1, 3, 4)
    assert found[1].step_examples == 11


def test_a_window_is_what_lies_in_it():
    order, found = made(50, 8, 2, first=2, last=5)
    assert labels_in_order(found) == order[16:40].tolist()
    assert [block.first_step for block in found] == [2]
    assert made(50, 8, 2, first=7, last=7)[1] == []


def test_the_last_smaller_batch_is_a_block_of_its_own():
    _, found = made(50, 8, 4, size=lambda step: 100)
    assert [(block.steps, block.step_examples) for block in found] == [
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
                examples.take,
                np.arange(9),
                batch_size=3,
                replicas=1,
                first_step=0,
                last_step=3,
                next_size=lambda step: 1,
            )
        )


def step_by_step(found):
    """What every step and replica gets, without the blocks."""
    return [share for block in found for share in shares_of(block)]


@pytest.mark.parametrize(
    ("count", "batch", "replicas"), [(41, 4, 3), (40, 4, 1), (3, 8, 5)]
)
def test_no_step_depends_on_the_size_of_blocks(count, batch, replicas):
    want = step_by_step(made(count, batch, replicas, size=lambda step: 1)[1])
    assert len(want) == -(-count // batch) * replicas
    for size in (
        lambda step: 2,
        lambda step: 1000,
        lambda step: 1 + step * 7 % 5,
    ):
        _, found = made(count, batch, replicas, size=size)
        assert step_by_step(found) == want


@pytest.mark.parametrize("cuts", [(0, 11), (0, 4, 11), (0, 1, 2, 10, 11)])
def test_windows_one_after_the_other_are_the_epoch(cuts):
    # 41 by 4: ten steps of 4, one of 1.
    _, whole = made(41, 4, 3, size=lambda step: 3)
    parts = [
        step
        for first, last in itertools.pairwise(cuts)
        for step in step_by_step(made(41, 4, 3, first=first, last=last)[1])
    ]
    assert parts == step_by_step(whole)


def test_a_block_says_where_it_stands():
    _, found = made(41, 4, 3, first=2, size=lambda step: 3)
    # Steps 2-4, 5-7, 8-9 (ten full ones) and the last, of one example.
    assert [(block.first_step, block.steps) for block in found] == [
        (2, 3),
        (5, 3),
        (8, 2),
        (10, 1),
    ]
    assert [block.step_examples for block in found] == [4, 4, 4, 1]
    assert [block.is_padded for block in found] == [
        False,
        False,
        False,
        True,
    ]
    for block in found:
        for images, labels in zip(block.images, block.labels, strict=True):
            assert (images.dtype, labels.dtype) == (np.uint8, np.int32)


def test_the_size_is_asked_for_with_the_steps_done():
    asked = []

    def size(step):
        asked.append(step)
        return 4

    made(41, 4, 1, first=1, size=size)
    # The last, smaller batch is a block whatever the size.
    assert asked == [1, 5, 9]


def test_one_block_is_read_ahead_and_leaving_early_leaves_no_thread():
    class Counting(Examples):
        def take(self, indices):
            taken.append(indices.tolist())
            return super().take(indices)

    taken = []
    threads = threading.active_count()
    examples = numbered(40)
    found = blocks(
        Counting(examples.images, examples.labels).take,
        np.arange(40),
        batch_size=4,
        replicas=1,
        first_step=0,
        last_step=10,
        next_size=lambda step: 1,
    )
    assert next(found).labels[0].tolist() == [[[0, 1, 2, 3]]]
    found.close()
    assert taken == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert threading.active_count() == threads
