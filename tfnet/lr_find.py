"""Find a learning rate: `python -m tfnet.lr_find`, a range test.

Trains for some steps while the rate rises from very small to very large, and
looks at where the loss falls fastest. Smith, Cyclical Learning Rates for
Training Neural Networks (2017), section 3.3.
"""

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tfnet import command_line, parts
from tfnet.config import Config
from tfnet.errors import ConfigError, RunError
from tfnet.runs.signals import StopSignals
from tfnet.settings import same_setting, setting

if TYPE_CHECKING:
    from tfnet.data import Dataset
    from tfnet.devices.start import Devices

_STEPS = 1_000
# How many parts the curve has that are smoothed, and how far above its lowest
# the loss may get.
_WINDOWS = 15
_DIVERGED = 4.0
# What a fall must be to be one, and not luck: in standard errors of what it is
# told from, and as a part of the loss at first.
_STANDARD_ERRORS = 5.0
_LEAST_FALL = 0.01
_FEWEST_STEPS = 2 * _WINDOWS
_LINES = 16
_BAR = 45
_WITHOUT_EFFECT = {
    "the rate rises by itself, from --lowest_rate to --highest_rate": (
        "learning_rate",
        "schedule",
        "warmup_steps",
        "decay",
        "decay_every",
    ),
    "a range test goes by --steps": ("epochs",),
    "a range test evaluates nothing": ("ema", "eval_every", "early_stopping"),
    "a range test writes nothing": (
        "run_dir",
        "resume",
        "checkpoint_every",
        "keep_checkpoints",
        "on_nan",
        "log_every",
        "export",
        "report",
        "tensorboard",
        "profile",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FindSettings(Config):
    """The settings of a run, and what rates to try."""

    without_effect: ClassVar[Mapping[str, str]] = {
        name: why for why, names in _WITHOUT_EFFECT.items() for name in names
    }

    lowest_rate: float = setting(
        1e-6, "The learning rate of the first step.", kind=float, minimum=1e-30
    )
    highest_rate: float = setting(
        1.0, "The learning rate of the last step.", kind=float, minimum=1e-30
    )
    steps: int | None = same_setting(
        Config,
        "steps",
        help=f"How many steps to try, {_FEWEST_STEPS} at least. Left unset:"
        f" {_STEPS:,}.",
    )
    json: bool = setting(False, "Print one JSON object.", kind=bool)

    def __post_init__(self) -> None:
        """Checks every field, then what fields say together."""
        super().__post_init__()
        if self.lowest_rate >= self.highest_rate:
            raise ConfigError(
                f"--lowest_rate ({self.lowest_rate}) must be below"
                f" --highest_rate ({self.highest_rate})."
            )
        if self.steps is not None and self.steps < _FEWEST_STEPS:
            raise ConfigError(
                f"--steps ({self.steps}) must be at least {_FEWEST_STEPS}: of"
                " fewer losses no fall can be told from chance."
            )


@dataclasses.dataclass(frozen=True)
class Curve:
    """The loss while the learning rate rises.

    Attributes:
      rates: The rate of each step, geometric: float64 [steps].
      losses: The mean loss of each step: float64 [steps].
      smoothed: Their median over the steps around: the same.
      suggestion: The rate where that falls fastest; None: there is none.
      reason: Why there is none; None: there is one.
    """

    rates: np.ndarray
    losses: np.ndarray
    smoothed: np.ndarray
    suggestion: float | None
    reason: str | None


def make_curve(rates: np.ndarray, losses: np.ndarray) -> Curve:
    """Smooths losses, and finds the rate where they fall fastest.

    Args:
      rates: Learning rates that rise: float64 [steps].
      losses: The loss of each step, finite: float64 [steps].
    """
    smoothed = _smoothed(losses)
    # At its ends, the curve is the median of half a window.
    reach = _reach(losses)
    whole = smoothed[reach:-reach]
    reason = _why_none(losses, whole)
    suggestion = None
    if reason is None:
        suggestion = float(rates[reach + _steepest(whole, reach)])
    return Curve(rates, losses, smoothed, suggestion, reason)


def _steepest(smoothed: np.ndarray, reach: int) -> int:
    """Returns where a curve falls most, from a window to the next."""
    # Beyond the lowest, it only falls again by chance.
    falling = smoothed[: int(np.argmin(smoothed)) + 1]
    # From step to step, most of a median's change is chance.
    falls = falling[: -2 * reach] - falling[2 * reach :]
    if not len(falls):
        return len(falling) // 2
    return reach + int(np.argmax(falls))


def _why_none(losses: np.ndarray, smoothed: np.ndarray) -> str | None:
    """Says why no rate follows from losses; None: one does."""
    if len(losses) < _FEWEST_STEPS:
        return (
            f"The loss went up or was not finite after {len(losses):,} steps,"
            " too few to tell anything; try a lower --lowest_rate"
        )
    fall = smoothed[0] - smoothed.min()
    if fall <= 0:
        return "The loss fell nowhere; try another --lowest_rate"
    if fall < _LEAST_FALL * smoothed[0]:
        return (
            f"The loss fell by {fall / smoothed[0]:.1%} only; try a larger"
            " --batch_size"
        )
    least = _STANDARD_ERRORS * _error_of_differences(losses)
    if fall < least:
        return (
            f"The loss fell by {fall:.2g}, and less than {least:.2g} may be"
            " chance here; try a larger --batch_size"
        )
    return None


def _error_of_differences(losses: np.ndarray) -> float:
    """Returns the standard error of a difference of two smoothed losses.

    From the median of the differences between neighbours, which neither a slow
    rise or fall nor a few wild steps change: sigma = 1.4826 median|difference|
    / sqrt(2) for normal noise, and sqrt(pi / 2) sigma / sqrt(n) for a median
    of n.
    """
    sigma = 1.4826 * np.median(np.abs(np.diff(losses))) / np.sqrt(2)
    width = 2 * _reach(losses) + 1
    return float(np.sqrt(2) * np.sqrt(np.pi / 2) * sigma / np.sqrt(width))


def _smoothed(losses: np.ndarray) -> np.ndarray:
    # Around each step, not before it: an average of what was before lags, and
    # would suggest too high a rate.
    reach = _reach(losses)
    return np.array(
        [
            np.median(losses[max(0, i - reach) : i + reach + 1])
            for i in range(len(losses))
        ]
    )


def _reach(losses: np.ndarray) -> int:
    return max(1, len(losses) // (2 * _WINDOWS))


def find(config: FindSettings) -> Curve:
    """Trains while the rate rises; prints the curve and a suggestion.

    Args:
      config: The settings; nothing is written.

    Raises:
      ConfigError: A setting can't be had on this machine.
      DataError: The data set can't be had.
      RunError: The first loss is not finite.
      Interrupted: A signal ended it.
    """
    with StopSignals(), contextlib.ExitStack() as stack:
        devices = parts.start_devices(config)
        from tfnet.models.precision import computing_in

        stack.enter_context(computing_in(config.precision))
        dataset = parts.open_dataset(config)
        curve = make_curve(*_try_rates(config, devices, dataset))
    if config.json:
        fields = dataclasses.asdict(curve)
        print(json.dumps({k: _plain(v) for k, v in fields.items()}))
    else:
        remembers = config.optimizer != "sgd" or config.momentum > 0
        print(_text(curve, remembers=remembers))
    return curve


def _try_rates(
    config: FindSettings, devices: "Devices", dataset: "Dataset"
) -> tuple[np.ndarray, np.ndarray]:
    from tfnet import training

    count = config.steps or _STEPS
    rates = np.geomspace(config.lowest_rate, config.highest_rate, count)
    scaling, _ = parts.scaling(config, dataset)
    state, _ = parts.create_state(config, devices, dataset, scaling)
    train = parts.create_train_function(
        config, devices, dataset, scaling, state
    )
    losses: list[float] = []
    for epoch in itertools.count():
        blocks = training.train_epoch(
            train,
            dataset.train,
            seed=config.seed,
            epoch=epoch,
            batch_size=config.batch_size,
            batches=config.accumulate_steps,
            replicas=devices.replicas,
            steps=count - len(losses),
            until_stop=lambda step: 10,
            learning_rate=lambda steps: rates[steps],
        )
        with contextlib.closing(blocks):
            for block in blocks:
                losses += block.loss.tolist()
                if _has_diverged(np.array(losses)) or len(losses) >= count:
                    return _finite(rates, np.array(losses))
    raise AssertionError("an epoch has steps")


def _has_diverged(losses: np.ndarray) -> bool:
    if not np.isfinite(losses).all():
        return True
    smoothed = _smoothed(losses)
    return bool(smoothed[-1] > _DIVERGED * smoothed.min())


def _finite(
    rates: np.ndarray, losses: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    finite = np.isfinite(losses)
    count = len(losses) if finite.all() else int(np.argmin(finite))
    if count == 0:
        raise RunError(
            "the loss of the first step is not finite; the learning rate has"
            " no part in that. Look at the data and the model."
        )
    return rates[:count], losses[:count]


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _text(curve: Curve, *, remembers: bool) -> str:
    """Returns the curve in a few lines, and what follows from it.

    Args:
      curve: The curve.
      remembers: Whether the optimizer goes by earlier gradients, too.
    """
    count = len(curve.rates)
    chosen = np.unique(np.linspace(0, count - 1, _LINES).astype(int))
    full = 1.5 * max(float(curve.smoothed[0]), 1e-300)
    lines = ["learning rate     loss"]
    for i in chosen:
        part = min(1.0, float(curve.smoothed[i]) / full)
        lines.append(
            f"{curve.rates[i]:13.1e}  {curve.smoothed[i]:7.3f}"
            f"  {'#' * round(_BAR * part)}"
        )
    if curve.suggestion is None:
        lines.append(f"{curve.reason}, or more --steps. Nothing is suggested.")
    else:
        lines.append(
            "The loss falls fastest at"
            f" --learning_rate={curve.suggestion:.1e} ({count:,} steps tried)."
        )
        if remembers:
            lines.append(
                "Momentum shows late what a rate does: a third of it is on the"
                " safe side."
            )
    return "\n".join(lines)


if __name__ == "__main__":
    command_line.main(
        "tfnet.lr_find",
        "Try learning rates that rise, and say where the loss falls fastest.",
        find,
        FindSettings,
    )
