"""How well each class is recognised."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tfnet.report import style
from tfnet.report.figures import ClassScores
from tfnet.report.names import fit_names, widest

# More would be a picture that nobody scrolls through.
_MOST = 60


def draw_class_scores(
    scores: Sequence[ClassScores], class_names: Sequence[str]
) -> Figure:
    """Draws precision, recall and F1 of each class, the lowest F1 first.

    Args:
      scores: The scores of each class; those of `choose_classes` are drawn.
      class_names: The name of each class.
    """
    order = choose_classes(scores)
    row = 30 if len(order) <= 20 else 15
    points = style.TEXT if row > 20 else style.SMALL
    names = fit_names(class_names, 150, points)
    labels = [f"{names[i]}  ({scores[i].support:,})" for i in order]
    margin = widest(labels, points) + 20
    height = row * len(order) + 10
    figure = style.new_figure(style.HALF, height + 125)
    axes = style.add_axes(figure, margin, 70, style.HALF - margin - 25, height)
    for place, i in enumerate(order):
        _draw_class(axes, place, scores[i])
    axes.set_yticks(range(len(order)), labels, fontsize=points)
    axes.set_ylim(len(order) - 0.35, -0.65)
    axes.set_xlim(0, 102)
    axes.set_xticks(range(0, 101, 20))
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("score (%)")
    title = "Scores of each class (and its number of test images)"
    if _has_gap(order, scores):
        # A line between the lowest and the highest.
        axes.axhline(_MOST // 2 - 0.5, color=style.INK, linestyle=":")
        title = (
            f"The {_MOST // 2} classes of lowest and {_MOST // 2} of highest"
            f" F1, of {len(scores):,} (and test images)"
        )
    elif len(order) < len(scores):
        title = (
            f"The {len(order)} classes with an F1 above 0, of"
            f" {len(scores):,} (and test images)"
        )
    style.add_title(figure, title)
    _add_legend(axes)
    return figure


def choose_classes(scores: Sequence[ClassScores]) -> list[int]:
    """Returns the classes that are drawn, the lowest F1 first.

    Of more than fit, those whose F1 is 0 or undefined are left out, which
    would be many lines without a bar; of the others the lowest and the
    highest are taken.

    Args:
      scores: The scores of each class.
    """
    order = sorted(range(len(scores)), key=lambda i: _key(scores[i]))
    if len(order) <= _MOST:
        return order
    order = [i for i in order if scores[i].f1]
    if len(order) <= _MOST:
        return order
    return order[: _MOST // 2] + order[-(_MOST // 2) :]


def _has_gap(order: Sequence[int], scores: Sequence[ClassScores]) -> bool:
    """Says whether classes of an F1 above 0 were left out of the middle."""
    return len(order) < sum(bool(one.f1) for one in scores)


def _key(scores: ClassScores) -> tuple[bool, float]:
    return scores.f1 is None, scores.f1 or 0.0


def _draw_class(axes: Axes, place: int, scores: ClassScores) -> None:
    if scores.f1 is None:
        axes.text(1, place, "no test image", va="center", color=style.GREY)
        return
    axes.barh(place, 100 * scores.f1, height=0.6, color=style.SKY)
    for share, marker, color in (
        (scores.precision, "D", style.VERMILLION),
        (scores.recall, "o", style.INK),
    ):
        if share is not None:
            axes.plot(
                100 * share,
                place,
                marker,
                color=color,
                markersize=5,
                markeredgecolor="white",
                markeredgewidth=0.6,
                clip_on=False,
            )
    if scores.precision is None:
        axes.text(3, place, "never guessed", va="center", color=style.GREY)
    if not scores.support:
        axes.text(3, place, "no test image", va="center", color=style.GREY)


def _add_legend(axes: Axes) -> None:
    axes.legend(
        handles=[
            Patch(color=style.SKY, label="F1"),
            _dot("D", style.VERMILLION, label="precision"),
            _dot("o", style.INK, label="recall"),
        ],
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        borderaxespad=0.2,
        columnspacing=1.5,
        handlelength=1.2,
    )


def _dot(marker: str, color: str, label: str) -> Line2D:
    return Line2D(
        [], [], color=color, marker=marker, linestyle="none", label=label
    )
