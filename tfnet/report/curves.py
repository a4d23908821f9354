"""What changed while a run trained: loss, accuracy, learning rate, speed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tfnet.report import style

# So few points are shown one by one.
_FEW = 40

_LOOKS = {
    "train": {"color": style.BLUE, "marker": "o"},
    "test": {"color": style.VERMILLION, "marker": "s", "linestyle": "--"},
}


def column(
    history: Sequence[Mapping[str, Any]], split: str, x: str, y: str
) -> np.ndarray:
    """Returns the points of a curve: float64 [points, 2].

    Args:
      history: The rows of metrics.csv.
      split: `train` or `test`.
      x: The column that gives the first number of each point.
      y: The column that gives the second. Rows without either, or where it
        is not finite, give no point.
    """
    points = [
        (row[x], row[y])
        for row in history
        if row["split"] == split and _is_number(row[x]) and _is_number(row[y])
    ]
    return np.array(points, np.float64).reshape(-1, 2)


def draw_learning_curves(
    history: Sequence[Mapping[str, Any]], steps_per_epoch: int | None
) -> Figure:
    """Draws loss and accuracy over the steps.

    Args:
      history: The rows of metrics.csv; at least one has a loss.
      steps_per_epoch: Marks the epochs; None: they are not marked.
    """
    figure = style.new_figure(style.HALF, 560)
    style.add_title(figure, "Loss and accuracy")
    upper = style.add_axes(figure, 70, 90, style.HALF - 100, 190)
    lower = style.add_axes(figure, 70, 320, style.HALF - 100, 190)
    for axes, name, scale in ((upper, "loss", 1), (lower, "accuracy", 100)):
        for split, label in (
            ("train", "training"),
            ("test", "test"),
        ):
            points = column(history, split, "step", name)
            if len(points):
                plot_curve(
                    axes,
                    points * [1, scale],
                    label=f"{label}, last {_last(points, name)}",
                    **_LOOKS[split],
                )
        _steps_axis(axes)
        axes.legend(loc="best", fontsize=style.TEXT)
    upper.set_ylim(bottom=0)
    limit_accuracy(lower)
    upper.set_ylabel("loss (nats)")
    lower.set_ylabel("accuracy (%)")
    lower.set_xlabel("steps")
    lower.sharex(upper)
    limit_from_zero(upper, lower)
    if steps_per_epoch:
        _mark_epochs(upper, lower, steps_per_epoch)
    return figure


def draw_learning_rate(history: Sequence[Mapping[str, Any]]) -> Figure:
    """Draws the learning rate over the steps.

    Args:
      history: The rows of metrics.csv; at least one has a learning rate.
    """
    figure, axes = _half_figure("Learning rate")
    points = column(history, "train", "step", "learning_rate")
    plot_curve(axes, points, color=style.BLUE, marker="o")
    _steps_axis(axes)
    limit_from_zero(axes)
    axes.set_xlabel("steps")
    axes.set_ylabel("learning rate")
    rates = points[:, 1]
    if rates.min() > 0 and rates.max() > 100 * rates.min():
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, max(rates.max() * 1.15, 1e-30))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    return figure


def draw_speed(history: Sequence[Mapping[str, Any]]) -> Figure:
    """Draws the images trained on in a second over the time.

    Args:
      history: The rows of metrics.csv; at least one has a speed.
    """
    figure, axes = _half_figure("Speed of training")
    points = column(history, "train", "seconds", "images_per_second")
    unit, seconds = time_unit(points[:, 0].max())
    plot_curve(axes, points / [seconds, 1], color=style.BLUE, marker="o")
    limit_from_zero(axes)
    axes.set_ylim(0, max(points[:, 1].max() * 1.15, 1))
    axes.grid(axis="y")
    axes.set_xlabel(f"time since the start of training ({unit})")
    axes.set_ylabel("images/s")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
    return figure


def time_unit(seconds: float) -> tuple[str, int]:
    """Returns the unit that suits a time, and how many seconds it has."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 3 * length:
            return unit, length
    return "s", 1


def plot_curve(axes: Axes, points: np.ndarray, **looks: Any) -> None:
    """Draws a curve: few points one by one, and a single one as a large ring.

    Args:
      axes: Where; its limits must show all points.
      points: float64 [points, 2].
      **looks: How, in Matplotlib's words.
    """
    if len(points) > _FEW:
        looks["marker"] = None
    if len(points) == 1:
        # Hollow, so that it hides no other at the same place.
        looks |= {"markerfacecolor": "none", "markeredgewidth": 2}
    axes.plot(
        points[:, 0],
        points[:, 1],
        markersize=8 if len(points) == 1 else 4.5,
        # Whole, where it lies on the edge: an accuracy of 0.
        clip_on=len(points) > _FEW,
        **looks,
    )


def limit_from_zero(*axes: Axes) -> None:
    """Lets the axis below begin at 0; a single point stands in its middle.

    At its end, a narrow screen would show no point before it is scrolled.

    Args:
      *axes: Those that get the same limits.
    """
    ends = np.array([one.dataLim.intervalx for one in axes])
    ends = ends[np.isfinite(ends).all(axis=1)]
    if not ends.size or ends.max() <= 0:
        return
    room = 2 if ends.min() == ends.max() else 1.05
    for one in axes:
        one.set_xlim(0, room * ends.max())


def limit_accuracy(axes: Axes) -> None:
    """Lets the axis of an accuracy show no less than 2%, and 0 to 100."""
    low, high = axes.dataLim.intervaly
    room = max(0.08 * (high - low), 1)
    axes.set_ylim(max(low - room, 0), min(high + room, 101))


def _half_figure(title: str) -> tuple[Figure, Axes]:
    figure = style.new_figure(style.HALF, 268)
    style.add_title(figure, title)
    axes = style.add_axes(figure, 80, 45, style.HALF - 110, 170)
    return figure, axes


def _steps_axis(axes: Axes) -> None:
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(
        MaxNLocator(6, steps=[1, 2, 5, 10], integer=True)
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))


def _mark_epochs(upper: Axes, lower: Axes, steps_per_epoch: int) -> None:
    """Rules both axes at the ends of epochs, and numbers them on top."""
    last = upper.get_xlim()[1] / steps_per_epoch
    if last < 1:
        # An axis with nothing on it but its 0 tells nothing.
        return
    every = _round_up(last / 10)
    ends = [e * every for e in range(int(last / every) + 1)]
    for axes in (upper, lower):
        for end in ends:
            axes.axvline(
                end * steps_per_epoch, color=style.PALE, linewidth=0.8, zorder=0
            )
    top = upper.secondary_xaxis("top")
    top.set_xticks(
        [end * steps_per_epoch for end in ends], [f"{end:,}" for end in ends]
    )
    top.set_xlabel("epochs")
    top.spines["top"].set_visible(False)
    top.tick_params(length=0)


def _round_up(number: float) -> int:
    """Returns the least of 1, 2, 5, 10, 20, ... that is not below a number."""
    power = 10 ** max(0, math.floor(math.log10(max(number, 1))))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= number)


def _last(points: np.ndarray, name: str) -> str:
    value = points[-1, 1]
    return f"{value:.1%}" if name == "accuracy" else f"{value:.3f}"


def _is_number(value: Any) -> bool:
    return value is not None and math.isfinite(value)
