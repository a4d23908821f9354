"""A run that has trained: its settings, history, model, and what they say."""

import csv
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tfnet import parts
from tfnet.config import Config
from tfnet.errors import ConfigError, DataError, reason_of
from tfnet.runs import checkpoints
from tfnet.runs.directory import (
    CHECKPOINTS,
    METRICS_FILE,
    holds_a_run,
    read_record,
)

if TYPE_CHECKING:
    from tfnet.data import Dataset, Examples
    from tfnet.scores import Scores

_WHOLE_NUMBERS = ("epoch", "step")


class Run:
    """A run: what `tfnet.run` returns, or what a run directory holds.

    Attributes:
      record: What `run.json` holds.
      directory: The run directory; None after a dry run.
      config: The settings.
    """

    def __init__(
        self,
        *,
        config: Config,
        record: Mapping[str, Any],
        directory: Path | None,
        model: Any = None,
        dataset: "Dataset | None" = None,
    ) -> None:
        """Takes what is known; `open` finds it in a directory.

        Args:
          config: The settings.
          record: What `run.json` holds.
          directory: The run directory; None: there is none.
          model: The trained model; None: `model` reads it from a checkpoint.
          dataset: Its data; None: `dataset` opens them by the settings.
        """
        self.config = config
        self.record = record
        self.directory = directory
        self._model = model
        self._dataset = dataset
        self._checkpoint: str | None = None

    @classmethod
    def open(cls, directory: str | Path) -> Self:
        """Opens a run directory; reads settings and record, nothing else.

        Args:
          directory: What a run has left, or one that is still running.

        Raises:
          ConfigError: It holds no run, or one whose files can't be read.
        """
        path = Path(directory).expanduser().absolute()
        where = f"--run_dir ({directory})"
        if not path.is_dir() or not holds_a_run(path):
            raise ConfigError(f"{where} must be a directory that holds a run.")
        try:
            record = read_record(path)
            flags = (path / "config.flags").read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{where} holds a run that can't be read: {error.filename}:"
                f" {reason_of(error)}."
            ) from error
        except ValueError as error:
            raise ConfigError(
                f"{where} holds a run whose run.json or config.flags is"
                " damaged."
            ) from error
        settings = [line for line in flags.splitlines() if line[:2] == "--"]
        return cls(
            config=Config.from_flags(settings), record=record, directory=path
        )

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of each class, in the order of the logits."""
        return tuple(self.record["dataset"]["classes"])

    @property
    def dataset(self) -> "Dataset":
        """The data it was trained and evaluated on.

        Raises:
          DataError: They can't be had any more.
        """
        if self._dataset is None:
            parts.start_without_training()
            self._dataset = parts.open_dataset(self.config)
        return self._dataset

    @functools.cached_property
    def history(self) -> list[dict[str, Any]]:
        """The rows of metrics.csv: numbers, None where a row has none.

        Raises:
          ConfigError: The file can't be read.
        """
        if self.directory is None:
            return []
        path = self.directory / METRICS_FILE
        try:
            with open(path, newline="", encoding="utf-8") as file:
                return [_numbers(row) for row in csv.DictReader(file)]
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} can't be read: {error}.") from error

    @property
    def model(self) -> Any:
        """The trained model, an ordinary Keras model.

        From float32 images [batch, height, width, 3] scaled to [-1, 1] to
        logits [batch, classes]; with --ema, with the averaged weights.

        Raises:
          ConfigError: There is no good checkpoint to read it from, or it is of
            another model.
        """
        if self._model is None:
            self._model = self._read_model()
        return self._model

    @property
    def checkpoint(self) -> str | None:
        """The name of the checkpoint of `model`; None: it was not read."""
        return self.model and self._checkpoint

    def predict(self, images: np.ndarray) -> np.ndarray:
        """Returns the probability of each class for images.

        Args:
          images: uint8 [n, height, width, 3], of any size.

        Returns:
          float [n, classes], each row of sum 1.
        """
        from tfnet.data import Examples

        parts.start_without_training()
        from tfnet.data.images import resize
        from tfnet.scores import softmax

        resized = resize(images, self.config.image_size).numpy()
        labels = np.zeros(len(resized), np.int32)
        return softmax(self.logits(Examples(resized, labels)))

    def evaluate(self, dataset: "Dataset | None" = None) -> "Scores":
        """Returns how good the model is on test examples.

        Args:
          dataset: Its test examples are taken; None: those of the run.

        Raises:
          DataError: It has other classes than the run.
        """
        from tfnet.scores import score

        dataset = self.dataset if dataset is None else dataset
        if dataset.class_names != self.class_names:
            raise DataError(
                f"--dataset ({dataset.name}) must have the classes of the run:"
                f" {_some(self.class_names)}; it has"
                f" {_some(dataset.class_names)}."
            )
        logits = self.logits(dataset.test)
        return score(dataset.test.labels, logits, self.class_names)

    def logits(self, examples: "Examples") -> np.ndarray:
        """Returns what the model gives for examples of the run's image size.

        Args:
          examples: The images; their labels are not looked at.

        Returns:
          float [n, classes].
        """
        from tfnet.models.logits import compute_logits
        from tfnet.models.precision import computing_in

        with computing_in(self.config.precision):
            return compute_logits(self.model, examples)

    def _read_model(self) -> Any:
        assert self.directory is not None
        parts.start_without_training()
        from tfnet.models.precision import computing_in

        found = checkpoints.newest(
            self.directory / CHECKPOINTS, self.record.get("id")
        )
        where = f"--run_dir ({self.directory})"
        if found.checkpoint is None:
            passed_over = "; ".join(["", *found.passed_over])
            raise ConfigError(
                f"{where} has no checkpoint to read the model from"
                f"{passed_over}."
            )
        with computing_in(self.config.precision):
            model = parts.build_model(self.config, len(self.class_names))
        from tfnet.training.state import set_trained_weights

        try:
            set_trained_weights(model, found.checkpoint.arrays)
        except ValueError as error:
            raise ConfigError(
                f"{where} holds a run of another --model: of {found.name},"
                f" {error}. Bring back the code it was made with."
            ) from error
        self._checkpoint = found.name
        return model


def _numbers(row: Mapping[str, str]) -> dict[str, Any]:
    def number(name: str, text: str) -> Any:
        if text == "" or name == "split":
            return text or None
        return int(text) if name in _WHOLE_NUMBERS else float(text)

    return {name: number(name, text) for name, text in row.items()}


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"
