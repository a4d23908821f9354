"""Predict: `python -m tfnet.predict MODEL IMAGES...`.

Needs the SavedModel alone: no code of the model, no data set, no tfnet inside.
"""

import contextlib
import csv
import dataclasses
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np

from tfnet import arguments, command_line
from tfnet.config import Config
from tfnet.data.kinds import why_no_image
from tfnet.errors import ConfigError, RunError, reason_of
from tfnet.image_names import find_images
from tfnet.settings import Settings, same_setting, setting
from tfnet.texts import on_one_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictSettings(Settings):
    """The settings of the command."""

    model_and_images: tuple[str, ...] = setting(
        (),
        "First a run directory, or a saved_model directory; then images: files,"
        " folders (every image below them), patterns such as 'img/*.png', or -"
        " for names on the standard input, one a line. A file whose name begins"
        " with a - is written ./-name.",
        kind=tuple,
    )
    top_k: int = setting(
        1,
        "How many classes to name for each image, the most probable first.",
        kind=int,
        minimum=1,
    )
    json: bool = setting(
        False, "Print one JSON object for each image, on a line.", kind=bool
    )
    csv: bool = setting(False, "Print a CSV table.", kind=bool)
    batch_size: int = setting(
        256, "Images in one call of the model.", kind=int, minimum=1
    )
    verbosity: int = same_setting(Config, "verbosity")

    def __post_init__(self) -> None:
        """Checks every field, then what fields say together."""
        super().__post_init__()
        if len(self.model_and_images) < 2:
            raise ConfigError(
                "a model and images must be given; for example: python -m"
                " tfnet.predict runs/first frog.jpg."
            )
        if self.json and self.csv:
            raise ConfigError("--json and --csv exclude each other.")


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a model says about one image.

    Attributes:
      file: The name of the file, as it was given or found.
      classes: Class names, the most probable first.
      probabilities: Theirs, in [0, 1].
    """

    file: str
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]


def predict(settings: PredictSettings) -> None:
    """Prints what a model says about images.

    Args:
      settings: The settings.

    Raises:
      ConfigError: There is no such model, or no name on standard input.
      RunError: Some files are no images; all others were printed.
    """
    model, *images = settings.model_and_images
    place = find_saved_model(model)
    files, missing = find_images(images)
    header, line = _form(settings)
    unreadable = list(missing)
    with _Screen(len(files)) as screen:
        screen.results(header)
        screen.complaints(missing)
        for found, failed in predictions(
            place, files, top_k=settings.top_k, batch_size=settings.batch_size
        ):
            screen.results([line(one) for one in found])
            screen.complaints(failed)
            unreadable += failed
            screen.advance(len(found) + len(failed))
    if unreadable:
        raise RunError(
            f"{len(unreadable):,} of {len(files) + len(missing):,} could not"
            " be read; they are named above."
        )


def find_saved_model(place: str) -> Path:
    """Returns the saved_model directory that a place is or holds.

    Raises:
      ConfigError: It is none and holds none.
    """
    arguments.check_home("the model", place)
    path = Path(place).expanduser()
    for one in (path, path / "saved_model"):
        if (one / "saved_model.pb").is_file():
            return one
    raise ConfigError(
        f"{place} must be a run directory with a saved_model/ in it, or a"
        " saved_model directory; it is neither."
    )


def predictions(
    saved_model: Path, files: Sequence[str], *, top_k: int, batch_size: int
) -> Iterator[tuple[list[Prediction], list[tuple[str, str]]]]:
    """Reads images and gives what a model says about them, batch by batch.

    Args:
      saved_model: A directory that tfnet exported.
      files: The images.
      top_k: How many classes to name for each.
      batch_size: Images in one call of the model.

    Yields:
      The predictions, in the order of the files, and for each file that is no
      image its name and why.
    """
    model = _Model(saved_model)
    starts = range(0, len(files), batch_size)
    batches = [files[start : start + batch_size] for start in starts]
    with ThreadPoolExecutor(1) as reader:
        # Files are read while the model works on those before.
        ahead = reader.submit(_read, batches[0] if batches else ())
        for following in [*batches[1:], ()]:
            contents, failed = ahead.result()
            ahead = reader.submit(_read, following)
            found, no_images = model.predict(contents, top_k)
            yield found, failed + no_images


def _read(
    files: Sequence[str],
) -> tuple[list[tuple[str, bytes]], list[tuple[str, str]]]:
    contents, failed = [], []
    for name in files:
        try:
            contents.append((name, Path(name).read_bytes()))
        except OSError as error:
            failed.append((name, reason_of(error)))
        except ValueError as error:
            # A name with a zero byte.
            failed.append((name, str(error)))
    return contents, failed


class _Model:
    """A SavedModel that tfnet exported."""

    def __init__(self, path: Path) -> None:
        from tfnet.devices.runtime import prepare_process

        prepare_process(verbose=False)
        import tensorflow as tf

        from tfnet.devices.start import start_without_strategy

        start_without_strategy()
        try:
            # Of a damaged one, `load` prints a traceback, and goes on.
            with contextlib.suppress(FileNotFoundError):
                tf.saved_model.experimental.read_fingerprint(str(path))
            self._loaded = tf.saved_model.load(str(path))
            self._function = self._loaded.signatures["encoded"]
            about = self._loaded.signatures["about"]()
        except MemoryError:
            raise
        except Exception as error:
            # What TensorFlow raises depends on where a file is damaged.
            raise ConfigError(
                f"{path} is no model that this tfnet exported, or is damaged;"
                " export it again."
            ) from error
        self._names = [
            name.decode(errors="backslashreplace")
            for name in about["class_names"].numpy()
        ]

    def predict(
        self, contents: Sequence[tuple[str, bytes]], top_k: int
    ) -> tuple[list[Prediction], list[tuple[str, str]]]:
        import tensorflow as tf

        if not contents:
            return [], []
        try:
            encoded = tf.constant([data for _, data in contents])
            found = self._function(encoded=encoded)["probabilities"].numpy()
        except tf.errors.OpError:
            if len(contents) == 1:
                name, data = contents[0]
                return [], [(name, "; ".join(filter(None, why_no_image(data))))]
            # TensorFlow does not say which one it was.
            alone = [self.predict([one], top_k) for one in contents]
            return (
                [one for found, _ in alone for one in found],
                [one for _, failed in alone for one in failed],
            )
        return [
            self._prediction(name, row, top_k)
            for (name, _), row in zip(contents, found, strict=True)
        ], []

    def _prediction(
        self, name: str, probabilities: np.ndarray, top_k: int
    ) -> Prediction:
        best = np.argsort(-probabilities, kind="stable")[:top_k]
        return Prediction(
            name,
            tuple(self._names[i] for i in best),
            tuple(float(probabilities[i]) for i in best),
        )


def _form(
    settings: PredictSettings,
) -> tuple[list[str], Callable[[Prediction], str]]:
    """Returns what stands first, and what makes a prediction a text."""
    if settings.json:
        return [], lambda one: json.dumps(dataclasses.asdict(one))
    if settings.csv:
        return [_csv([["file", "class", "probability"]])], lambda one: _csv(
            [one.file, *pair]
            for pair in zip(one.classes, one.probabilities, strict=True)
        )
    return (
        [],
        lambda one: (
            f"{on_one_line(one.file)}: "
            + ", ".join(
                f"{on_one_line(name)} {probability:.1%}"
                for name, probability in zip(
                    one.classes, one.probabilities, strict=True
                )
            )
        ),
    )


def _csv(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().removesuffix("\n")


class _Screen:
    """Prints results, complaints and, on a terminal, a bar below them.

    Results go to standard output, the others to standard error. Where both are
    one terminal, the bar prints all of them, and moves out of their way.
    """

    def __init__(self, total: int) -> None:
        self._bar: Any = None
        self._task: Any = None
        if sys.stderr.isatty():
            self._bar = _bar()
            self._task = self._bar.add_task("images", total=total)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def results(self, lines: Sequence[str]) -> None:
        self._print(lines, sys.stdout)

    def complaints(self, failed: Sequence[tuple[str, str]]) -> None:
        self._print(
            [
                f"tfnet.predict: {on_one_line(name)}: {why}"
                for name, why in failed
            ],
            sys.stderr,
        )

    def advance(self, images: int) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, images)

    def _print(self, lines: Sequence[str], stream: TextIO) -> None:
        if not lines:
            return
        text = "\n".join(lines)
        if self._bar is not None and _is_on_one_terminal(stream, sys.stderr):
            # Not rich's own print: it wraps, colours and reads markup.
            self._bar.console.out(text, highlight=False)
        else:
            print(text, file=stream)


def _is_on_one_terminal(one: TextIO, other: TextIO) -> bool:
    return one.isatty() and os.path.sameopenfile(one.fileno(), other.fileno())


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    return Progress(
        *Progress.get_default_columns(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
        # Else rich prints on the terminal what is meant for a file.
        redirect_stdout=False,
        redirect_stderr=False,
    )


if __name__ == "__main__":
    command_line.main(
        "tfnet.predict",
        "Say what a trained model sees in images.",
        predict,
        PredictSettings,
    )
