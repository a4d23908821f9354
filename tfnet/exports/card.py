"""The model card: what was trained on what, how good it is, how to use it."""

import dataclasses
import os
import string
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tfnet import files
from tfnet.config import Config
from tfnet.data.scaling import COLOURS, Scaling
from tfnet.errors import ConfigError
from tfnet.exports.export import Comparison
from tfnet.exports.formats import FORMATS, Format
from tfnet.texts import on_one_line

# What the authors of a data set state.
_LICENCES = {
    "cifar10": "its authors state none",
    "fashion_mnist": "MIT",
    "fashion_mnist_10k": "MIT",
}
# They say where files of the one who trained are, not what was trained.
_PLACES = ("data_dir", "cache_dir", "run_dir")


CARD = "README.md"
# Ends the sentence by which an earlier card can be told from other texts.
_MADE_BY = "made by tfnet."


def check_place(directory: Path, names: Collection[str] = ()) -> None:
    """Refuses a directory where an export would replace what is a person's.

    Where a card of tfnet lies, all under the usual names are its exports.

    Args:
      directory: Where to export to.
      names: Of what will be written, beside the card.

    Raises:
      ConfigError: One of them is there, or a README.md, and no card.
    """
    card = directory / CARD
    if _is_card(card):
        return
    for path in (card, *(directory / name for name in names)):
        if os.path.lexists(path):
            raise ConfigError(
                f"{path} is there, and no model card of tfnet says that it was"
                " exported, so it is not written over; name another directory"
                " (--output_dir), or remove it."
            )


def _is_card(path: Path) -> bool:
    try:
        text = files.read_bytes(path).decode(errors="replace")
    except OSError:
        return False
    return any(line.endswith(_MADE_BY) for line in text.splitlines())


def write_card(
    path: Path,
    record: Mapping[str, Any],
    comparisons: Mapping[str, Comparison],
) -> None:
    """Writes a model card in Markdown.

    Args:
      path: The file to write, beside the exports under their usual names; what
        was there is replaced, see `check_place`.
      record: Of the run: what run.json holds.
      comparisons: For each format that was exported, by name, what `export`
        returned.

    Raises:
      OSError: It could not be written.
    """
    files.write_text(path, "\n".join(_lines(record, comparisons)) + "\n")


def _lines(
    record: Mapping[str, Any], comparisons: Mapping[str, Comparison]
) -> Iterator[str]:
    settings, data = record["settings"], record["dataset"]
    yield f"# {settings['model']}, trained on {data['name']}"
    yield ""
    yield (
        f"An image classifier of {record['parameters']:,} parameters for"
        f" {len(data['classes'])} classes, {_MADE_BY}"
    )
    yield from _data(settings, data)
    scaling = Scaling.read(record.get("scaling"))
    yield from _scaling(scaling)
    yield from _settings(settings)
    yield from _figures(record)
    yield from _classes(record)
    yield "\n## Use"
    for name, comparison in comparisons.items():
        texts = {"size": settings["image_size"], "scaled": scaling.formula}
        yield from _format(FORMATS[name], comparison, texts)
    yield "\n## Versions\n"
    yield ", ".join(f"{k} {v}" for k, v in record["versions"].items())


def _data(settings: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    licence = "not known to tfnet"
    # A folder may be called like a published data set.
    if settings["dataset"] in (None, data["name"]):
        licence = _LICENCES.get(data["name"], licence)
    rows = {
        "name": data["name"],
        "from": data["origin"],
        "images": f"{data['train']:,} to train and {data['test']:,} to test",
        "fingerprint": data["fingerprint"],
        "licence": licence,
    }
    return ["\n## Data\n", *_table(("", ""), rows.items())]


def _scaling(scaling: Scaling) -> list[str]:
    rows = zip(COLOURS, scaling.mean, scaling.std, strict=True)
    return [
        "\n## Scaling\n",
        "In training, a pixel x from 0 to 255 was scaled to (x / 255 - mean) /"
        " std:\n",
        *_table(("", "mean", "std"), rows),
    ]


def _settings(settings: Mapping[str, Any]) -> list[str]:
    changed = {
        f"`--{field.name}`": settings[field.name]
        for field in dataclasses.fields(Config)
        if field.name not in _PLACES
        and settings.get(field.name, field.default) != field.default
    }
    if not changed:
        return ["\n## Settings\n", "All are tfnet's defaults."]
    text = "All are tfnet's defaults but these:\n"
    return ["\n## Settings\n", text, *_table(("", ""), changed.items())]


def _figures(record: Mapping[str, Any]) -> list[str]:
    lines = ["\n## Figures\n"]
    if "test_accuracy" not in record:
        return [*lines, "It was not evaluated."]
    return [
        *lines,
        f"After {record['steps']:,} steps: test accuracy"
        f" {record['test_accuracy']:.1%}, test loss"
        f" {record['test_loss']:.4f}, on {record['dataset']['test']:,} images.",
    ]


def _classes(record: Mapping[str, Any]) -> list[str]:
    accuracy = record.get("class_accuracy", {})
    rows = []
    for number, name in enumerate(record["dataset"]["classes"]):
        value = accuracy.get(name)
        rows.append((number, name, "" if value is None else f"{value:.1%}"))
    return [
        "\n## Classes\n",
        *_table(("number", "name", "test accuracy"), rows),
    ]


def _format(
    kind: Format, comparison: Comparison, texts: Mapping[str, Any]
) -> list[str]:
    def filled(text: str) -> str:
        return string.Template(text).substitute(texts)

    return [
        f"\n### `{kind.file}`: {kind.summary}\n",
        f"* Takes {filled(kind.takes)}.",
        f"* Gives {filled(kind.gives)}.",
        f"* Loaded back, it classifies {comparison.accuracy:.1%} of"
        f" {comparison.images:,} images right, the trained model"
        f" {comparison.reference_accuracy:.1%}; their logits differ by"
        f" {comparison.max_difference:.2g} at most.",
        f"\n```python\n{filled(kind.example)}```",
    ]


def _table(header: tuple[str, ...], rows: Any) -> list[str]:
    return [
        _row(header),
        "|---" * len(header) + "|",
        *(_row(row) for row in rows),
    ]


def _row(cells: Any) -> str:
    # A name may hold what ends a cell or a line.
    texts = [
        " ".join(on_one_line(str(one)).split()).replace("|", "\\|")
        for one in cells
    ]
    return f"| {' | '.join(texts)} |"
