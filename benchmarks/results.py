"""RESULTS.md: the table of all comparisons, their values, and a picture."""

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.machine import OPERATIONS
from benchmarks.reasons import REASONS

_TABLE = "RESULTS.md"
_DATA = "results.json"
_PICTURE = "results.png"


def read(place: Path) -> dict[str, Any]:
    """Returns the comparisons that an earlier call has written, by key."""
    file = place / _DATA
    if not file.exists():
        return {}
    return json.loads(file.read_text())["comparisons"]


def write(place: Path, results: dict[str, Any]) -> None:
    """Writes the results as JSON, as a table and as a picture.

    Args:
      place: The directory.
      results: `machine`, `versions`, `matrix_rate` (operations a second by
        threads), `comparisons` (what `comparison.measure` returned, by key,
        with `date` and `rounds`), and `profiles` (what `own.op_profile`
        printed, by batch size).
    """
    place.mkdir(parents=True, exist_ok=True)
    (place / _DATA).write_text(json.dumps(results, indent=1) + "\n")
    (place / _TABLE).write_text(_text(results))
    _draw(results["comparisons"], place / _PICTURE)


def _text(results: dict[str, Any]) -> str:
    machine = results["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in results["versions"].items())
    return "\n".join(
        [
            "# Beside its peers",
            "",
            "Written by `python -m benchmarks`. Every side is a process of its"
            " own; all train on the same images in the same order from the"
            " same weights, and end with the same loss within 2 %"
            " (`seed_script` has its own order). The sides take turns; a ratio"
            " is the median of the ratios of each turn, above 1 where tfnet is"
            " better; the times of a shared machine mean little by themselves.",
            "",
            f"{machine['processor']}, {machine['cores']} cores,"
            f" {machine['memory']}, {machine['system']}, Python"
            f" {machine['python']}; {versions}.",
            "",
            f"![The ratios and their targets]({_PICTURE})",
            "",
            *_ratios(results["comparisons"]),
            "",
            "## What is missed, and why",
            "",
            *_missed(results["comparisons"]),
            "",
            "## Against the machine",
            "",
            *_fractions(results),
            "",
            "## Where a step's time goes",
            "",
            *_profiles(results["profiles"]),
            "",
            "## All values",
            "",
            *_values(results["comparisons"]),
            "",
        ]
    )


def _ratios(comparisons: dict[str, Any]) -> list[str]:
    lines = [
        "| work | against | the best of them | ratio (range) | target | |",
        "|---|---|---|---|---|---|",
    ]
    for one in comparisons.values():
        for rival in one["rivals"]:
            lines.append(
                f"| {one['work']} | {rival['name']} | {rival['best']} |"
                f" {rival['ratio']:.2f} ({min(rival['ratios']):.2f} to"
                f" {max(rival['ratios']):.2f}) | {_target(rival)} |"
            )
    return lines


def _target(rival: dict[str, Any]) -> str:
    if rival["target"] is None:
        return " | "
    return f"{rival['target']:g} | {'missed' if _is_missed(rival) else 'met'}"


def _is_missed(rival: dict[str, Any]) -> bool:
    return rival["target"] is not None and rival["ratio"] < rival["target"]


def _missed(comparisons: dict[str, Any]) -> list[str]:
    lines = [
        f"* {one['work']}, against {rival['name']}: {rival['ratio']:.2f} of"
        f" {rival['target']:g}, {1 - rival['ratio'] / rival['target']:.0%}"
        f" short. {REASONS.get((key, rival['name']), 'Not known why.')}"
        for key, one in comparisons.items()
        for rival in one["rivals"]
        if _is_missed(rival)
    ]
    return lines or ["Nothing."]


def _fractions(results: dict[str, Any]) -> list[str]:
    rates = results["matrix_rate"]
    best = max(rates.values())
    shown = ", ".join(
        f"{rate / 1e9:,.0f} billion a second on {threads} threads"
        for threads, rate in rates.items()
    )
    lines = [
        f"An image takes {OPERATIONS / 1e6:.2f} million operations, forward and"
        " backward (a multiplication and an addition are two). Products of"
        f" matrices of 1024 x 1024 in float32 reach {shown}. Of the faster"
        " one, tfnet reaches:",
        "",
        "| batch | images/s | of the machine's rate |",
        "|---|---|---|",
    ]
    for key, one in results["comparisons"].items():
        kind, _, size = key.rpartition("-")
        if kind == "batch":
            value = statistics.median(one["values"][one["ours"]])
            lines.append(
                f"| {size} | {value:,.0f} | {value * OPERATIONS / best:.0%} |"
            )
    return lines


def _profiles(profiles: dict[str, Any]) -> list[str]:
    lines = [
        "A step by TensorFlow's profiler, which slows small operations down. It"
        " records none that it deems cheap; some run at once, so their times"
        " may add up to more than the step's.",
    ]
    for size, profile in profiles.items():
        step, kinds = profile["seconds_per_step"], profile["operations"]
        lines += [
            "",
            f"Batch {size}: {step * 1e6:,.0f} microseconds a step.",
            "",
            "| operation | microseconds | share |",
            "|---|---|---|",
        ]
        for name, seconds in [*kinds.items()][:12]:
            lines.append(
                f"| {name} | {seconds * 1e6:,.0f} | {seconds / step:.0%} |"
            )
        total = sum(kinds.values())
        lines.append(
            f"| all that is recorded | {total * 1e6:,.0f} |"
            f" {total / step:.0%} |"
        )
    return lines


def _values(comparisons: dict[str, Any]) -> list[str]:
    lines = [
        "| work | side | median | range | loss | measured |",
        "|---|---|---|---|---|---|",
    ]
    for one in comparisons.values():
        for name, values in one["values"].items():
            losses = one["losses"].get(name)
            loss = f"{statistics.median(losses):.4f}" if losses else ""
            lines.append(
                f"| {one['work']} | {name} |"
                f" {statistics.median(values):,.5g} {one['unit']} |"
                f" {min(values):,.5g} to {max(values):,.5g} | {loss} |"
                f" {one['date']}, {one['rounds']} rounds |"
            )
    return lines


def _draw(comparisons: dict[str, Any], path: Path) -> None:
    """Draws a bar for each ratio, from its smallest to its largest."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    rows = [
        (f"{one['work']}\nagainst {rival['name']}", rival)
        for one in comparisons.values()
        for rival in one["rivals"]
    ][::-1]
    figure, axes = pyplot.subplots(
        figsize=(9, 0.6 + 0.5 * len(rows)), layout="constrained"
    )
    for place, (_, rival) in enumerate(rows):
        ratios = rival["ratios"]
        axes.plot(
            [min(ratios), max(ratios)], [place] * 2, color="#7f7f7f", lw=3
        )
        axes.plot(
            rival["ratio"],
            place,
            "o",
            color="#d55e00" if _is_missed(rival) else "#0072b2",
        )
        if rival["target"]:
            axes.plot(rival["target"], place, "|", color="black", ms=14, mew=2)
    axes.set_xscale("log")
    ticks = [0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.axvline(1, color="#bbbbbb", lw=1, zorder=0)
    axes.set_ylim(-0.8, len(rows) - 0.2)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    axes.set_xlabel("tfnet to its rival, as a ratio (above 1: tfnet is better)")
    axes.set_title(
        "Median and range; black strokes are targets", fontsize=10, loc="left"
    )
    axes.grid(axis="x", color="#eeeeee")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
