"""What TensorBoard is shown of a run: numbers, pictures, settings, graph.

`runs.events` writes it; here a `Config` is unpacked and pictures are drawn.
Nothing is written where --tensorboard is off.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfnet import parts
from tfnet.config import Config
from tfnet.errors import one_line, reason_of
from tfnet.runs.events import FOLDER, Events
from tfnet.runs.metrics import Metrics

if TYPE_CHECKING:
    from tfnet.data import Dataset
    from tfnet.data.scaling import Scaling
    from tfnet.training import Evaluation

# What runs are compared by, besides the settings that make another run.
_COMPARED = ("dataset", "epochs", "steps")


class Board:
    """Writes for TensorBoard as a run goes on; a file that fails stops none."""

    def __init__(
        self,
        config: Config,
        dataset: "Dataset",
        scaling: "Scaling",
        model: Any,
        directory: Path | None,
    ) -> None:
        """Writes nothing yet.

        Args:
          config: The settings.
          dataset: What the run trains on.
          scaling: How its pixels are scaled.
          model: What it trains.
          directory: The run directory; None: nothing is written.
        """
        self._config = config
        self._dataset = dataset
        self._scaling = scaling
        self._model = model
        self._events: Events | None = None
        self._tell: Callable[[str], None] = lambda line: None
        self._is_told = False
        self._name = "" if directory is None else directory.name
        if config.tensorboard and directory is not None:
            self._events = Events(directory / FOLDER)

    @property
    def position(self) -> dict[str, int]:
        """How far the files have come: what `go_on` needs."""
        return {} if self._events is None else self._events.position

    @property
    def missing(self) -> list[str]:
        """What could not be written, and why."""
        if self._events is None:
            return []
        self._events.write()
        failure = self._events.failure
        return [] if failure is None else [f"{FOLDER} ({reason_of(failure)})"]

    def begin(self, step: int, tell: Callable[[str], None]) -> None:
        """Writes what there is before the first step of this process.

        Args:
          step: Steps of the run done.
          tell: Is given the line of a failure.
        """
        if self._events is None:
            return
        self._tell = tell
        if self._events.is_new:
            self._events.add_settings(self._name, self._compared())
            self._add_graph(self._events)
        self._events.add_text("settings", step, _table_of(self._config))
        self._check()

    def go_on(
        self,
        step: int,
        position: Mapping[str, int],
        metrics: Metrics,
        evaluated: "tuple[int, Evaluation] | None",
    ) -> None:
        """Goes on where the run does; what was written later counts no more.

        Args:
          step: Steps of the run done.
          position: What `position` was there.
          metrics: Has the rows up to there.
          evaluated: The last evaluation, behind the step it came after.
        """
        if self._events is None:
            return
        anew = self._events.go_on(step, position, metrics.rows())
        if "train" in anew:
            self._add_examples()
        if evaluated is not None:
            self.add_evaluation(*evaluated)

    def add(self, **row: Any) -> None:
        """Adds a row of metrics.csv."""
        if self._events is not None:
            self._events.add(**row)
            self._check()

    def add_evaluation(self, step: int, evaluation: "Evaluation") -> None:
        """Adds the confusion matrix of an evaluation after a step."""
        if self._events is None:
            return
        from tfnet.report.single import confusion_png

        png = confusion_png(evaluation.confusion, self._dataset.class_names)
        self._events.add_picture("test", "confusion", step, png)
        self._check()

    def add_report(self, step: int, report: Path) -> None:
        """Adds the picture of the worst mistakes, if there is one.

        Args:
          step: Steps of the run done.
          report: The directory of the report.
        """
        path = report / "worst_mistakes.png"
        if self._events is not None and path.is_file():
            png = path.read_bytes()
            self._events.add_picture("test", path.stem, step, png)
            self._check()

    def flush(self) -> None:
        """Waits until what is written is on the disk.

        Raises:
          OSError: It can't be.
        """
        if self._events is not None:
            self._events.flush()

    def _add_graph(self, events: Events) -> None:
        try:
            graph = _graph_of(self._model, self._dataset.image_shape)
        except Exception as error:
            # A user's own model may need what only the train step has.
            self._tell(
                f"note: TensorBoard gets no graph of --model"
                f" ({self._config.model}): {one_line(error)}"
            )
            return
        events.add_graph(graph)

    def _add_examples(self) -> None:
        from tfnet.report.single import examples_png

        assert self._events is not None
        images, labels, views = parts.fed_examples(
            self._config, self._dataset, self._scaling
        )
        names = self._dataset.class_names
        png = examples_png(images, labels, views, names)
        self._events.add_picture("train", "examples", 0, png)

    def _compared(self) -> dict[str, Any]:
        """Returns the settings that give the run its numbers."""
        found = {
            field.name: getattr(self._config, field.name)
            for field in dataclasses.fields(self._config)
            if not field.metadata["may_change"] or field.name in _COMPARED
        }
        found["dataset"] = self._dataset.name
        return {name: one for name, one in found.items() if one is not None}

    def _check(self) -> None:
        """Tells, once, that something can't be written."""
        assert self._events is not None
        failure = self._events.failure
        if failure is not None and not self._is_told:
            self._tell(
                f"warning: {FOLDER} can't be written ({reason_of(failure)}); it"
                " is tried again with every line of the log"
            )
        self._is_told = failure is not None


def _graph_of(model: Any, image_shape: Sequence[int]) -> bytes:
    """Returns what the model does with images: a serialised GraphDef."""
    import keras
    import tensorflow as tf

    images = tf.TensorSpec(
        [None, *image_shape], keras.config.floatx(), name="images"
    )

    @tf.function(autograph=False)
    def forward(images: Any) -> Any:
        return model(images, training=False)

    graph = forward.get_concrete_function(images).graph
    return graph.as_graph_def(add_shapes=True).SerializeToString()


def _table_of(config: Config) -> str:
    """Returns all settings as a table in Markdown; changed ones are bold."""
    lines = ["| setting | value |", "|---|---|"]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        text = "" if value is None else str(value).replace("|", "\\|")
        if value != field.default:
            text = f"**{text}**"
        lines.append(f"| {field.name} | {text} |")
    return "\n".join(lines)
