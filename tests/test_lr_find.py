"""The range test suggests the rate where the loss falls fastest."""

import dataclasses
import json
import re

import numpy as np
import pytest

from tfnet import Config, ConfigError, command_line, lr_find
from tfnet.lr_find import FindSettings, find, make_curve

SMOKE = command_line.recipes_directory() / "smoke.flags"


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
    text = lr_find._text(curve, remembers=True)
    assert text.endswith(
        "The loss fell nowhere; try another --lowest_rate, or more --steps."
        " Nothing is suggested."
    )


@pytest.mark.parametrize("steps", [30, 100, 300])
def test_chance_suggests_nothing(steps):
    generator = np.random.default_rng(0)
    rates = np.geomspace(1e-6, 1, steps)
    found = [
        make_curve(rates, draw(size=steps)).suggestion
        for draw in (
            lambda size: generator.normal(2.3, 0.1, size),
            lambda size: generator.normal(2.3, 0.8, size),
            lambda size: generator.exponential(0.5, size),
        )
        for _ in range(200)
    ]
    assert sum(one is not None for one in found) <= 0.01 * len(found)


@pytest.mark.parametrize(("steps", "noise"), [(100, 0.1), (300, 0.15)])
def test_a_fall_that_noise_does_not_hide_is_found(steps, noise):
    generator = np.random.default_rng(0)
    rates = np.geomspace(1e-6, 1, steps)
    # A network that learns within the range, at a batch of four.
    falling = 2.3 - 0.6 / (1 + np.exp(-4 * (np.log10(rates) + 2)))
    for _ in range(200):
        curve = make_curve(rates, falling + generator.normal(0, noise, steps))
        assert curve.suggestion is not None
        assert -3 < np.log10(curve.suggestion) < -1


def test_what_a_curve_lacks_is_said():
    rates = np.geomspace(1e-6, 1, 100)
    flat = make_curve(rates, np.linspace(2.303, 2.302, 100))
    assert flat.reason == (
        "The loss fell by 0.0% only; try a larger --batch_size"
    )
    generator = np.random.default_rng(0)
    noise = make_curve(rates, generator.normal(2.3, 0.8, 100))
    assert "may be chance here; try a larger --batch_size" in noise.reason
    few = make_curve(rates[:20], np.linspace(3, 1, 20))
    assert "after 20 steps, too few" in few.reason
    assert {flat.suggestion, noise.suggestion, few.suggestion} == {None}


def test_too_few_steps_are_refused():
    with pytest.raises(
        ConfigError, match=r"--steps \(29\) must be at least 30"
    ):
        FindSettings(steps=29)


def test_momentum_is_spoken_of_where_there_is_some():
    rates = np.geomspace(1e-6, 1, 100)
    curve = make_curve(rates, np.linspace(3, 1, 100))
    assert "a third of it" in lr_find._text(curve, remembers=True)
    assert "a third" not in lr_find._text(curve, remembers=False)


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


@pytest.mark.parametrize(
    ("flags", "spelled", "why"),
    [
        (["--epochs=2"], "--epochs=2", "--steps"),
        (["-learning_rate", "0.1"], "--learning_rate=0.1", "rises by itself"),
        (["--noexport"], "--noexport", "writes nothing"),
        (["--run_dir", "runs/a"], "--run_dir=runs/a", "writes nothing"),
        (["--ema=0.9"], "--ema=0.9", "evaluates nothing"),
        (
            ["--flagfile=smoke.flags", "--schedule=cosine"],
            "--schedule=cosine",
            "--lowest_rate",
        ),
        (["--flagfile", str(SMOKE), "--log_every=7"], "--log_every=7", ""),
    ],
)
def test_what_has_no_effect_is_refused(flags, spelled, why):
    with pytest.raises(ConfigError) as caught:
        FindSettings.from_flags(flags)
    assert str(caught.value).startswith(f"{spelled} has no effect here, since")
    assert why in str(caught.value)
    assert "flagfile" in str(caught.value)


def test_a_flagfile_may_hold_what_has_no_effect(tmp_path):
    whole = Config(
        dataset="fashion_mnist_10k", batch_size=64, learning_rate=0.5,
        schedule="step", decay=0.2, ema=0.9, epochs=7, run_dir="runs/first",
        resume="must", on_nan="rewind", early_stopping=3, export=False,
    )  # fmt: skip
    path = tmp_path / "config.flags"
    path.write_text(command_line.to_flagfile(whole, "a run"))
    for given in ([f"--flagfile={path}"], ["--flagfile", str(path)]):
        found = FindSettings.from_flags([*given, "--batch_size=32"])
        assert (found.batch_size, found.epochs) == (32, 7)
    # Nor does one that it names in its turn.
    outer = tmp_path / "outer.flags"
    outer.write_text(f"--flagfile={path}\n--epochs=9\n")
    assert FindSettings.from_flags([f"--flagfile={outer}"]).epochs == 9


def test_every_setting_works_or_is_named_in_the_help():
    text = command_line._help("tfnet.lr_find", "", FindSettings)
    listed, _, refused = text.partition("Without effect here")
    for field in dataclasses.fields(FindSettings):
        is_refused = field.name in FindSettings.without_effect
        assert (f"]{field.name}\n" in listed or f"  --{field.name}\n" in listed
                ) != is_refused  # fmt: skip
        assert bool(re.search(rf"--{field.name}\b", refused)) >= is_refused
    assert set(FindSettings.without_effect) < {
        field.name for field in dataclasses.fields(Config)
    }


def test_what_has_no_effect_changes_nothing(capsys):
    plain = {"dataset": "fashion_mnist_10k", "steps": 30, "json": True,
             "logical_devices": 8, "devices": 1}  # fmt: skip
    others = {"learning_rate": 0.5, "schedule": "step", "decay": 0.5,
              "decay_every": 1, "warmup_steps": 3, "epochs": 1, "ema": 0.9,
              "eval_every": 3, "early_stopping": 1, "log_every": 1}  # fmt: skip
    assert set(others) < set(FindSettings.without_effect)
    losses = [
        find(FindSettings(**plain, **more)).losses for more in ({}, others)
    ]
    np.testing.assert_array_equal(*losses)
