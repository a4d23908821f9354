"""Train: `python -m tfnet.train`, and `run(config)`, a run from first to last.

Settings, devices, data, model, training, evaluation, export: each step takes
what the one before gave. Only here a `Config` is unpacked.
"""

import contextlib
import dataclasses
import datetime
import platform
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tfnet
from tfnet import command_line
from tfnet.config import Config
from tfnet.errors import Error, Interrupted, RunError
from tfnet.runs.directory import (
    RunDirectory,
    check_run_dir,
    create_run_directory,
)
from tfnet.runs.log import Log
from tfnet.runs.record import recorded
from tfnet.runs.run import Run
from tfnet.runs.screen import Screen, class_lines, facts
from tfnet.runs.signals import StopSignals

if TYPE_CHECKING:
    from tfnet.data import Dataset
    from tfnet.devices.start import Devices
    from tfnet.training import Evaluation

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
    dataset = _open_dataset(config)
    model, optimizer = _create_model(config, devices, dataset)
    directory = None if config.dry_run else _make_directory(config, dataset)
    record = _first_record(config, devices, dataset, model)
    print(_first_lines(config, devices, dataset, model, directory), flush=True)
    with (
        recorded(record, directory, started=started),
        StopSignals() as stop,
        _named_failures(config),
    ):
        evaluation = _train(
            config, devices, dataset, model, optimizer, directory, record, stop
        )
        if stop.received is None:
            print("Finished Training")
        if config.export:
            _export(config, dataset, model, directory)
        if evaluation is not None:
            _add_evaluation(record, dataset, evaluation)
            print(_last_lines(dataset, evaluation))
        print(_where(config, dataset, directory), flush=True)
        if stop.received is not None:
            name = signal.Signals(stop.received).name
            raise Interrupted(
                f"interrupted by {name} after step {record['steps']}",
                signum=stop.received,
            )
    return Run(
        model=model,
        record=record,
        directory=None if directory is None else directory.path,
    )


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


def _create_model(
    config: Config, devices: "Devices", dataset: "Dataset"
) -> tuple[Any, Any]:
    from tfnet.models import build_model
    from tfnet.training import create_optimizer

    with devices.strategy.scope():
        model = build_model(
            config.model,
            dataset.image_shape,
            len(dataset.class_names),
            seed=config.seed,
        )
        optimizer = create_optimizer(
            config.optimizer,
            learning_rate=config.learning_rate,
            momentum=config.momentum,
        )
        optimizer.build(model.trainable_variables)
    return model, optimizer


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


def _train(
    config: Config,
    devices: "Devices",
    dataset: "Dataset",
    model: Any,
    optimizer: Any,
    directory: RunDirectory | None,
    record: dict[str, Any],
    stop: StopSignals,
) -> "Evaluation | None":
    """Trains all epochs; returns the last evaluation, if it came to one."""
    from tfnet import training
    from tfnet.data.feed import steps_in_epoch

    strategy = devices.strategy
    train = training.create_train_function(
        strategy, model, optimizer, dataset.image_shape
    )
    evaluate = training.create_evaluate_function(
        strategy, model, len(dataset.class_names)
    )
    per_epoch = steps_in_epoch(len(dataset.train), config.batch_size)
    total = per_epoch * config.epochs
    total = total if config.steps is None else min(total, config.steps)
    evaluation = None
    with Screen(total) as screen:
        log = Log(screen, directory, log_every=config.log_every)
        for epoch in range(-(-total // per_epoch)):
            log.begin_epoch()
            for block in training.train_epoch(
                train,
                dataset.train,
                seed=config.seed,
                epoch=epoch,
                batch_size=config.batch_size,
                replicas=devices.replicas,
                steps=total - epoch * per_epoch,
                stop_at=config.log_every,
            ):
                log.block(
                    epoch,
                    block.last_step,
                    block.loss,
                    block.correct,
                    block.examples,
                )
                if stop.received is not None:
                    break
            log.end_epoch(epoch)
            record["steps"] = log.steps
            record["images_per_second"] = round(
                log.examples / log.train_seconds, 1
            )
            if stop.received is not None:
                return None
            last = log.steps == total
            due = config.eval_every and (epoch + 1) % config.eval_every == 0
            if last or due:
                begin = time.monotonic()
                evaluation = training.evaluate(evaluate, strategy, dataset.test)
                log.evaluation(
                    epoch,
                    loss=evaluation.loss,
                    accuracy=evaluation.accuracy,
                    seconds=time.monotonic() - begin,
                )
    return evaluation


@contextlib.contextmanager
def _named_failures(config: Config) -> Iterator[None]:
    """Turns what a model or the memory can do wrong into one line."""
    import tensorflow as tf

    try:
        yield
    except Error:
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
        first = str(error).strip().split("\n")[0]
        raise RunError(
            f"--model ({config.model}) failed: {type(error).__name__}:"
            f" {first}; --verbosity=1 shows where."
        ) from error


def _export(
    config: Config,
    dataset: "Dataset",
    model: Any,
    directory: RunDirectory | None,
) -> None:
    from tfnet.runs.saved_model import export_saved_model

    with contextlib.ExitStack() as stack:
        if directory is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            place = directory.path
        path = place / "saved_model"
        try:
            export_saved_model(
                path,
                model,
                dataset.class_names,
                image_size=config.image_size,
                examples=dataset.test.images[:_COMPARED_IMAGES],
            )
        except OSError as error:
            raise RunError(
                f"{path} can't be written: {error.strerror or error}; make"
                " room or name another place with --run_dir."
            ) from error


def _first_record(
    config: Config, devices: "Devices", dataset: "Dataset", model: Any
) -> dict[str, Any]:
    return {
        "dataset": {
            "name": dataset.name,
            "origin": dataset.origin,
            "fingerprint": dataset.fingerprint(),
            "train": len(dataset.train),
            "test": len(dataset.test),
            "classes": list(dataset.class_names),
            "notes": list(dataset.notes),
        },
        "devices": list(devices.names),
        "replicas": devices.replicas,
        "memory": devices.memory,
        "threads": devices.threads,
        "onednn": devices.onednn,
        "batch_size": config.batch_size,
        "parameters": model.count_params(),
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
    record: dict[str, Any], dataset: "Dataset", evaluation: "Evaluation"
) -> None:
    record["test_loss"] = evaluation.loss
    record["test_accuracy"] = evaluation.accuracy
    record["class_accuracy"] = dict(
        zip(dataset.class_names, evaluation.class_accuracy, strict=True)
    )


def _first_lines(
    config: Config,
    devices: "Devices",
    dataset: "Dataset",
    model: Any,
    directory: RunDirectory | None,
) -> str:
    from tfnet.data.order import split_evenly

    shares = split_evenly(config.batch_size, devices.replicas)
    each = "-".join(str(n) for n in sorted({shares[-1], shares[0]}))
    versions = _versions()
    replicas = f"{devices.replicas} replica{'s' * (devices.replicas > 1)}"
    rows = [
        (
            "tfnet",
            f"{versions['tfnet']}, TensorFlow {versions['tensorflow']}, Keras"
            f" {versions['keras']}, Python {versions['python']}",
        ),
        (
            "data",
            f"{dataset.name}: {len(dataset.train):,} training and"
            f" {len(dataset.test):,} test images from {dataset.origin}",
        ),
        (
            "classes",
            f"{len(dataset.class_names)}: {', '.join(dataset.class_names)}",
        ),
        ("devices", f"{replicas}: {', '.join(devices.names)}"),
        (
            "memory",
            f"{devices.memory}; threads for an operation: {devices.threads};"
            f" oneDNN: {'on' if devices.onednn else 'off'}",
        ),
        ("batch", f"{config.batch_size} in all, {each} on each replica"),
        ("model", f"{config.model}, {model.count_params():,} parameters"),
        (
            "run",
            "dry run: a few steps on a few examples, nothing is written"
            if directory is None
            else str(directory.path),
        ),
    ]
    notes = (*dataset.notes, *devices.notes, *_layer_notes(devices, model))
    return facts([*rows, *(("note", note) for note in notes)])


def _layer_notes(devices: "Devices", model: Any) -> list[str]:
    """Says which layers make several replicas differ from one."""
    import keras

    if devices.replicas == 1:
        return []
    apart = [
        layer.name
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization)
        or hasattr(layer, "seed_generator")
    ]
    if not apart:
        return []
    return [
        f"{', '.join(apart)}: batch statistics and random numbers are each"
        " replica's own so far; the numbers differ from those of one device."
    ]


def _last_lines(dataset: "Dataset", evaluation: "Evaluation") -> str:
    lines = [
        f"Test loss {evaluation.loss:.3f}, accuracy {evaluation.accuracy:.1%}"
        f" on {len(dataset.test):,} images of {dataset.name}; per class:",
        *class_lines(dataset.class_names, evaluation.class_accuracy),
    ]
    return "\n".join(lines)


def _where(
    config: Config, dataset: "Dataset", directory: RunDirectory | None
) -> str:
    if directory is None:
        lines = ["Dry run: nothing was written."]
    else:
        what = ["config.flags", "run.json", "metrics.csv"]
        what += ["saved_model/"] if config.export else []
        lines = [f"Written to {directory.path}: {', '.join(what)}"]
    return "\n".join([*lines, *(f"Note: {note}" for note in dataset.notes)])


if __name__ == "__main__":
    command_line.main(
        "tfnet.train",
        "Train an image classifier on all visible devices, and export it.",
        run,
    )
