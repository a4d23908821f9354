"""Evaluate: `python -m tfnet.evaluate --run_dir=R`, how good a model is."""

import dataclasses
import json
import sys
from typing import Any

from tfnet import command_line, parts
from tfnet.config import Config
from tfnet.errors import ConfigError
from tfnet.scores import Scores
from tfnet.settings import Settings, same_setting, setting
from tfnet.trained import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateSettings(Settings):
    """The settings of the command."""

    run_dir: str | None = same_setting(
        Config, "run_dir", help="The run whose model to evaluate."
    )
    dataset: str | None = same_setting(
        Config,
        "dataset",
        help="Whose test images to evaluate on, with the classes of the run:"
        " what --dataset of tfnet.train takes. Left unset: that of the run.",
    )
    data_dir: str | None = same_setting(Config, "data_dir")
    cache_dir: str | None = same_setting(Config, "cache_dir")
    json: bool = setting(False, "Print one JSON object.", kind=bool)
    verbosity: int = same_setting(Config, "verbosity")

    def __post_init__(self) -> None:
        """Checks every field, then what must be given."""
        super().__post_init__()
        if self.run_dir is None:
            raise ConfigError(
                "--run_dir must be given; for example --run_dir=runs/first."
            )


def evaluate(settings: EvaluateSettings) -> Scores:
    """Prints how good the model of a run is.

    Args:
      settings: The settings.

    Raises:
      ConfigError: There is no such run, or it has no checkpoint.
      DataError: The data can't be had, or have other classes.
    """
    assert settings.run_dir is not None
    run = Run.open(settings.run_dir)
    given = {
        name: value
        for name in ("dataset", "data_dir", "cache_dir")
        if (value := getattr(settings, name)) is not None
    }
    parts.start_without_training()
    dataset = parts.open_dataset(
        dataclasses.replace(run.config, **given), tell=_tell
    )
    scores = run.evaluate(dataset)
    facts = {
        "run": str(run.directory),
        "checkpoint": run.checkpoint,
        "dataset": dataset.name,
        "origin": dataset.origin,
        "notes": _notes(run, dataset, is_other="dataset" in given),
    }
    print(_json(facts, scores) if settings.json else _text(facts, scores))
    return scores


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _notes(run: Run, dataset: Any, *, is_other: bool) -> list[str]:
    was = run.record["dataset"]
    if is_other or was["fingerprint"] == dataset.fingerprint():
        return list(dataset.notes)
    return [
        *dataset.notes,
        f"The data are not what they were when the run was made: it had"
        f" {was['train']:,} training and {was['test']:,} test images.",
    ]


def _json(facts: dict[str, Any], scores: Scores) -> str:
    figures = dataclasses.asdict(scores)
    figures["confusion"] = scores.confusion.tolist()
    return json.dumps({**facts, **figures})


def _text(facts: dict[str, Any], scores: Scores) -> str:
    width = max(len("class"), *(len(name) for name in scores.classes))
    lines = [
        f"run      {facts['run']}, {facts['checkpoint']}",
        f"data     {facts['dataset']}: {scores.images:,} test images, from"
        f" {facts['origin']}",
        *(f"note     {note}" for note in facts["notes"]),
        f"loss {scores.loss:.4f}, accuracy {scores.accuracy:.2%}, top 5"
        f" {scores.top_5_accuracy:.2%}, calibration error"
        f" {scores.calibration_error:.2%}",
        f"{'class'.ljust(width)}  precision  recall      F1  images",
    ]
    for name, one in scores.classes.items():
        lines.append(
            f"{name.ljust(width)}  {_percent(one.precision, 9)}"
            f"  {_percent(one.recall, 6)}  {_percent(one.f1, 6)}"
            f"  {one.support:6,}"
        )
    return "\n".join(lines)


def _percent(value: float | None, width: int) -> str:
    return ("-" if value is None else f"{value:.1%}").rjust(width)


if __name__ == "__main__":
    command_line.main(
        "tfnet.evaluate",
        "Evaluate the model of a run: loss, accuracy, and every class.",
        evaluate,
        EvaluateSettings,
    )
