"""A comparison: tfnet and others at the same work, in turns."""

import dataclasses
import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.sides import Figures, Side

# Of the mean loss of an epoch: the same order and weights give 0.1 % or less,
# an order of one's own a percent.
_LOSS_TOLERANCE = 0.02


@dataclasses.dataclass(frozen=True)
class Rival:
    """What tfnet is held against: the best of some sides.

    Attributes:
      name: What it is, as the table says it.
      sides: Ways to do the same work; the one with the best median counts.
      target: The ratio to reach; None: only to be told.
    """

    name: str
    sides: Sequence[Side]
    target: float | None = None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A piece of work, and who does it.

    Attributes:
      key: Names it on the command line.
      work: What is done, as the table says it.
      unit: Of the values, such as images/s.
      ours: tfnet.
      rivals: The others.
      more_is_better: Whether a larger value is better.
      ratio: What the ratio is of, in words, where it is not speed.
    """

    key: str
    work: str
    unit: str
    ours: Side
    rivals: Sequence[Rival]
    more_is_better: bool = True


def measure(
    comparison: Comparison,
    rounds: int,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Runs every side in turn, round after round.

    Args:
      comparison: What to run.
      rounds: How often.
      tell: Is given a line for each process.

    Returns:
      JSON: the values of each side, and for each rival the ratio.

    Raises:
      SideError: A side failed.
      ValueError: A side has learnt something else than the others.
    """
    sides = [
        comparison.ours,
        *itertools.chain(*(rival.sides for rival in comparison.rivals)),
    ]
    found: dict[str, list[Figures]] = {side.name: [] for side in sides}
    for number in range(rounds):
        # Every other round the other way round, so that a drift of the
        # machine's speed does not favour the first.
        turn = sides if number % 2 == 0 else sides[::-1]
        for side in turn:
            with tempfile.TemporaryDirectory() as folder:
                figures = side.run(Path(folder, "side"))
            found[side.name].append(figures)
            tell(
                f"{comparison.key} {number + 1}/{rounds} {side.name}:"
                f" {figures.value:,.5g} {comparison.unit}"
                + (f", loss {figures.loss:.4f}" if figures.loss else "")
            )
    _check_losses(found, comparison.ours.name)
    values = {
        name: [one.value for one in figures] for name, figures in found.items()
    }
    return {
        "work": comparison.work,
        "unit": comparison.unit,
        "more_is_better": comparison.more_is_better,
        "ours": comparison.ours.name,
        "values": values,
        "losses": {
            name: [one.loss for one in figures]
            for name, figures in found.items()
            if figures[0].loss is not None
        },
        "rivals": [
            _against(rival, values, comparison) for rival in comparison.rivals
        ],
    }


def _against(
    rival: Rival, values: dict[str, list[float]], comparison: Comparison
) -> dict[str, Any]:
    names = [side.name for side in rival.sides]
    choose = max if comparison.more_is_better else min
    best = choose(names, key=lambda name: statistics.median(values[name]))
    pairs = zip(values[comparison.ours.name], values[best], strict=True)
    if comparison.more_is_better:
        ratios = [ours / theirs for ours, theirs in pairs]
    else:
        ratios = [theirs / ours for ours, theirs in pairs]
    return {
        "name": rival.name,
        "best": best,
        "target": rival.target,
        "ratios": ratios,
        "ratio": statistics.median(ratios),
    }


def _check_losses(found: dict[str, list[Figures]], ours: str) -> None:
    """Checks that all have learnt the same."""
    losses = {
        name: statistics.median(one.loss for one in figures)  # type: ignore[type-var]
        for name, figures in found.items()
        if figures[0].loss is not None
    }
    if not losses:
        return
    expected = losses[ours]
    wrong = _others(losses.items(), expected)
    if wrong:
        raise ValueError(
            f"the loss of {ours} is {expected:.4f}, and others have learnt"
            f" something else: {wrong}"
        )


def _others(losses: Iterable[tuple[str, Any]], expected: Any) -> str:
    return ", ".join(
        f"{name} {loss:.4f}"
        for name, loss in losses
        if not abs(loss - expected) <= _LOSS_TOLERANCE * expected
    )
