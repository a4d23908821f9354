"""Where a run begins: at its first step, or at its newest good checkpoint."""

import dataclasses
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from tfnet.errors import ConfigError
from tfnet.runs import checkpoints
from tfnet.runs.checkpoints import Checkpoint
from tfnet.runs.directory import RunDirectory, holds_a_run

_PARTS = "parts of a batch at once"


@dataclasses.dataclass(frozen=True)
class Start:
    """Where a run begins.

    Attributes:
      run_id: Tells this run from all others.
      name: Of the checkpoint to go on from; None: from the first step.
      checkpoint: That one.
      notes: Lines that a person should be told.
    """

    run_id: str
    name: str | None = None
    checkpoint: Checkpoint | None = None
    notes: tuple[str, ...] = ()


def from_the_first_step() -> Start:
    """Returns the start of a new run."""
    return Start(uuid.uuid4().hex)


def find_start(
    directory: RunDirectory,
    *,
    resume: str,
    changed: Callable[[Mapping[str, Any]], list[str]],
) -> Start:
    """Finds where the run in a directory goes on; changes nothing.

    Args:
      directory: The run directory.
      resume: `must`: a checkpoint is needed.
      changed: Names, given the settings that the run had, those that are
        other ones now and may not be.

    Raises:
      ConfigError: No checkpoint is good; settings differ; the run has ended
        and left no checkpoint.
    """
    if not holds_a_run(directory.path):
        return from_the_first_step()
    where = f"--run_dir ({directory.path})"
    record, notes = _read_record(directory)
    found = checkpoints.newest(directory.checkpoints, record.get("id"))
    if found.checkpoint is None and found.passed_over:
        raise ConfigError(
            f"{where} has no checkpoint that can be used:"
            f" {'; '.join(found.passed_over)}. Nothing was changed; bring one"
            " back, or name another directory."
        )
    if found.checkpoint is None and (
        resume == "must" or record.get("exit_reason") == "finished"
    ):
        raise ConfigError(
            f"{where} holds a run that has saved no checkpoint, so it can't go"
            " on; name another directory."
        )
    if found.checkpoint is None and directory.has_metrics():
        raise ConfigError(
            f"{where} holds a run that has trained (metrics.csv has rows) and"
            " has no checkpoint to go on from. Nothing was changed; bring one"
            " back, or name another directory."
        )
    progress = found.checkpoint.progress if found.checkpoint else {}
    before = progress.get("settings", record.get("settings"))
    differences = changed(before) if isinstance(before, dict) else []
    if differences:
        raise ConfigError(
            f"{where} holds a run with other settings:"
            f" {'; '.join(differences)}. Give those of the run, or name another"
            " directory."
        )
    notes += [
        f"The checkpoint {text}. It was passed over."
        for text in found.passed_over
    ]
    if found.checkpoint is None:
        notes.append("The run here had no checkpoint yet; it begins again.")
    return Start(
        run_id=progress.get("run_id") or record.get("id") or uuid.uuid4().hex,
        name=found.name,
        checkpoint=found.checkpoint,
        notes=tuple(notes),
    )


def resumed(start: Start, record: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns where the run went on, with this time.

    Args:
      start: Where it begins now.
      record: Is given a note of what the last bits depend on and is new.
    """
    if start.checkpoint is None:
        return []
    progress = start.checkpoint.progress
    # Earlier checkpoints lack the number of parts: there was one.
    before = {_PARTS: 1, **progress["environment"]}
    different = [
        f"{name}: {before[name]} before, {value} now"
        for name, value in environment(record).items()
        if before[name] != value
    ]
    if different:
        record["notes"].append(
            f"The run goes on otherwise ({'; '.join(different)}): its numbers"
            " agree with those of an unbroken run to rounding, not to the bit."
        )
    now = {"step": progress["step"], "checkpoint": start.name}
    return [*progress["resumed"], now]


def environment(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the last bits of a run depend on, from its record."""
    return {
        "replicas": record["replicas"],
        "threads": record["threads"],
        _PARTS: record["lanes"],
        "oneDNN": record["onednn"],
        "TensorFlow": record["versions"]["tensorflow"],
        "Keras": record["versions"]["keras"],
    }


def facts(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what every checkpoint says about its run, from its record."""
    return {
        "run_id": record["id"],
        "settings": record["settings"],
        "dataset": record["dataset"],
        "scaling": record["scaling"],
        "environment": environment(record),
        "resumed": record["resumed"],
    }


def _read_record(
    directory: RunDirectory,
) -> tuple[dict[str, Any], list[str]]:
    """Returns run.json, and what there is to say if it can't be read."""
    try:
        return directory.read_record(), []
    except FileNotFoundError:
        reason = "it is not there"
    except (OSError, ValueError) as error:
        reason = str(error)
    return {}, [f"run.json can't be read ({reason}); it is written anew."]
