"""Random numbers of a layer: by example, whatever the share it is in."""

import numpy as np
import pytest
import tensorflow as tf

from tfnet.training.share import Share, current, working_on


def share(position=0, rows=10, *, epoch=0, seed=0):
    return Share(
        seed=seed,
        epoch=tf.constant(epoch, tf.int64),
        position=tf.constant(position, tf.int64),
        rows=tf.constant(rows),
        real=None,
        step_position=tf.constant(0, tf.int64),
        step_examples=tf.constant(rows),
        is_whole_step=True,
    )


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (5, 7), (64, 64, 3)])
def test_a_part_of_the_examples_can_be_drawn_alone(kind, shape):
    def draw(position, rows):
        return getattr(share(position, rows), kind)(rows, *shape).numpy()

    whole = draw(0, 10)
    assert whole.shape == (10, *shape)
    parts = [draw(0, 3), draw(3, 1), draw(4, 6)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_it_is_the_same_in_a_graph(kind):
    @tf.function
    def drawn(position):
        one = share(rows=4)
        one.position = position
        return getattr(one, kind)(4, tf.constant(5))

    want = getattr(share(7, 4), kind)(4, 5).numpy()
    np.testing.assert_array_equal(drawn(tf.constant(7, tf.int64)), want)


def test_it_is_distributed_as_it_says():
    one = share(rows=1000)
    uniform = one.uniform(1000, 1000).numpy()
    normal = one.normal(1000, 1000).numpy()
    # A million: the mean of U(0, 1) has a deviation of 2.9e-4, that of N(0,
    # 1) of 1e-3.
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 1.5e-3
    assert abs(uniform.var() - 1 / 12) < 1e-3
    assert abs(normal.mean()) < 5e-3
    assert abs(normal.std() - 1) < 5e-3


def test_seed_epoch_example_and_draw_each_give_other_numbers():
    first = share()
    draws = [
        first.uniform(10, 100),
        first.uniform(10, 100),
        share(epoch=1).uniform(10, 100),
        share(seed=1).uniform(10, 100),
        share(10).uniform(10, 100),
    ]
    rows = np.concatenate([np.asarray(draw) for draw in draws])
    assert len(np.unique(rows)) > 0.999 * rows.size
    assert np.abs(np.corrcoef(rows) - np.eye(50)).max() < 0.5


def test_seed_and_epoch_are_not_added():
    # Run S, epoch e + 1, is not run S + 1, epoch e.
    one = share(seed=3, epoch=1).uniform(10, 4).numpy()
    other = share(seed=4, epoch=0).uniform(10, 4).numpy()
    assert not np.any(one == other)


def test_several_rows_of_an_example_are_drawn_together():
    # As in TimeDistributed: 3 rows for each of 4 examples.
    whole = share(0, 4).uniform(12, 5).numpy()
    last = share(3, 1).uniform(3, 5).numpy()
    np.testing.assert_array_equal(last, whole[9:])


def test_a_step_has_one_seed_and_each_draw_another():
    def seeds(step, epoch=0):
        one = share(epoch=epoch)
        one.step_position = tf.constant(step, tf.int64)
        return [one.step_seed().numpy().tolist() for _ in range(2)]

    assert seeds(0) == seeds(0)
    every = [*seeds(0), *seeds(8), *seeds(0, epoch=1), *seeds(8, epoch=1)]
    assert len({tuple(seed) for seed in every}) == 8


def test_there_is_a_share_only_inside():
    assert current() is None
    one = share()
    with pytest.raises(ZeroDivisionError), working_on(one):
        assert current() is one
        raise ZeroDivisionError
    assert current() is None
