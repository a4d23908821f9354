"""The first and last lines of a run, read from its record.

What a person sees and what run.json holds are the same: the lines are made
from nothing else.
"""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfnet.errors import counted
from tfnet.files import seen_from_here
from tfnet.texts import on_one_line

_WIDTH = 88
_LABEL_WIDTH = 9


def first_lines(record: Mapping[str, Any], directory: Path | None) -> str:
    """Returns what a run says before it trains.

    Args:
      record: The record so far.
      directory: The run directory; None in a dry run.
    """
    data = record["dataset"]
    versions = record["versions"]
    replicas = record["replicas"]
    shares = sorted({record["shares"][0], record["shares"][-1]})
    rows = [
        (
            "tfnet",
            f"{versions['tfnet']} (TensorFlow {versions['tensorflow']}, Keras"
            f" {versions['keras']}, Python {versions['python']})",
        ),
        (
            "data",
            f"{data['name']}: {data['train']:,} training and {data['test']:,}"
            f" test images, from {seen_from_here(data['origin'])}",
        ),
        ("classes", f"{len(data['classes'])}: {', '.join(data['classes'])}"),
        (
            "devices",
            f"{replicas} replica{'s' if replicas > 1 else ''}:"
            f" {', '.join(record['devices'])}",
        ),
        ("memory", record["memory"]),
        (
            "cpu",
            f"{_lanes(record)}{counted(record['threads'], 'thread')} for an"
            f" operation, oneDNN {record['onednn']}",
        ),
        (
            "batch",
            f"{record['batch_size']} in all,"
            f" {' or '.join(str(share) for share in shares)} on each replica"
            f"{_accumulation(record['settings'])}",
        ),
        (
            "model",
            f"{record['settings']['model']}, {record['parameters']:,}"
            f" parameters, in {record['settings']['precision']}",
        ),
        *_scaling(record),
        (
            "run",
            "a dry run: a few steps on a few examples, written nowhere"
            if directory is None
            else f"{seen_from_here(directory)}{_resumed(record)}",
        ),
    ]
    rows += [("note", note) for note in record["notes"]]
    return "\n".join(_row(label, text) for label, text in rows)


def last_lines(record: Mapping[str, Any], directory: Path | None) -> str:
    """Returns what a run says after it has trained.

    Args:
      record: The record.
      directory: The run directory; None in a dry run.
    """
    lines = []
    if record.get("skipped_steps"):
        lines.append(
            f"{record['skipped_steps']:,} of {record['steps']:,} steps were"
            " skipped: a gradient was not finite in float16"
        )
    if "test_loss" in record:
        data = record["dataset"]
        lines.append(
            f"test loss {record['test_loss']:.3f}, test accuracy"
            f" {record['test_accuracy']:.1%}{_top_5(record)} on"
            f" {data['test']:,} images of {on_one_line(data['name'])}; accuracy"
            " per class:"
        )
        lines += _class_lines(record["class_accuracy"])
    if directory is not None and directory.is_dir():
        names = sorted(
            path.name
            for path in directory.iterdir()
            if not path.name.startswith(".")
        )
        place = on_one_line(seen_from_here(directory))
        lines.append(f"written to {place}: {', '.join(names)}")
    elif directory is None:
        lines.append("a dry run: nothing was written")
    lines += [_row("note", note) for note in record["notes"]]
    return "\n".join(lines)


def _scaling(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the line that says how pixels are scaled, if not as ever."""
    if record["settings"].get("normalize", "seed") == "seed":
        return []
    mean, std = (
        ", ".join(f"{number:.4f}" for number in record["scaling"][name])
        for name in ("mean", "std")
    )
    text = (
        "(x / 255 - mean) / std, by red, green and blue in the training images:"
        f" mean {mean}, std {std}"
    )
    return [("scaling", text)]


def _resumed(record: Mapping[str, Any]) -> str:
    if not record["resumed"]:
        return ""
    step = record["resumed"][-1]["step"]
    return f", goes on after step {step:,} of {record['total_steps']:,}"


def _accumulation(settings: Mapping[str, Any]) -> str:
    batches = settings["accumulate_steps"]
    return f"; {batches} batches in a step" if batches > 1 else ""


def _top_5(record: Mapping[str, Any]) -> str:
    # With five classes or fewer, all are among the best five.
    if len(record["dataset"]["classes"]) <= 5:
        return ""
    return f" (top 5: {record['test_top_5_accuracy']:.1%})"


def _row(label: str, text: str) -> str:
    return textwrap.fill(
        on_one_line(text),
        _WIDTH,
        initial_indent=label.ljust(_LABEL_WIDTH),
        subsequent_indent=" " * _LABEL_WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _class_lines(accuracies: Mapping[str, float | None]) -> list[str]:
    names = [on_one_line(name) for name in accuracies]
    width = max(map(len, names))
    return [
        f"  {name.ljust(width)}  "
        + ("no test image" if accuracy is None else f"{accuracy:6.1%}")
        for name, accuracy in zip(names, accuracies.values(), strict=True)
    ]


def _lanes(record: Mapping[str, Any]) -> str:
    """Says how a replica's share is worked on; nothing where it is whole."""
    if record["lanes"] == 1:
        return ""
    return f"{record['lanes']} parts of a batch at once, each with "
