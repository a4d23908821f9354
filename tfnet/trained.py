"""A run that has trained: its settings, history, model, and what they say."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tfnet import arguments, parts
from tfnet.config import Config
from tfnet.data.scaling import Scaling
from tfnet.errors import (
    ConfigError,
    DataError,
    Error,
    RunError,
    counted,
    reason_of,
    remedy_of,
)
from tfnet.flagfile import read_flagfile
from tfnet.runs import checkpoints
from tfnet.runs.directory import (
    CHECKPOINTS,
    METRICS_FILE,
    holds_a_run,
    read_record,
)
from tfnet.runs.metrics import read_rows
from tfnet.texts import on_one_line

if TYPE_CHECKING:
    from tfnet.data import Dataset, Examples
    from tfnet.exports import Comparison
    from tfnet.scores import Scores

_MOST_COMPARED = 10_000
_MOST_CALIBRATION = 256


class Run:
    """A run: what `tfnet.run` returns, or what a run directory holds.

    Attributes:
      record: What `run.json` holds.
      directory: The run directory; None after a dry run.
      config: The settings.
      checkpoint: The name of the one that `model` was read from; None: it was
        not read yet.
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
        self.checkpoint: str | None = None

    @classmethod
    def open(cls, directory: str | Path, *, flag: str | None = None) -> Self:
        """Opens a run directory; reads settings and record, nothing else.

        Args:
          directory: What a run has left, or one that is still running.
          flag: The flag that names it, for messages; None: none does.

        Raises:
          ConfigError: It holds no run, or one whose files can't be read.
        """
        path = arguments.place("directory", directory)
        where = f"{flag} ({directory})" if flag else str(directory)
        if not path.is_dir() or not holds_a_run(path):
            raise ConfigError(
                f"{where} must be a directory that holds a run; name another"
                " one."
            )
        try:
            record = read_record(path)
            _ = record["dataset"]["classes"]
            _ = Scaling.read(record.get("scaling"))
            config = read_flagfile(path / "config.flags")
        except OSError as error:
            raise ConfigError(
                f"{where} holds a run that can't be read: {error.filename}:"
                f" {reason_of(error)}; {remedy_of(error)}, or name another run."
            ) from error
        except ConfigError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{where} holds a run whose run.json is damaged; bring back a"
                " good one, go on with the run, which writes it anew, or name"
                " another."
            ) from error
        if config.normalize != "seed" and record.get("scaling") is None:
            raise ConfigError(
                f"{where} holds a run whose run.json lacks what"
                f" --normalize={config.normalize} found; it is damaged: bring"
                " back a good one, or name another run."
            )
        return cls(config=config, record=record, directory=path)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of each class, in the order of the logits."""
        return tuple(self.record["dataset"]["classes"])

    @property
    def scaling(self) -> Scaling:
        """What is done to pixels before `model`: `--normalize` of the run.

        By its own training images, whatever the model is given now.
        """
        return Scaling.read(self.record.get("scaling"))

    @property
    def dataset(self) -> "Dataset":
        """The data it was trained and evaluated on.

        Raises:
          DataError: They can't be had any more.
        """
        if self._dataset is None:
            self._dataset = self.open_dataset()
        return self._dataset

    def open_dataset(
        self,
        dataset: str | Path | None = None,
        data_dir: str | Path | None = None,
        cache_dir: str | Path | None = None,
    ) -> "Dataset":
        """Opens the data of the run, or others with the same classes.

        Args:
          dataset: See `Config.dataset`; None: that of the run.
          data_dir: See `Config.data_dir`; None: that of the run.
          cache_dir: See `Config.cache_dir`; None: that of the run.

        Raises:
          ConfigError: That is no name and no place.
          DataError: They can't be had, or have other classes.
        """
        changes = arguments.texts(
            {"dataset": dataset, "data_dir": data_dir, "cache_dir": cache_dir}
        )
        parts.start_without_training()
        from tfnet.data.holdout import UselessFractionError

        config = dataclasses.replace(self.config, **changes)
        try:
            found = parts.open_dataset(config, tell=_tell)
        except UselessFractionError:
            if dataset is None:
                raise
            # That of the run was for its own data.
            config = dataclasses.replace(config, test_fraction=None)
            found = parts.open_dataset(config, tell=_tell)
        self._check_classes(found)
        return found

    def _data(self, dataset: "Dataset | str | Path | None") -> "Dataset":
        """Returns the data that a program names or gives; None: the run's."""
        if dataset is None:
            return self.dataset
        if isinstance(dataset, str | Path):
            return self.open_dataset(dataset)
        from tfnet.data import Dataset

        arguments.check(
            "dataset",
            dataset,
            Dataset,
            "what --dataset takes, such as 'photos', or what open_dataset"
            " returns",
        )
        self._check_classes(dataset)
        height, width, _ = dataset.image_shape
        size = self.config.image_size
        if (height, width) != (size, size):
            raise DataError(
                f"dataset ({dataset.name}) must have images of the run's"
                f" --image_size ({size}); they are {height} x {width}."
                " open_dataset brings them to it."
            )
        return dataset

    def _check_classes(self, dataset: "Dataset") -> None:
        if dataset.class_names != self.class_names:
            raise DataError(
                f"--dataset ({dataset.name}) must have the classes of the run:"
                f" {_some(self.class_names)}; it has"
                f" {_some(dataset.class_names)}."
            )

    @functools.cached_property
    def history(self) -> list[dict[str, Any]]:
        """The rows of metrics.csv: numbers, None where a row has none.

        Raises:
          ConfigError: The file can't be read, or is damaged.
        """
        if self.directory is None:
            return []
        return read_rows(self.directory / METRICS_FILE)

    @property
    def model(self) -> Any:
        """The trained model, an ordinary Keras model.

        From float32 images [batch, height, width, 3], (x / 255 -
        scaling.mean) / scaling.std of pixels x, to logits [batch, classes];
        with --ema, with the averaged weights.

        Raises:
          ConfigError: There is no good checkpoint to read it from, or it is of
            another model.
        """
        if self._model is None:
            self._model = self._read_model()
        return self._model

    def predict(self, images: np.ndarray) -> np.ndarray:
        """Returns the probability of each class for images.

        Args:
          images: uint8, from 0 to 255, [n, height, width, 3], or, grey, [n,
            height, width, 1] or [n, height, width], of any size.

        Returns:
          float [n, classes], each row of sum 1.

        Raises:
          DataError: They are not like that; the text says how to make them so.
        """
        parts.start_without_training()
        from tfnet.data import Examples
        from tfnet.data.given_images import as_images, refuse_one_image
        from tfnet.data.images import resize
        from tfnet.scores import softmax

        refuse_one_image(images, "images")
        images = as_images(images, "images")
        resized = resize(images, self.config.image_size).numpy()
        labels = np.zeros(len(resized), np.int32)
        return softmax(self.logits(Examples(resized, labels)))

    def evaluate(
        self, dataset: "Dataset | str | Path | None" = None
    ) -> "Scores":
        """Returns how good the model is on test examples.

        Args:
          dataset: Its test examples are taken: what `open_dataset` takes or
            returns; None: those of the run.

        Raises:
          ConfigError: That is no name and no place.
          DataError: It can't be had, or has other classes than the run, or
            images of another size.
        """
        from tfnet.scores import score

        dataset = self._data(dataset)
        logits = self.logits(dataset.test)
        return score(dataset.test.labels, logits, self.class_names)

    def export(
        self,
        formats: str | Sequence[str],
        directory: str | Path | None = None,
        *,
        dataset: "Dataset | str | Path | None" = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> dict[str, "Comparison"]:
        """Exports the model; each file is loaded back and compared.

        A model card, README.md, is written beside what was exported.

        Args:
          formats: Names of `exports.FORMATS`, in a row or as one text with
            commas between.
          directory: Where to write; None: export/ in the run directory.
          dataset: Whose test images to compare on, the first 10,000 at most:
            what `open_dataset` takes or returns; None: that of the run.
          tell: Is given a line for each format.

        Returns:
          How each compares with the model, by its format.

        Raises:
          ConfigError: There is no such format, or one is there twice; there
            is no directory, or it holds files that tfnet did not export; an
            argument is not of its kind.
          DataError: The data can't be had, or do not fit.
          RunError: Some could not be had; all others were written.
        """
        from tfnet import exports
        from tfnet.exports.card import CARD, check_place, write_card

        formats = exports.chosen(formats)
        arguments.check_function("tell", tell)
        place = self._place(directory, "export")
        usual = [exports.FORMATS[name].file for name in formats]
        # What a killed export has left in export/ has no card yet.
        check_place(place, usual if directory is not None else ())
        dataset = self._data(dataset)
        images, labels = dataset.test.first(_MOST_COMPARED)
        calibration, _ = dataset.train.first(_MOST_CALIBRATION)
        done: dict[str, Comparison] = {}
        failed = []
        for name in formats:
            try:
                done[name] = exports.export(
                    name,
                    place / exports.FORMATS[name].file,
                    self.model,
                    self.class_names,
                    scaling=self.scaling,
                    image_size=self.config.image_size,
                    examples=images,
                    labels=labels,
                    calibration=calibration,
                )
            except OSError as error:
                failed.append(
                    f"{name}: {place} can't be written: {reason_of(error)};"
                    f" {remedy_of(error)}, or name another place"
                )
            except Error as error:
                failed.append(f"{name}: {error}")
            else:
                tell(_compared(place / exports.FORMATS[name].file, done[name]))
        if done:
            write_card(place / CARD, self.record, done)
            tell(f"{place / CARD} says how to use them")
        if failed:
            raise RunError(f"not exported: {'; '.join(failed)}")
        return done

    def report(self, directory: str | Path | None = None) -> Path:
        """Writes report.html, one page of pictures, and each as a PNG.

        Args:
          directory: The directory to make, or that of an earlier report;
            None: report/ in the run directory.

        Returns:
          The directory.

        Raises:
          ConfigError: No directory is given, and the run has none.
          DataError: The data can't be had.
          OSError: It could not be written; what was there is unchanged.
        """
        from tfnet.report.facts import Facts
        from tfnet.report.write import write_report
        from tfnet.scores import softmax

        place = self._place(directory, "report")
        test = self.dataset.test
        record = dict(self.record)
        if record.get("exit_reason") == "running" and "test_loss" in record:
            # The run that draws its own report has only that left to do.
            del record["exit_reason"]
        facts = Facts(
            record=record,
            history=self.history,
            class_names=self.class_names,
            labels=test.labels,
            probabilities=softmax(self.logits(test)).astype(np.float32),
            images=lambda indices: test.take(indices)[0],
            filters=_first_filters(self.model),
            augmented=parts.augmented_examples(
                self.config, self.dataset, self.scaling
            ),
            defaults={
                field.name: field.default
                for field in dataclasses.fields(Config)
            },
        )
        write_report(place, facts)
        return place

    def _place(self, directory: str | Path | None, name: str) -> Path:
        if directory is not None:
            return arguments.place("directory", directory)
        if self.directory is None:
            raise ConfigError("a dry run has no directory to write to.")
        return self.directory / name

    def logits(self, examples: "Examples") -> np.ndarray:
        """Returns what the model gives for examples of the run's image size.

        Args:
          examples: The images; their labels are not looked at.

        Returns:
          float [n, classes].

        Raises:
          ConfigError: They are no `Examples`.
        """
        from tfnet.data import Examples

        arguments.check(
            "examples",
            examples,
            Examples,
            "tfnet.data.Examples, such as dataset.test; `predict` takes images",
        )
        from tfnet.models.logits import compute_logits
        from tfnet.models.precision import computing_in

        with computing_in(self.config.precision):
            return compute_logits(self.model, examples, self.scaling)

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
        self.checkpoint = found.name
        return model


def _tell(text: str) -> None:
    print(on_one_line(text), file=sys.stderr, flush=True)


def _first_filters(model: Any) -> np.ndarray | None:
    """Returns the kernel of the first layer of weights, if it looks at colours.

    Returns:
      float32 [height, width, 3, filters].
    """
    for weight in model.trainable_variables[:1]:
        if len(weight.shape) == 4 and weight.shape[2] == 3:
            return weight.numpy().astype(np.float32)
    return None


def _compared(path: Path, comparison: "Comparison") -> str:
    difference = comparison.accuracy - comparison.reference_accuracy
    return (
        f"{path}: {_size(path) / 2**10:,.0f} KiB, accuracy"
        f" {comparison.accuracy:.2%} on"
        f" {counted(comparison.images, 'test image')}"
        f" ({difference * 100:+.2f} points), logits within"
        f" {comparison.max_difference:.2g}"
    )


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"
