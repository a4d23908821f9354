"""Learning rates, against their formulas worked out by hand."""

import math

import numpy as np
import pytest

from tfnet.training import Schedule


def rates(total=10, **settings):
    schedule = Schedule(rate=0.4, total_steps=total, **settings)
    return schedule(np.arange(total)).tolist()


def test_constant():
    assert rates(kind="constant") == [0.4] * 10


def test_warm_up_rises_in_a_line_to_the_rate():
    found = rates(kind="constant", warmup_steps=4)
    assert found == pytest.approx([0.1, 0.2, 0.3, *[0.4] * 7])


def test_step_multiplies_every_so_many_steps():
    found = rates(kind="step", decay=0.5, decay_every=4)
    assert found == pytest.approx([0.4] * 4 + [0.2] * 4 + [0.1] * 2)


def test_cosine_goes_from_the_rate_towards_0():
    found = rates(kind="cosine", total=4)
    # (1 + cos(pi * i / 4)) / 2 of 0.4.
    half = math.sqrt(0.5)
    assert found == pytest.approx(
        [0.4, 0.2 * (1 + half), 0.2, 0.2 * (1 - half)]
    )


def test_cosine_after_a_warm_up():
    found = rates(kind="cosine", total=6, warmup_steps=2)
    assert found[:2] == pytest.approx([0.2, 0.4])
    assert found[2:] == pytest.approx(rates(kind="cosine", total=4))


def test_one_cycle_is_that_of_pytorch():
    # torch.optim.lr_scheduler.OneCycleLR(max_lr=0.4, total_steps=10), from
    # its formula: it rises from max / 25 over 0.3 * 10 - 1 = 2 steps, then
    # falls to max / 25 / 1e4 in the last, each along half a cosine.
    def between(begin, end, done):
        return end + (begin - end) / 2 * (1 + math.cos(math.pi * done))

    low, end = 0.4 / 25, 0.4 / 25 / 1e4
    want = [between(low, 0.4, i / 2) for i in range(3)]
    want += [between(0.4, end, i / 7) for i in range(1, 8)]
    assert rates(kind="one_cycle") == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("total", [1, 2, 3, 4, 7, 1000])
@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "constant", "warmup_steps": 5},
        {"kind": "step", "decay_every": 2},
        {"kind": "cosine"},
        {"kind": "cosine", "warmup_steps": 5},
        {"kind": "one_cycle"},
    ],
)
def test_every_rate_is_within_bounds_and_a_function_of_its_step(
    total, settings
):
    schedule = Schedule(rate=0.4, total_steps=total, **settings)
    every = schedule(np.arange(total))
    assert every.dtype == np.float64
    assert np.all(every >= 0)
    assert np.all(every <= 0.4 + 1e-12)
    for step in {0, total // 2, total - 1}:
        assert schedule(np.array([step]))[0] == every[step]
