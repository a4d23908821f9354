"""What a run leaves after its training: evaluation, export, report.

Each function gives what could not be written, and why: a full disk costs that
one thing, and the others are still tried.
"""

import contextlib
import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfnet.errors import reason_of
from tfnet.runs.directory import RunDirectory, WriteError

if TYPE_CHECKING:
    from tfnet.data import Dataset
    from tfnet.trained import Run
    from tfnet.training import Evaluation

_COMPARED_IMAGES = 64


def add_evaluation(
    record: dict[str, Any],
    dataset: "Dataset",
    evaluation: "Evaluation",
    directory: RunDirectory | None,
) -> list[str]:
    """Adds the last evaluation to the record, and writes its confusion.

    Args:
      record: Is given loss, accuracies and those of each class.
      dataset: What it was evaluated on.
      evaluation: The figures.
      directory: Where to write confusion.csv; None: nowhere.
    """
    record["test_loss"] = evaluation.loss
    record["test_accuracy"] = evaluation.accuracy
    record["test_top_5_accuracy"] = evaluation.top_5_accuracy
    record["class_accuracy"] = dict(
        zip(dataset.class_names, evaluation.class_accuracy, strict=True)
    )
    if directory is not None:
        try:
            directory.write_confusion(dataset.class_names, evaluation.confusion)
        except WriteError as error:
            return [f"confusion.csv ({error.reason})"]
    return []


def export_model(run: "Run", directory: Path | None) -> list[str]:
    """Exports the SavedModel of a run.

    Args:
      run: The run, which has trained.
      directory: The run directory; None: to be thrown away, in a dry run.

    Raises:
      RunError: It is not what was trained.
    """
    from tfnet import exports

    with contextlib.ExitStack() as stack:
        if directory is None:
            temporary = tempfile.TemporaryDirectory()
            directory = Path(stack.enter_context(temporary))
        if not directory.is_dir():
            return ["saved_model (the run directory was removed)"]
        path = directory / "saved_model"
        images, labels = run.dataset.test.first(_COMPARED_IMAGES)
        try:
            exports.export(
                "saved_model",
                path,
                run.model,
                run.class_names,
                scaling=run.scaling,
                image_size=run.config.image_size,
                examples=images,
                labels=labels,
            )
        except OSError as error:
            return [f"saved_model ({reason_of(error)})"]
    return []


def draw_report(run: "Run", place: Path) -> list[str]:
    """Draws the report of a run into its directory `place`."""
    if not place.is_dir():
        return ["report (the run directory was removed)"]
    try:
        run.report()
    except OSError as error:
        return [f"report ({reason_of(error)})"]
    return []


def record_failure(
    record: dict[str, Any], directory: RunDirectory | None
) -> list[str]:
    """Writes the record of a run that could not write all it should."""
    if directory is None or not directory.path.is_dir():
        return []
    try:
        directory.write_record(record)
    except WriteError as error:
        return [f"run.json ({error.reason})"]
    return []


def remedy_for(missing: list[str]) -> str:
    """Returns what a person can do about what is missing."""
    full = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
    is_full = any(reason in what for what in missing for reason in full)
    return "Make room" if is_full else "Mend that"
