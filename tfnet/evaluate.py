"""Evaluate: `python -m tfnet.evaluate --run_dir=R`, how good a model is."""

import dataclasses
import json
from typing import Any

from tfnet import command_line
from tfnet.run_settings import RunSettings
from tfnet.scores import Scores
from tfnet.settings import setting
from tfnet.texts import on_one_line
from tfnet.trained import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateSettings(RunSettings):
    """The settings of the command."""

    json: bool = setting(False, "Print one JSON object.", kind=bool)


def evaluate(settings: EvaluateSettings) -> Scores:
    """Prints how good the model of a run is.

    Args:
      settings: The settings.

    Raises:
      ConfigError: There is no such run, or it has no checkpoint.
      DataError: The data can't be had, or have other classes.
    """
    run, dataset = settings.open()
    scores = run.evaluate(dataset)
    facts = {
        "run": str(run.directory),
        "checkpoint": run.checkpoint,
        "dataset": dataset.name,
        "origin": dataset.origin,
        "notes": _notes(run, dataset, is_other=settings.dataset is not None),
    }
    print(_json(facts, scores) if settings.json else _text(facts, scores))
    return scores


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
    names = [on_one_line(name) for name in scores.classes]
    width = max(len("class"), *map(len, names))
    lines = [
        f"run      {facts['run']}, {facts['checkpoint']}",
        f"data     {facts['dataset']}: {scores.images:,} test images, from"
        f" {facts['origin']}",
        *(f"note     {note}" for note in facts["notes"]),
        f"loss {scores.loss:.4f}, accuracy {scores.accuracy:.2%}"
        f"{_top_5(scores)}, calibration error {scores.calibration_error:.2%}",
        f"{'class'.ljust(width)}  precision  recall      F1  images",
    ]
    for name, one in zip(names, scores.classes.values(), strict=True):
        lines.append(
            f"{name.ljust(width)}  {_percent(one.precision, 9)}"
            f"  {_percent(one.recall, 6)}  {_percent(one.f1, 6)}"
            f"  {one.support:6,}"
        )
    return "\n".join(map(on_one_line, lines))


def _top_5(scores: Scores) -> str:
    # With five classes or fewer, all are among the best five.
    if len(scores.classes) <= 5:
        return ""
    return f", top 5 {scores.top_5_accuracy:.2%}"


def _percent(value: float | None, width: int) -> str:
    return ("-" if value is None else f"{value:.1%}").rjust(width)


if __name__ == "__main__":
    command_line.main(
        "tfnet.evaluate",
        "Evaluate the model of a run: loss, accuracy, and every class.",
        evaluate,
        EvaluateSettings,
    )
