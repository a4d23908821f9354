"""Train: `python -m tfnet.train`, and `run(config)`, a run from first to last.

Settings, devices, data, model, training, evaluation, export: each step takes
what the one before gave.
"""

import contextlib
import dataclasses
import datetime
import functools
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tfnet import arguments, command_line, parts, results
from tfnet.config import Config, changed_settings, check_profile
from tfnet.data.scaling import Scaling
from tfnet.errors import (
    ConfigError,
    Error,
    RunError,
    one_line,
)
from tfnet.flagfile import flagfile
from tfnet.runs import events
from tfnet.runs.directory import (
    RunDirectory,
    check_default_place,
    make_run_directory,
    take_run_directory,
)
from tfnet.runs.record import recorded
from tfnet.runs.resume import (
    Start,
    facts,
    find_start,
    from_the_first_step,
    resumed,
)
from tfnet.runs.signals import StopSignals
from tfnet.runs.summary import first_lines, last_lines
from tfnet.trained import Run

if TYPE_CHECKING:
    from tfnet.data import Dataset
    from tfnet.devices.start import Devices
    from tfnet.trainer import Trainer
    from tfnet.training import TrainState

_DRY_RUN_STEPS = 3


def run(
    config: Config,
    *,
    data: Sequence[Any] | None = None,
    class_names: Sequence[str] | None = None,
) -> Run:
    """Trains a model, evaluates it, exports it, and records all of that.

    Prints what a person should see to standard output. Where the run
    directory holds a run that was stopped, it goes on with that.

    Args:
      config: The settings.
      data: Arrays to train on, in place of --dataset: `(images, labels)` or
        `(images, labels, test_images, test_labels)`. Images are uint8 [n,
        height, width, 3] or, grey, [n, height, width]; labels are integers
        from 0 or strings, [n].
      class_names: The names of their classes, in the order of the labels.

    Returns:
      The trained model, the record and the run directory.

    Raises:
      ConfigError: A setting can't be had on this machine, or is not that of
        the run to go on with.
      DataError: The data set can't be had, or is not what it should be.
      RunError: The run could not go on: the loss is not finite, memory ran
        out, the exported model is not the trained one; or something could
        not be written.
      Interrupted: A signal ended it; what it had reached is saved.
    """
    started = time.monotonic()
    arguments.check(
        "config",
        config,
        Config,
        "a tfnet.Config; for example tfnet.Config(epochs=1)",
    )
    if config.dry_run:
        config = _shortened(config)
    if config.tensorboard:
        events.check_package()
    with StopSignals() as stop, contextlib.ExitStack() as stack:
        directory = _open_directory(config)
        start = from_the_first_step()
        if directory is not None:
            stack.callback(directory.release)
            start = find_start(
                directory,
                resume=config.resume,
                changed=functools.partial(changed_settings, config),
            )
        devices = parts.start_devices(config)
        from tfnet.models.precision import computing_in

        stack.enter_context(computing_in(config.precision))
        dataset = parts.open_dataset(config, data, class_names)
        scaling, remarks = parts.scaling(config, dataset)
        _check_data(start, directory, dataset, scaling)
        goes_on = start.checkpoint is not None
        state, notes = parts.create_state(
            config, devices, dataset, scaling, goes_on=goes_on
        )
        if directory is None and not config.dry_run:
            directory = _make_directory(config, dataset)
            stack.callback(directory.release)
        record = parts.first_record(
            config,
            devices,
            dataset,
            scaling,
            state.model,
            [*start.notes, *remarks, *notes],
        )
        record["id"] = start.run_id
        record["resumed"] = resumed(start, record)
        with _named_failures(config):
            trainer = _trainer(
                config,
                devices,
                dataset,
                scaling,
                state,
                stop,
                directory,
                start,
                record,
            )
        if start.checkpoint is not None:
            started -= start.checkpoint.progress["log"]["seconds"]
        return _run(config, dataset, state, directory, trainer, record, started)


def _shortened(config: Config) -> Config:
    steps = min(config.steps or _DRY_RUN_STEPS, _DRY_RUN_STEPS)
    return dataclasses.replace(
        # A dry run has no place for a profile.
        config,
        epochs=1,
        steps=steps,
        log_every=1,
        profile=None,
    )


def _open_directory(config: Config) -> RunDirectory | None:
    """Opens --run_dir; None: it is made when the data set has a name."""
    if config.dry_run:
        return None
    if config.run_dir is None:
        check_default_place()
        return None
    return take_run_directory(config.run_dir, resume=config.resume)


def _make_directory(config: Config, dataset: "Dataset") -> RunDirectory:
    name = f"{dataset.name}-{config.model.rpartition(':')[2]}"
    return make_run_directory(name, datetime.datetime.now())


def _check_data(
    start: Start,
    directory: RunDirectory | None,
    dataset: "Dataset",
    scaling: Scaling,
) -> None:
    if start.checkpoint is None or directory is None:
        return
    was = start.checkpoint.progress["dataset"]
    # The fingerprint looks at some of the images, the scaling at all.
    scaled = Scaling.read(start.checkpoint.progress.get("scaling"))
    if was["fingerprint"] != dataset.fingerprint() or scaled != scaling:
        raise ConfigError(
            f"--run_dir ({directory.path}) holds a run on other data:"
            f" {was['name']}, {was['train']:,} training and {was['test']:,}"
            f" test images, where {dataset.name} from {dataset.origin} has"
            f" {len(dataset.train):,} and {len(dataset.test):,}, or other"
            " ones. Give that data, or name another directory."
        )


def _trainer(
    config: Config,
    devices: "Devices",
    dataset: "Dataset",
    scaling: Scaling,
    state: "TrainState",
    stop: StopSignals,
    directory: RunDirectory | None,
    start: Start,
    record: dict[str, Any],
) -> "Trainer":
    """Makes the trainer, and takes it to where the run goes on."""
    from tfnet.trainer import Trainer

    trainer = Trainer(
        config,
        devices,
        dataset,
        scaling,
        state,
        stop,
        directory=directory,
        facts=facts(record),
    )
    _restore(trainer, start, directory)
    record["total_steps"] = trainer.total
    if trainer.progress.step > trainer.total:
        record["notes"].append(
            f"The run has reached step {trainer.progress.step:,}, and --epochs"
            f" and --steps end it at {trainer.total:,}: nothing is left to"
            " train."
        )
    if config.profile is not None and directory is not None:
        record["notes"] += _check_profile(config.profile, trainer)
    return trainer


def _check_profile(text: str, trainer: "Trainer") -> list[str]:
    """Holds --profile against the steps of the run; tells what is done."""
    first, last = check_profile(text, trainer.total)
    done = trainer.progress.step
    if first > done:
        return []
    rest = f"steps {done + 1:,} to {last:,}" if done < last else "nothing"
    return [
        f"--profile ({text}) begins in steps that are done: the run goes on"
        f" after step {done:,}. It profiles {rest}."
    ]


def _run(
    config: Config,
    dataset: "Dataset",
    state: "TrainState",
    directory: RunDirectory | None,
    trainer: "Trainer",
    record: dict[str, Any],
    started: float,
) -> Run:
    place = None if directory is None else directory.path
    print(first_lines(record, place), flush=True)
    with (
        recorded(record, directory, started=started),
        _named_failures(config),
    ):
        if directory is not None:
            directory.write_config(flagfile(config, dataset, directory.path))
        try:
            trainer.run()
        finally:
            record.update(trainer.totals)
        print("Finished Training", flush=True)
        missing = trainer.missing
        assert trainer.evaluation is not None
        missing += results.add_evaluation(
            record, dataset, trainer.evaluation, directory
        )
        model = _plain_copy(config, dataset, state)
        result = Run(
            config=config,
            record=record,
            directory=place,
            model=model,
            dataset=dataset,
        )
        if config.export:
            missing += results.export_model(result, place)
        if config.report and place is not None:
            not_drawn = results.draw_report(result, place)
            missing += not_drawn
            if not not_drawn:
                trainer.board.add_report(
                    trainer.progress.step, place / "report"
                )
        missing += trainer.board.missing
        if missing:
            missing += results.record_failure(record, directory)
            print(last_lines(record, place), flush=True)
            raise RunError(
                f"{place} is not complete; what is missing:"
                f" {', '.join(missing)}. {results.remedy_for(missing)}, and"
                " start the same command again with this --run_dir."
            )
    print(last_lines(record, place), flush=True)
    return result


def _restore(
    trainer: "Trainer", start: Start, directory: RunDirectory | None
) -> None:
    if start.checkpoint is None or directory is None:
        return
    try:
        trainer.restore(start.checkpoint)
    except ValueError as error:
        raise ConfigError(
            f"--run_dir ({directory.path}) holds a run of another model or"
            f" optimizer: of {start.name}, {error}. Bring back the code it was"
            " made with, or name another directory."
        ) from error


@contextlib.contextmanager
def _named_failures(config: Config) -> Iterator[None]:
    """Turns what a model or the memory can do wrong into one line."""
    import tensorflow as tf

    try:
        yield
    except (Error, OSError):
        raise
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        raise RunError(
            f"memory ran out with --batch_size ({config.batch_size}); try"
            f" --batch_size={max(1, config.batch_size // 2)}."
        ) from error
    except Exception as error:
        if config.model == "net":
            raise
        # A user's own model can fail in any way.
        raise RunError(
            f"--model ({config.model}) failed: {one_line(error)};"
            " --verbosity=1 shows where."
        ) from error


def _plain_copy(config: Config, dataset: "Dataset", state: "TrainState") -> Any:
    """Returns the model as it came from its function, with what it learnt.

    Keras' own `predict` and `fit` follow the strategy a model was made under,
    and crash there when a replica gets no example; an ordinary model does not.
    """
    model = parts.build_model(config, len(dataset.class_names))
    with state.averages_in_use():
        model.set_weights(state.model.get_weights())
    return model


if __name__ == "__main__":
    command_line.main(
        "tfnet.train",
        "Train an image classifier on all visible devices, and export it.",
        run,
        Config,
        needs_output=False,
    )
