"""Train: `python -m tfnet.train`, and `run(config)`, a run from first to last.

Settings, devices, data, model, training, evaluation, export: each step takes
what the one before gave. Only here a `Config` is unpacked.
"""

import contextlib
import dataclasses
import datetime
import functools
import platform
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tfnet
from tfnet import command_line
from tfnet.config import Config, class_weight_numbers
from tfnet.errors import ConfigError, Error, Interrupted, RunError, one_line
from tfnet.runs.directory import (
    RunDirectory,
    check_run_dir,
    create_run_directory,
    write_failure,
)
from tfnet.runs.log import Log
from tfnet.runs.record import recorded
from tfnet.runs.run import Run
from tfnet.runs.screen import Screen
from tfnet.runs.signals import StopSignals
from tfnet.runs.summary import first_lines, last_lines

if TYPE_CHECKING:
    from tfnet.data import Dataset
    from tfnet.devices.start import Devices
    from tfnet.training import Evaluation, Schedule, StepRule, TrainState

_DRY_RUN_STEPS = 3
_COMPARED_IMAGES = 64


def run(config: Config) -> Run:
    """Trains a model, evaluates it, exports it, and records all of that.

    Prints what a person should see to standard output.

    Args:
      config: The settings.

    Returns:
      The trained model, the record and the run directory.

    Raises:
      ConfigError: A setting can't be had on this machine.
      DataError: The data set can't be had, or is not what it should be.
      RunError: The run could not go on: the loss is not finite, the disk is
        full, memory ran out, the exported model is not the trained one.
      Interrupted: A signal ended it; what it had reached is written.
    """
    started = time.monotonic()
    if config.dry_run:
        config = _shortened(config)
    else:
        check_run_dir(config.run_dir)
    devices = _start_devices(config)
    from tfnet.models.precision import computing_in

    with computing_in(config.precision):
        return _run(config, devices, started)


def _run(config: Config, devices: "Devices", started: float) -> Run:
    dataset = _open_dataset(config)
    state, notes = _create_state(config, devices, dataset)
    directory = None if config.dry_run else _make_directory(config, dataset)
    record = _first_record(config, devices, dataset, state.model, notes)
    place = None if directory is None else directory.path
    print(first_lines(record, place), flush=True)
    with (
        recorded(record, directory, started=started),
        StopSignals() as stop,
        _named_failures(config),
    ):
        evaluation = _train(
            config, devices, dataset, state, directory, record, stop
        )
        if evaluation is not None:
            print("Finished Training", flush=True)
            _add_evaluation(record, dataset, evaluation, directory)
        model = _plain_copy(config, dataset, state)
        if config.export:
            _export(config, dataset, model, place)
        print(last_lines(record, place), flush=True)
        if stop.received is not None:
            raise Interrupted(
                f"{signal.Signals(stop.received).name} ended the run after"
                f" step {record['steps']:,}",
                signum=stop.received,
            )
    return Run(model=model, record=record, directory=place)


def _shortened(config: Config) -> Config:
    steps = min(config.steps or _DRY_RUN_STEPS, _DRY_RUN_STEPS)
    return dataclasses.replace(config, epochs=1, steps=steps, log_every=1)


def _start_devices(config: Config) -> "Devices":
    from tfnet.devices.runtime import prepare_process

    verbose = config.verbosity > 0
    prepare_process(verbose=verbose)
    from tfnet.devices.start import start_devices

    return start_devices(
        devices=config.devices,
        logical_devices=config.logical_devices,
        memory_growth=config.memory_growth,
        threads=config.threads,
        batch_size=config.batch_size,
        deterministic=config.deterministic,
        verbose=verbose,
    )


def _open_dataset(config: Config) -> "Dataset":
    from tfnet.data import open_dataset

    return open_dataset(
        config.dataset,
        data_dir=config.data_dir,
        cache_dir=config.cache_dir,
        image_size=config.image_size,
        dry_run=config.dry_run,
        tell=_tell,
    )


def _tell(text: str) -> None:
    print(text, flush=True)


def _create_state(
    config: Config, devices: "Devices", dataset: "Dataset"
) -> tuple["TrainState", list[str]]:
    """Makes model and optimizer; says what in them is not the same on all."""
    from tfnet import training

    accumulates = config.accumulate_steps > 1
    build = functools.partial(_build_model, config, dataset)
    synchronise = functools.partial(
        training.synchronise,
        replicas=devices.replicas,
        batch_statistics=config.sync_batch_norm,
        accumulates=accumulates,
    )
    with devices.strategy.scope():
        model = build()
        notes = synchronise(model)
        optimizer = training.create_optimizer(
            config.optimizer,
            learning_rate=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )
        state = training.TrainState(
            model,
            optimizer,
            ema=config.ema,
            scales_loss=config.precision == "float16",
        )
    if config.model == "net":
        return state, notes
    # A function that gives the same weights twice is found out here.
    copy = build()
    if devices.replicas > 1 or accumulates:
        notes += training.try_in_shares(
            model, copy, synchronise, dataset.image_shape
        )
    return state, notes


def _build_model(config: Config, dataset: "Dataset") -> Any:
    from tfnet.models import build_model

    return build_model(
        config.model,
        dataset.image_shape,
        len(dataset.class_names),
        seed=config.seed,
    )


def _make_directory(config: Config, dataset: "Dataset") -> RunDirectory:
    name = f"{dataset.name}-{config.model.rpartition(':')[2]}"
    directory = create_run_directory(
        config.run_dir, name, datetime.datetime.now()
    )
    directory.write_config(
        command_line.to_flagfile(
            _repeatable(config, dataset),
            f"Repeats this run: python -m tfnet.train --flagfile="
            f"{directory.path / 'config.flags'}",
        )
    )
    return directory


def _repeatable(config: Config, dataset: "Dataset") -> Config:
    """Returns the settings that give this run from any directory."""

    def absolute(path: str | None) -> str | None:
        return path and str(Path(path).expanduser().absolute())

    name = config.dataset or dataset.name
    if Path(name).expanduser().is_dir():
        name = str(absolute(name))
    return dataclasses.replace(
        config,
        dataset=name,
        data_dir=absolute(config.data_dir),
        cache_dir=absolute(config.cache_dir),
        run_dir=None,
    )


def _step_rule(config: Config, dataset: "Dataset") -> "StepRule":
    from tfnet import training
    from tfnet.data.augment import Augmentation

    return training.StepRule(
        seed=config.seed,
        objective=training.Objective(
            label_smoothing=config.label_smoothing,
            class_weights=_class_weights(config.class_weights, dataset),
        ),
        augmentation=Augmentation(flip=config.flip, crop=config.crop),
        clipping=training.Clipping(
            norm=config.clip_norm, value=config.clip_value
        ),
    )


def _class_weights(
    text: str | None, dataset: "Dataset"
) -> tuple[float, ...] | None:
    from tfnet.training import balanced_weights

    classes = len(dataset.class_names)
    if text is None:
        return None
    if text == "balanced":
        return balanced_weights(dataset.train.labels, classes)
    weights = class_weight_numbers(text)
    if len(weights) != classes:
        raise ConfigError(
            f"--class_weights ({text}) must have a number for each of the"
            f" {classes} classes of {dataset.name}; it has {len(weights)}."
        )
    return weights


def _schedule(config: Config, per_epoch: int, total: int) -> "Schedule":
    from tfnet.training import Schedule

    return Schedule(
        kind=config.schedule,
        rate=config.learning_rate,
        total_steps=total,
        warmup_steps=config.warmup_steps,
        decay=config.decay,
        decay_every=config.decay_every * per_epoch,
    )


def _train(
    config: Config,
    devices: "Devices",
    dataset: "Dataset",
    state: "TrainState",
    directory: RunDirectory | None,
    record: dict[str, Any],
    stop: StopSignals,
) -> "Evaluation | None":
    """Trains all epochs; returns the last evaluation, if it came to one."""
    from tfnet import training
    from tfnet.data.feed import steps_in_epoch

    strategy = devices.strategy
    batches = config.accumulate_steps
    train = training.create_train_function(
        strategy,
        state,
        dataset.image_shape,
        _step_rule(config, dataset),
        accumulates=batches > 1,
    )
    evaluate = training.create_evaluate_function(
        strategy, state.model, len(dataset.class_names)
    )
    per_epoch = steps_in_epoch(len(dataset.train), config.batch_size * batches)
    total = per_epoch * config.epochs
    total = total if config.steps is None else min(total, config.steps)
    evaluation = None
    with Screen(total) as screen:
        log = Log(screen, directory, log_every=config.log_every)
        try:
            for epoch in range(-(-total // per_epoch)):
                log.begin_epoch()
                for block in training.train_epoch(
                    train,
                    dataset.train,
                    seed=config.seed,
                    epoch=epoch,
                    batch_size=config.batch_size,
                    batches=batches,
                    replicas=devices.replicas,
                    steps=total - epoch * per_epoch,
                    stop_at=config.log_every,
                    learning_rate=_schedule(config, per_epoch, total),
                ):
                    log.block(epoch, block)
                    if stop.received is not None:
                        break
                log.end_epoch(epoch, skipped_steps=state.skipped_steps)
                if stop.received is not None:
                    return None
                if _evaluation_is_due(config, epoch, log.steps == total):
                    begin = time.monotonic()
                    with state.averages_in_use():
                        evaluation = training.evaluate(
                            evaluate, strategy, dataset.test
                        )
                    log.evaluation(
                        epoch,
                        loss=evaluation.loss,
                        accuracy=evaluation.accuracy,
                        seconds=time.monotonic() - begin,
                    )
        finally:
            record.update(log.totals(), skipped_steps=state.skipped_steps)
    return evaluation


def _evaluation_is_due(config: Config, epoch: int, is_last: bool) -> bool:
    every = config.eval_every
    return is_last or (every > 0 and (epoch + 1) % every == 0)


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
    model = _build_model(config, dataset)
    with state.averages_in_use():
        model.set_weights(state.model.get_weights())
    return model


def _export(
    config: Config, dataset: "Dataset", model: Any, directory: Path | None
) -> None:
    """Exports into the run directory, or, in a dry run, to be thrown away."""
    import numpy as np

    from tfnet.runs.saved_model import export_saved_model

    with contextlib.ExitStack() as stack:
        if directory is None:
            temporary = tempfile.TemporaryDirectory()
            directory = Path(stack.enter_context(temporary))
        path = directory / "saved_model"
        count = min(_COMPARED_IMAGES, len(dataset.test))
        images, _ = dataset.test.take(np.arange(count))
        try:
            export_saved_model(
                path,
                model,
                dataset.class_names,
                image_size=config.image_size,
                examples=images,
            )
        except OSError as error:
            raise write_failure(error, path) from error


def _first_record(
    config: Config,
    devices: "Devices",
    dataset: "Dataset",
    model: Any,
    notes: list[str],
) -> dict[str, Any]:
    from tfnet.data.order import split_evenly

    return {
        "dataset": {
            "name": dataset.name,
            "origin": dataset.origin,
            "fingerprint": dataset.fingerprint(),
            "train": len(dataset.train),
            "test": len(dataset.test),
            "classes": list(dataset.class_names),
        },
        "devices": list(devices.names),
        "replicas": devices.replicas,
        "memory": devices.memory,
        "threads": devices.threads,
        "onednn": devices.onednn,
        "deterministic": devices.deterministic,
        "batch_size": config.batch_size,
        "shares": split_evenly(config.batch_size, devices.replicas),
        "parameters": model.count_params(),
        "notes": [
            *dataset.notes,
            *devices.notes,
            *notes,
        ],
        "settings": dataclasses.asdict(config),
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    import keras
    import numpy as np
    import tensorflow as tf

    return {
        "tfnet": tfnet.__version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _add_evaluation(
    record: dict[str, Any],
    dataset: "Dataset",
    evaluation: "Evaluation",
    directory: RunDirectory | None,
) -> None:
    record["test_loss"] = evaluation.loss
    record["test_accuracy"] = evaluation.accuracy
    record["test_top_5_accuracy"] = evaluation.top_5_accuracy
    record["class_accuracy"] = dict(
        zip(dataset.class_names, evaluation.class_accuracy, strict=True)
    )
    if directory is not None:
        directory.write_confusion(dataset.class_names, evaluation.confusion)


if __name__ == "__main__":
    command_line.main(
        "tfnet.train",
        "Train an image classifier on all visible devices, and export it.",
        run,
    )
