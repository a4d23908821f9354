"""The range test suggests the rate where the loss falls fastest."""

import json

import numpy as np
import pytest

from tfnet import ConfigError, lr_find
from tfnet.lr_find import FindSettings, find, make_curve


def test_the_suggestion_is_where_the_curve_is_steepest():
    rates = np.geomspace(1e-6, 1, 601)
    # A sigmoid in log10(rate), steepest at 1e-3, then up again.
    place = np.log10(rates)
    losses = 2 - 1 / (1 + np.exp(-4 * (place + 3)))
    losses[place > -1] += 10 * (place[place > -1] + 1)
    curve = make_curve(rates, losses)
    assert np.log10(curve.suggestion) == pytest.approx(-3, abs=0.05)
    # A few wild steps change nothing.
    losses[[100, 250, 400]] = [50, 0.1, 99]
    again = make_curve(rates, losses)
    assert np.log10(again.suggestion) == pytest.approx(-3, abs=0.1)


def test_a_loss_that_only_rises_suggests_nothing():
    rates = np.geomspace(1e-6, 1, 100)
    curve = make_curve(rates, np.linspace(2, 3, 100))
    assert curve.suggestion is None
    assert "nothing to suggest" in lr_find._text(curve)


def test_the_command_tries_rates_that_rise(capsys):
    curve = find(
        FindSettings(
            dataset="fashion_mnist_10k", batch_size=64, steps=150,
            logical_devices=8, devices=1, json=True,
        )
    )  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert found["rates"] == curve.rates.tolist()
    ratios = curve.rates[1:] / curve.rates[:-1]
    np.testing.assert_allclose(ratios, 1e6 ** (1 / 149), rtol=1e-9)
    # What an untrained network gives: log(10).
    assert curve.smoothed[:20] == pytest.approx(np.log(10), abs=0.05)
    assert 1e-3 < curve.suggestion < 1


def test_rates_that_do_not_rise_are_refused():
    with pytest.raises(ConfigError, match="must be below --highest_rate"):
        FindSettings(lowest_rate=1.0, highest_rate=0.1)
