"""The page of a report: one file that asks for nothing else.

Pictures are data URIs and the style is inside. A policy in the head forbids
the browser any request, whatever a name on the page may hold.
"""

import base64
import html
import importlib.resources
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfnet.report import figures, style
from tfnet.report.curves import time_unit
from tfnet.report.examples import percent
from tfnet.report.names import is_drawable
from tfnet.report.story import Chapter, Picture, Study
from tfnet.texts import on_one_line

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render_page(study: Study, chapters: Sequence[Chapter]) -> bytes:
    """Returns the HTML of a report, in UTF-8.

    Args:
      study: What the report is about.
      chapters: Its pictures.
    """
    css = importlib.resources.files(__package__).joinpath("page.css")
    body = [
        *_header(study, chapters),
        "<main>",
        *(part for chapter in chapters for part in _chapter(chapter)),
        *_settings(study),
        *_versions(study),
        "</main>",
    ]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # Or a browser may ask a server for one.
        '<link rel="icon" href="data:,">',
        f"<title>{_text(_title(study))}</title>",
        f"<style>\n{css.read_text(encoding='utf-8')}</style>",
        "</head>",
        "<body>",
        *body,
        "</body>",
        "</html>",
    ]
    return ("\n".join(parts) + "\n").encode()


def _title(study: Study) -> str:
    record = study.facts.record
    model = record.get("settings", {}).get("model", "model")
    data = record.get("dataset", {}).get("name", "test data")
    return f"{model} on {data}: {percent(study.accuracy)}"


def _header(study: Study, chapters: Sequence[Chapter]) -> list[str]:
    count = len(study.facts.labels)
    classes = len(study.facts.class_names)
    return [
        "<header>",
        f"<h1>{_text(_title(study))}</h1>",
        f'<p class="soft">of {count:,} test image{"s" if count > 1 else ""} in'
        f" {classes:,} classes recognised.</p>",
        "<nav>",
        *(
            f'<a href="#{_anchor(chapter.title)}">{_text(chapter.title)}</a>'
            for chapter in chapters
        ),
        '<a href="#settings">Settings</a>',
        "</nav>",
        "</header>",
        *_figures(study),
        *_notes(study),
        '<div class="card">',
        *_table(_run_rows(study)),
        "</div>",
    ]


def _figures(study: Study) -> list[str]:
    labels, probabilities = study.facts.labels, study.facts.probabilities
    loss = figures.mean_loss(labels, probabilities)
    rows = [
        ("Test accuracy", percent(study.accuracy)),
        ("Test loss (nats)", f"{loss:.3f}"),
    ]
    # With five classes or fewer, all are among the best five.
    if len(study.facts.class_names) > 5:
        top_5 = figures.top_k_accuracy(labels, probabilities, 5)
        rows.append(("Top-5 accuracy", percent(top_5)))
    rows.append(("Calibration error", percent(study.bins.error)))
    return [
        '<dl class="figures">',
        *(f"<div><dt>{name}</dt><dd>{_text(v)}</dd></div>" for name, v in rows),
        "</dl>",
    ]


def _notes(study: Study) -> list[str]:
    record = study.facts.record
    notes = list(record.get("notes", ()))
    reason = record.get("exit_reason", "finished")
    if reason != "finished":
        notes.append(f"the run did not finish: {reason}")
    recorded = record.get("test_accuracy")
    if recorded is not None and abs(recorded - study.accuracy) > 5e-5:
        notes.append(
            f"run.json has a test accuracy of {percent(recorded)}; the figures"
            " and pictures here are those of the model given to the report."
        )
    lines = [_text(note) for note in notes]
    unseen = [
        f"<code>class {i}</code> is <bdi>{_text(name) or '(empty)'}</bdi>"
        for i, name in enumerate(study.facts.class_names)
        if not is_drawable(name)
    ]
    if unseen:
        lines.append(
            "The font of the pictures lacks characters of some names. There, "
            + ", ".join(unseen)
            + "."
        )
    return [f'<p class="note">{line}</p>' for line in lines]


def _run_rows(study: Study) -> list[tuple[str, str]]:
    """Returns what the run was, as far as the record says."""
    record = study.facts.record
    data = record.get("dataset", {})
    settings = record.get("settings", {})
    rows = []

    def add(label: str, template: str, values: Mapping[str, Any]) -> None:
        if all(values.get(key) is not None for key in _fields(template)):
            rows.append((label, template.format_map(values)))

    add("Data set", "{name}, {train:,} training and {test:,} test images", data)
    add("Read from", "{origin}", data)
    add("Model", "{model}, in {precision}", settings)
    if settings.get("normalize", "seed") != "seed":
        rows += _scaling(record)
    add("Parameters", "{parameters:,}", record)
    if "devices" in record:
        rows.append(("Devices", ", ".join(map(str, record["devices"]))))
    add("Replicas", "{replicas}", record)
    add("Batch", "{batch_size:,} images", record)
    add("Steps", "{steps:,} of {total_steps:,}", record)
    add("Speed", "{images_per_second:,.0f} images/s", record)
    if record.get("seconds") is not None:
        rows.append(("Time", _duration(record["seconds"])))
    add(
        "Best", "{test_accuracy:.1%} in epoch {epoch}", record.get("best") or {}
    )
    return rows


def _scaling(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns what pixels were scaled by: red, green and blue."""
    return [
        (
            f"{label} of the training images",
            ", ".join(f"{number:.4f}" for number in record["scaling"][name]),
        )
        for label, name in (("Mean", "mean"), ("Deviation", "std"))
    ]


def _fields(template: str) -> list[str]:
    return re.findall(r"{(\w+)", template)


def _duration(seconds: float) -> str:
    unit, length = time_unit(seconds)
    return f"{seconds / length:,.1f} {unit}"


def _chapter(chapter: Chapter) -> list[str]:
    return [
        f'<section id="{_anchor(chapter.title)}">',
        f"<h2>{_text(chapter.title)}</h2>",
        '<div class="cards">',
        *(part for picture in chapter.pictures for part in _card(picture)),
        "</div>",
        "</section>",
    ]


def _card(picture: Picture) -> list[str]:
    width, height = picture.size
    # A picture that is wider than half the page has a row of its own.
    wide = " wide" if width > style.HALF + 100 else ""
    words = [
        f"<h3>{_text(picture.title)}</h3>",
        f"<p>{_text(picture.words)}</p>",
    ]
    if picture.png is None:
        return ['<div class="card">', *words, "</div>"]
    data = base64.b64encode(picture.png).decode()
    # On a narrow screen it scrolls rather than shrink until nobody can read.
    least = round(width * 0.8)
    return [
        f'<figure class="card{wide}">',
        "<figcaption>",
        *words,
        "</figcaption>",
        '<div class="picture" tabindex="0">',
        f'<img src="data:image/png;base64,{data}" alt="{_text(picture.alt)}"'
        f' width="{width}" height="{height}" style="min-width: {least}px">',
        "</div>",
        "</figure>",
    ]


def _settings(study: Study) -> list[str]:
    settings, defaults = (
        study.facts.record.get("settings", {}),
        study.facts.defaults,
    )
    differ = [
        (name, value)
        for name, value in settings.items()
        if name not in defaults or defaults[name] != value
    ]
    words = (
        "Every setting is at its default."
        if not differ
        else "What differs from the defaults."
        if defaults
        else "All of them."
    )
    rows = [(f"--{name}", _value(value)) for name, value in differ]
    return [
        '<section id="settings">',
        "<h2>Settings</h2>",
        '<div class="card">',
        f"<p>{words}</p>",
        *_table(rows),
        "</div>",
        "</section>",
    ]


def _versions(study: Study) -> list[str]:
    versions = study.facts.record.get("versions", {})
    if not versions:
        return []
    return [
        "<section>",
        "<h2>Versions</h2>",
        '<div class="card">',
        *_table(versions.items()),
        "</div>",
        "</section>",
    ]


def _value(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _table(rows: Iterable[tuple[str, Any]]) -> list[str]:
    lines = [
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(value)}</td></tr>'
        for name, value in rows
    ]
    return (
        ["<table>", "<tbody>", *lines, "</tbody>", "</table>"] if lines else []
    )


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _text(value: Any) -> str:
    """Returns a text for HTML, in an attribute too.

    What is no character of a page is written as Python writes it.
    """
    return html.escape(on_one_line(str(value)))
