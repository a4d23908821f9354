"""The training of a run, from where it is to its end.

What happens between blocks of steps: log, save, evaluate, stop, go back. The
position of a run is a number of steps, and whether what is due after the last
of them is done; all else follows from it and the settings.
"""

import contextlib
import dataclasses
import signal
import time
from collections.abc import Mapping
from typing import Any

from tfnet import training
from tfnet.board import Board
from tfnet.config import Config, checkpoint_interval, profile_steps
from tfnet.data import Dataset
from tfnet.data.feed import paddings, steps_in_epoch
from tfnet.data.scaling import Scaling
from tfnet.devices.start import Devices
from tfnet.errors import (
    ConfigError,
    Interrupted,
    RunError,
    reason_of,
    remedy_of,
)
from tfnet.parts import create_train_function, schedule
from tfnet.runs import checkpoints
from tfnet.runs.checkpoints import Checkpoint
from tfnet.runs.directory import RunDirectory
from tfnet.runs.log import Log, NotFiniteError
from tfnet.runs.metrics import Metrics
from tfnet.runs.profiler import Profiler
from tfnet.runs.saver import Saver
from tfnet.runs.screen import Screen
from tfnet.runs.signals import StopSignals

_MOST_REWINDS = 3


@dataclasses.dataclass
class Progress:
    """How far a run has come; JSON holds all of it.

    Attributes:
      step: Steps of the run done: its position.
      is_evaluated: Whether what is due after that step is done: the line of
        an epoch, the evaluation.
      best: The best test accuracy, its epoch and its checkpoint.
      evaluations_since_best: How many were not better, one after the other.
      rewinds: What was left out because a number was not finite.
      evaluation: The last evaluation and its step, but for its confusion
        matrix.
    """

    step: int = 0
    is_evaluated: bool = False
    best: dict[str, Any] | None = None
    evaluations_since_best: int = 0
    rewinds: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    evaluation: dict[str, Any] | None = None


class Trainer:
    """Trains a model, and keeps what it reaches in checkpoints.

    Attributes:
      progress: How far it has come.
      evaluation: The last one; None before the first.
      total: How many steps the run has, unless it stops early.
      board: What TensorBoard is shown.
    """

    def __init__(
        self,
        config: Config,
        devices: Devices,
        dataset: Dataset,
        scaling: Scaling,
        state: training.TrainState,
        stop: StopSignals,
        *,
        directory: RunDirectory | None,
        facts: Mapping[str, Any],
    ) -> None:
        """Prepares the compiled programs; nothing is traced yet.

        Args:
          config: The settings.
          devices: Where to train.
          dataset: What to train and to evaluate on.
          scaling: Scales the pixels for the model.
          state: What is trained.
          stop: Says when to stop or to save.
          directory: Where to write; None: nowhere.
          facts: What every checkpoint says about its run.
        """
        self.progress = Progress()
        self.evaluation: training.Evaluation | None = None
        self._config = config
        self._devices = devices
        self._dataset = dataset
        self._state = state
        self._stop = stop
        self._directory = directory
        self._facts = facts
        self._position: Mapping[str, Any] | None = None
        self._board_position: Mapping[str, int] = {}
        self._log_state: Mapping[str, Any] | None = None
        self._metrics: Metrics | None = None
        self._screen = Screen()
        self._log = Log(self._screen, None, log_every=config.log_every)
        self._saver: Saver | None = None
        self._profiler: Profiler | None = None
        path = None if directory is None else directory.path
        self.board = Board(config, dataset, scaling, state.model, path)
        self._per_epoch = steps_in_epoch(
            len(dataset.train), config.batch_size * config.accumulate_steps
        )
        total = self._per_epoch * config.epochs
        self.total = min(total, config.steps or total)
        self._save_steps, self._save_seconds = checkpoint_interval(
            config.checkpoint_every
        )
        self._rates = schedule(config, self._per_epoch, self.total)
        self._train = create_train_function(
            config, devices, dataset, scaling, state
        )
        self._evaluate = training.create_evaluate_function(
            devices.strategy,
            state.model,
            len(dataset.class_names),
            scaling,
            lanes=devices.evaluation_lanes,
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Goes to where a checkpoint was saved.

        Raises:
          ValueError: It is of another model or optimizer.
        """
        self._state.restore(checkpoint.arrays)
        known = {field.name for field in dataclasses.fields(Progress)}
        self.progress = Progress(
            **{k: v for k, v in checkpoint.progress.items() if k in known}
        )
        self._position = checkpoint.progress["metrics"]
        # Earlier checkpoints lack it.
        self._board_position = checkpoint.progress.get("events", {})
        self._log_state = checkpoint.progress["log"]
        self.evaluation = None
        if self.progress.evaluation is not None:
            self.evaluation = training.Evaluation(
                loss=self.progress.evaluation["loss"],
                confusion=checkpoint.arrays["evaluation/confusion"],
                top_5=self.progress.evaluation["top_5"],
            )

    def run(self) -> None:
        """Trains to the end.

        Raises:
          RunError: A number is not finite.
          Interrupted: A signal ended it; the state is saved.
        """
        self._screen = Screen(self.total)
        self._open_log()
        if self._log_state is not None:
            self._log.restore(self._log_state)
        with self._screen, contextlib.ExitStack() as stack:
            self.board.begin(self.progress.step, self._screen.line)
            if self._metrics is not None and not self._metrics.is_whole:
                self._screen.line(
                    "note: metrics.csv lacks rows that were there when the"
                    " checkpoint was saved."
                )
            self._begin_saving(stack)
            self._begin_profile(stack)
            self._trace()
            while not self._is_at_end():
                try:
                    if self._is_due():
                        self._end_epoch()
                    else:
                        self._train_epoch()
                except NotFiniteError as error:
                    self._go_back(error)
            if self.stops_early and self.progress.best is not None:
                self._screen.line(
                    f"Stopped early: epoch {self.progress.best['epoch']} was"
                    " the best on the test data; its checkpoint is"
                    f" {self.progress.best['checkpoint']}."
                )

    @property
    def totals(self) -> dict[str, Any]:
        """What the record holds of it."""
        return {
            **self._log.totals(),
            "skipped_steps": self._state.skipped_steps,
            "rewinds": self.progress.rewinds,
            "stopped_early": self.stops_early,
            "best": self.progress.best,
        }

    @property
    def missing(self) -> list[str]:
        """What could not be written, and why."""
        found = []
        if self._metrics is not None:
            self._metrics.write()
            if self._metrics.failure is not None:
                found.append(_missing("metrics.csv", self._metrics.failure))
        if self._saver is not None and self._saver.failure is not None:
            found.append(_missing("the last checkpoint", self._saver.failure))
        if self._profiler is not None:
            found += self._profiler.missing
        return found

    def _open_log(self) -> None:
        """Opens what the rows go to; what came later than the run is goes."""
        if self._directory is not None:
            self._metrics = self._directory.open_metrics(self._position)
            last, evaluated = self.progress.evaluation, None
            if last is not None and self.evaluation is not None:
                evaluated = (last["step"], self.evaluation)
            self.board.go_on(
                self.progress.step,
                self._board_position,
                self._metrics,
                evaluated,
            )
        self._log = Log(
            self._screen,
            self._metrics,
            log_every=self._config.log_every,
            also=self.board.add,
        )

    def _begin_saving(self, stack: contextlib.ExitStack) -> None:
        if self._directory is None or not self._config.keep_checkpoints:
            return
        self._saver = Saver(
            self._directory.checkpoints,
            keep=self._config.keep_checkpoints,
            every_steps=self._save_steps,
            every_seconds=self._save_seconds,
            tell=self._screen.line,
        )
        stack.callback(self._saver.close)
        self._begin_checkpoints()
        self._stop.hint = f"; --run_dir={self._directory.path} goes on with it"

    def _begin_checkpoints(self) -> None:
        assert self._saver is not None
        assert self._directory is not None
        if self._position is None:
            # Whether there is room is known now, not in an hour.
            self._save()
            self._saver.wait()
            if self._saver.failure is not None:
                raise ConfigError(
                    f"--run_dir ({self._directory.path}) can't hold a"
                    f" checkpoint: {reason_of(self._saver.failure)};"
                    f" {remedy_of(self._saver.failure)}, name another one, or"
                    " save none with --keep_checkpoints=0."
                )

    def _begin_profile(self, stack: contextlib.ExitStack) -> None:
        if self._directory is None or self._config.profile is None:
            return
        first, last = profile_steps(self._config.profile)
        profiler = Profiler(
            first, last, self._directory.path, self._screen.line
        )
        # A run that ends before leaves the profile of what it did.
        stack.callback(lambda: profiler.close(self.progress.step))
        self._profiler = profiler

    def _trace(self) -> None:
        """Traces what will be used, while a signal still ends it at once."""
        if self.progress.step >= self.total:
            return
        for is_padded in paddings(
            len(self._dataset.train),
            batch_size=self._config.batch_size,
            batches=self._config.accumulate_steps,
            replicas=self._devices.replicas,
            lanes=self._devices.lanes,
        ):
            self._train.trace(is_padded)

    def _is_at_end(self) -> bool:
        if self._is_due():
            return False
        return self.progress.step >= self.total or self.stops_early

    @property
    def stops_early(self) -> bool:
        """Whether --early_stopping ends the run here."""
        patience = self._config.early_stopping
        waited = self.progress.evaluations_since_best
        is_evaluated = self.progress.is_evaluated
        return patience is not None and is_evaluated and waited >= patience

    def _is_due(self) -> bool:
        """Whether the end of an epoch, or of the run, comes next."""
        progress = self.progress
        if progress.step >= self.total:
            last = progress.evaluation
            return last is None or last["step"] != progress.step
        at_end = progress.step > 0 and progress.step % self._per_epoch == 0
        return at_end and not progress.is_evaluated

    def _train_epoch(self) -> None:
        """Trains to the end of an epoch, or to where it has to go back."""
        epoch, first = divmod(self.progress.step, self._per_epoch)
        if first == 0:
            self._log.begin_epoch()
        self.progress.is_evaluated = False
        blocks = training.train_epoch(
            self._train,
            self._dataset.train,
            seed=self._config.seed,
            epoch=epoch,
            batch_size=self._config.batch_size,
            batches=self._config.accumulate_steps,
            replicas=self._devices.replicas,
            first_step=first,
            steps=self.total - epoch * self._per_epoch,
            until_stop=lambda step: self._until_stop(epoch, step),
            learning_rate=self._rates,
        )
        if self._profiler is not None:
            blocks = self._profiler.watch(blocks, self.progress.step)
        with contextlib.closing(blocks), self._stop.finishing():
            for block in blocks:
                self._log.block(epoch, block)
                self.progress.step += len(block.loss)
                self._after_block()

    def _until_stop(self, epoch: int, step: int) -> int:
        """Returns how many steps may follow, in one block, on one of an epoch.

        A block ends where a line of the log is due, or a checkpoint, and where
        a profile begins and ends.
        """
        done = epoch * self._per_epoch + step
        most = self._config.log_every - step % self._config.log_every
        if self._saver is not None and self._save_steps is not None:
            most = min(most, self._save_steps - done % self._save_steps)
        if self._profiler is not None:
            most = min(most, self._profiler.until_stop(done))
        return most

    def _after_block(self) -> None:
        if self._saver is not None and (
            self._saver.is_due(self.progress.step)
            or self._stop.save_asked
            or self._stop.received is not None
        ):
            self._save()
        self._stop.save_asked = False
        if self._stop.received is not None:
            if self._saver is not None:
                self._saver.wait()
            name = signal.Signals(self._stop.received).name
            raise Interrupted(
                f"{name} ended the run after step"
                f" {self.progress.step:,}{self._stop.hint}.",
                signum=self._stop.received,
            )

    def _end_epoch(self) -> None:
        """Does what is due after the last step of an epoch or of the run."""
        epoch = (self.progress.step - 1) // self._per_epoch
        if self._evaluation_is_due(epoch):
            # Before the epoch's line: a run that goes on prints it again.
            self._save()
            self._log.end_epoch(epoch, skipped_steps=self._state.skipped_steps)
            self._evaluate_now(epoch)
        else:
            self._log.end_epoch(epoch, skipped_steps=self._state.skipped_steps)
        self.progress.is_evaluated = True
        self._log.begin_epoch()
        self._save()

    def _evaluation_is_due(self, epoch: int) -> bool:
        every = self._config.eval_every
        is_last = self.progress.step >= self.total
        return is_last or (every > 0 and (epoch + 1) % every == 0)

    def _evaluate_now(self, epoch: int) -> None:
        begin = time.monotonic()
        with self._state.averages_in_use():
            evaluation = training.evaluate(
                self._evaluate, self._devices.strategy, self._dataset.test
            )
        self._log.evaluation(
            epoch,
            loss=evaluation.loss,
            accuracy=evaluation.accuracy,
            seconds=time.monotonic() - begin,
        )
        self.board.add_evaluation(self.progress.step, evaluation)
        self.evaluation = evaluation
        self.progress.evaluation = {
            "step": self.progress.step,
            "loss": evaluation.loss,
            "top_5": evaluation.top_5,
        }
        best = self.progress.best
        self.progress.evaluations_since_best += 1
        if best is None or evaluation.accuracy > best["test_accuracy"]:
            self.progress.evaluations_since_best = 0
            self.progress.best = {
                "test_accuracy": evaluation.accuracy,
                "epoch": epoch + 1,
                "checkpoint": checkpoints.name_of(
                    self.progress.step, evaluated=True
                ),
            }

    def _save(self) -> None:
        """Saves the state, in the background.

        Raises:
          NotFiniteError: A weight is not finite: nothing to save.
        """
        if self._saver is None:
            return
        assert self._metrics is not None
        progress = self.progress
        arrays = self._state.capture()
        bad = self._state.first_not_finite(arrays)
        if bad is not None:
            epoch, step = divmod(max(progress.step - 1, 0), self._per_epoch)
            raise NotFiniteError(
                f"the weight {bad} is not finite after epoch {epoch + 1}, step"
                f" {step + 1}. A smaller --learning_rate may help.",
                progress.step - 1,
            )
        if self.evaluation is not None:
            arrays["evaluation/confusion"] = self.evaluation.confusion
        best = progress.best
        self._saver.save(
            checkpoints.name_of(progress.step, evaluated=progress.is_evaluated),
            Checkpoint(
                arrays,
                {
                    **self._facts,
                    **dataclasses.asdict(progress),
                    "log": self._log.state(),
                    "metrics": self._metrics.position,
                    "events": self.board.position,
                },
            ),
            best=best["checkpoint"] if best else None,
            before=self._flush,
        )

    def _flush(self) -> None:
        """Waits until what a checkpoint counts on is on the disk."""
        assert self._metrics is not None
        self._metrics.flush()
        self.board.flush()

    def _go_back(self, error: NotFiniteError) -> None:
        """Goes back to the last checkpoint, and on behind the step at fault."""
        rewinds = self.progress.rewinds
        if self._config.on_nan == "stop" or self._saver is None:
            raise self._with_checkpoint(error)
        if len(rewinds) >= _MOST_REWINDS:
            raise self._with_checkpoint(
                RunError(
                    f"{error} It was not the first time: the run has gone back"
                    f" {_MOST_REWINDS} times already."
                )
            )
        found = self._last_good(self._saver)
        if found.checkpoint is None or self._directory is None:
            raise error
        self.restore(found.checkpoint)
        assert self._log_state is not None
        seconds = self._log.state()["seconds"]
        self._open_log()
        self._log.restore({**self._log_state, "seconds": seconds})
        begin, end = self.progress.step, error.step + 1
        rewinds = [*rewinds, {"from_step": begin, "to_step": end,
                              "reason": str(error)}]  # fmt: skip
        self.progress.rewinds = rewinds
        self.progress.step = end
        self.progress.is_evaluated = False
        self._log.steps = end
        self._screen.line(
            f"{error} Back to {found.name}, and on behind step {end:,}: steps"
            f" {begin + 1:,} to {end:,} are left out ({len(rewinds)} of"
            f" {_MOST_REWINDS} times)."
        )
        self._save()

    def _with_checkpoint(self, error: RunError) -> RunError:
        """Returns the error, with the place of the last good checkpoint."""
        if self._saver is None:
            return error
        found = self._last_good(self._saver)
        if found.name is None:
            return error
        return RunError(f"{error} The last good checkpoint is {found.name}.")

    def _last_good(self, saver: Saver) -> checkpoints.Found:
        saver.wait()
        return checkpoints.newest(saver.folder, self._facts["run_id"])


def _missing(what: str, error: OSError) -> str:
    return f"{what} ({reason_of(error)})"
