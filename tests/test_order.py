import collections

import numpy as np
import pytest

from tfnet.data.order import epoch_order, split_evenly


@pytest.mark.parametrize("count", [0, 1, 2, 3, 17, 1000])
def test_every_example_once(count):
    order = epoch_order(count, seed=3, epoch=5)
    assert sorted(order.tolist()) == list(range(count))


def test_the_order_is_a_function_of_seed_and_epoch():
    first = epoch_order(100, seed=1, epoch=2)
    np.testing.assert_array_equal(first, epoch_order(100, seed=1, epoch=2))
    for seed, epoch in [(1, 3), (2, 2), (2, 1), (0, 3), (2**32 - 1, 2)]:
        assert np.any(first != epoch_order(100, seed=seed, epoch=epoch))


def test_every_permutation_is_as_likely():
    # 24 permutations of 4, each expected 100 times in 2,400 seeds. Chi-square
    # with 23 degrees of freedom exceeds 49.7 once in a thousand.
    counts = collections.Counter(
        tuple(epoch_order(4, seed=seed, epoch=7).tolist())
        for seed in range(2400)
    )
    assert len(counts) == 24
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 49.7


def philox(counter, key):
    """Philox-4x64-10 by its definition: ten rounds, Weyl keys."""
    mask = 2**64 - 1
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * c0, 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * c2, 2**64)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 = (k0 + 0x9E3779B97F4A7C15) & mask
        k1 = (k1 + 0xBB67AE8584CAA73B) & mask
    return [c0, c1, c2, c3]


def test_the_order_sorts_the_numbers_of_philox():
    # NumPy's counter starts at 1.
    drawn = [
        number
        for block in (1, 2, 3)
        for number in philox((block, 0, 0, 0), (11, 4))
    ]
    want = sorted(range(10), key=lambda i: drawn[i])
    assert epoch_order(10, seed=11, epoch=4).tolist() == want


def test_shares_are_even_with_the_larger_first():
    # 2,010 by 64 leaves 26 for 4: 7, 7, 6, 6.
    assert split_evenly(26, 4) == [7, 7, 6, 6]
    assert split_evenly(2, 4) == [1, 1, 0, 0]
    assert split_evenly(0, 3) == [0, 0, 0]
    for count in range(30):
        for parts in range(1, 9):
            shares = split_evenly(count, parts)
            assert sum(shares) == count
            assert shares == sorted(shares, reverse=True)
            assert shares[0] - shares[-1] <= 1


def test_no_two_pairs_of_seed_and_epoch_share_an_order():
    # Among them (s, e + 1) and (s + 1, e), which a sum of both would confuse.
    orders = {
        tuple(epoch_order(50, seed=seed, epoch=epoch).tolist())
        for seed in range(12)
        for epoch in range(12)
    }
    assert len(orders) == 144


def test_every_permutation_is_as_likely_over_the_epochs_of_one_seed():
    # The bound is that of the seeds above: 23 degrees of freedom, one in a
    # thousand.
    counts = collections.Counter(
        tuple(epoch_order(4, seed=7, epoch=epoch).tolist())
        for epoch in range(2400)
    )
    assert len(counts) == 24
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 49.7


def test_the_highest_seed_and_a_late_epoch_sort_philox_too():
    key = (2**32 - 1, 10**9)
    drawn = [n for block in (1, 2) for n in philox((block, 0, 0, 0), key)]
    want = sorted(range(7), key=lambda i: drawn[i])
    assert epoch_order(7, seed=key[0], epoch=key[1]).tolist() == want


@pytest.mark.parametrize("count", [0, 1, 2, 1001])
def test_the_order_has_the_type_and_shape_documented(count):
    order = epoch_order(count, seed=0, epoch=0)
    assert order.dtype == np.uint32
    assert order.shape == (count,)
