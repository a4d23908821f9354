"""From the settings to the parts of a run: devices, data, model, rules.

Only here, on the page that uses them (`train`) and in the loop (`trainer`), a
`Config` is unpacked: the rooms take plain values.
"""

import dataclasses
import functools
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tfnet
from tfnet.config import Config, class_weight_numbers
from tfnet.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from tfnet.data import Dataset
    from tfnet.data.augment import Augmentation
    from tfnet.data.scaling import Scaling
    from tfnet.devices.start import Devices
    from tfnet.training import Schedule, StepRule, TrainFunction, TrainState

_SHOWN_IMAGES = 6
_SHOWN_VIEWS = 6
_SHOWN_EXAMPLES = 16


def start_devices(config: Config) -> "Devices":
    """Imports TensorFlow, and sets up the devices."""
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
        # Of another model nobody knows that it takes each example by itself.
        splits=config.model == "net",
        deterministic=config.deterministic,
        verbose=verbose,
    )


def start_without_training() -> None:
    """Imports and starts TensorFlow, for what only uses a model."""
    from tfnet.devices.runtime import prepare_process

    prepare_process(verbose=False)
    from tfnet.devices.start import start_without_strategy

    start_without_strategy()


def _tell(text: str) -> None:
    print(text, flush=True)


def open_dataset(
    config: Config,
    data: Sequence[Any] | None = None,
    class_names: Sequence[str] | None = None,
    *,
    tell: Callable[[str], None] = _tell,
) -> "Dataset":
    """Opens the data set; tells what takes long."""
    from tfnet.data import open_dataset

    return open_dataset(
        config.dataset,
        data_dir=config.data_dir,
        cache_dir=config.cache_dir,
        image_size=config.image_size,
        dry_run=config.dry_run,
        tell=tell,
        test_fraction=config.test_fraction,
        given=data,
        class_names=class_names,
    )


def scaling(config: Config, dataset: "Dataset") -> "tuple[Scaling, list[str]]":
    """Returns how pixels are scaled for the model; says what is odd in it."""
    from tfnet.data.scaling import SEED, scaling_of

    if config.normalize == "seed":
        return SEED, []
    return scaling_of(dataset.train)


def create_state(
    config: Config,
    devices: "Devices",
    dataset: "Dataset",
    scaling: "Scaling",
    *,
    goes_on: bool = False,
) -> tuple["TrainState", list[str]]:
    """Makes model and optimizer; says what in them is not the same on all.

    Args:
      config: The settings.
      devices: What to make them on.
      dataset: What to make them for.
      scaling: Scales the pixels for the model.
      goes_on: Whether a checkpoint will give the weights.
    """
    from tfnet import training

    accumulates = config.accumulate_steps > 1
    build = functools.partial(build_model, config, len(dataset.class_names))
    synchronise = functools.partial(
        training.synchronise,
        replicas=devices.replicas,
        batch_statistics=config.sync_batch_norm,
        accumulates=accumulates,
    )
    with devices.strategy.scope():
        model = build()
        notes = _start_weights(config, model, scaling, goes_on=goes_on)
        notes += synchronise(model)
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
            model, copy, synchronise, dataset.image_shape, scaling
        )
    return state, notes


def _start_weights(
    config: Config, model: Any, scaling: "Scaling", *, goes_on: bool
) -> list[str]:
    """Applies --init_from; says what came of it."""
    from tfnet.data.scaling import SEED, Scaling
    from tfnet.models.start import start_from_file
    from tfnet.runs import checkpoints
    from tfnet.runs.directory import CHECKPOINTS
    from tfnet.training.state import set_trained_weights

    if config.init_from is None:
        return []
    where = f"--init_from ({config.init_from})"
    if goes_on:
        return [f"{where} is left aside: the run goes on with its own weights."]
    path = Path(config.init_from).expanduser()
    if not path.is_dir():
        start_from_file(model, path)
        return _other_scaling(where, "PyTorch's tutorial", SEED, scaling)
    found = checkpoints.newest(path / CHECKPOINTS)
    if found.checkpoint is None:
        reason = "; ".join(found.passed_over) or "there is none"
        raise ConfigError(
            f"{where} must hold a checkpoint of a run: {reason}. Give a run"
            " directory, or a .pt, .pth, .safetensors or .npz file."
        )
    arrays = found.checkpoint.arrays
    try:
        set_trained_weights(model, arrays)
    except ValueError as error:
        raise ConfigError(
            f"{where} does not fit the model: of {found.name}, {error}. It must"
            " be a run of the same model, classes, image size and type of"
            " weights (float64 by --precision=float64, else float32)."
        ) from error
    kind = "averaged weights" if "average/0" in arrays else "weights"
    return [
        f"The run starts from the {kind} of {found.name} in {path}.",
        *(
            f"The checkpoint {one}. It was passed over."
            for one in found.passed_over
        ),
        *_other_scaling(
            where,
            f"the run of {found.name}",
            Scaling.read(found.checkpoint.progress.get("scaling")),
            scaling,
        ),
    ]


def _other_scaling(
    where: str, who: str, theirs: "Scaling", ours: "Scaling"
) -> list[str]:
    """Says that given weights are for pixels on another scale."""
    if theirs == ours:
        return []
    return [
        f"{where} gives weights for pixels on another scale: {who} has"
        f" {theirs.formula}, and this run {ours.formula} by"
        " --normalize."
    ]


def build_model(config: Config, num_classes: int) -> Any:
    """Builds the model anew, with its initial weights."""
    from tfnet.models import build_model

    size = config.image_size
    return build_model(
        config.model, (size, size, 3), num_classes, seed=config.seed
    )


def create_train_function(
    config: Config,
    devices: "Devices",
    dataset: "Dataset",
    scaling: "Scaling",
    state: "TrainState",
) -> "TrainFunction":
    """Creates what trains on a block.

    Raises:
      ConfigError: The devices can't hold the images, the model can't be
        compiled by XLA, or there are more or fewer class weights than classes.
    """
    import tensorflow as tf

    from tfnet import training

    try:
        function = training.TrainFunction(
            devices.strategy,
            state,
            dataset.image_shape,
            step_rule(config, dataset, scaling),
            accumulates=config.accumulate_steps > 1,
            lanes=devices.lanes,
            held=_held_images(config, dataset),
        )
        if config.jit_compile and config.model != "net":
            # Known before anything is written.
            function.trace(is_padded=False)
    except tf.errors.ResourceExhaustedError as error:
        raise ConfigError(
            "--data_on_device needs room for the training images"
            f" ({_size(dataset)}) on every device, and one has none; leave it"
            " out."
        ) from error
    except training.NotUnderXlaError as error:
        raise ConfigError(
            f"--jit_compile is not for --model={config.model}: a layer of it"
            " draws random numbers, or takes the moments of the batch over"
            " several devices; leave it out, or, for the latter, add"
            " --nosync_batch_norm."
        ) from error
    return function


def _held_images(config: Config, dataset: "Dataset") -> "np.ndarray | None":
    """Returns the images for the devices to hold; None: they hold none."""
    from tfnet.data.arrays import IN_MEMORY_BYTES
    from tfnet.data.image_file import ImageFile

    images = dataset.train.images
    if not config.data_on_device:
        return None
    if isinstance(images, ImageFile):
        raise ConfigError(
            "--data_on_device is for training images of at most"
            f" {IN_MEMORY_BYTES / 2**30:g} GiB; these are {_size(dataset)}, and"
            " are read from their file as they are needed. Leave it out."
        )
    return images


def _size(dataset: "Dataset") -> str:
    size = len(dataset.train) * dataset.train.image_bytes
    return f"{size / 2**20:,.0f} MiB"


def step_rule(
    config: Config, dataset: "Dataset", scaling: "Scaling"
) -> "StepRule":
    """Returns what a step does, apart from model and optimizer.

    Raises:
      ConfigError: There are more or fewer class weights than classes.
    """
    from tfnet import training

    return training.StepRule(
        seed=config.seed,
        objective=training.Objective(
            label_smoothing=config.label_smoothing,
            class_weights=_class_weights(config.class_weights, dataset),
        ),
        augmentation=_augmentation(config),
        scaling=scaling,
        jit_compile=config.jit_compile,
        mixup=config.mixup,
        clipping=training.Clipping(
            norm=config.clip_norm, value=config.clip_value
        ),
    )


def _augmentation(config: Config) -> "Augmentation":
    from tfnet.data.augment import Augmentation

    return Augmentation(
        flip=config.flip,
        crop=config.crop,
        color=config.color,
        cutout=config.cutout,
    )


def augmented_examples(
    config: Config, dataset: "Dataset", scaling: "Scaling"
) -> "tuple[np.ndarray, np.ndarray] | None":
    """Returns some training images, and views of each; None: all are alike.

    Returns:
      uint8 [n, height, width, 3] and uint8 [n, times, height, width, 3].
    """
    from tfnet.data.augment import Augmentation, draw_views

    augmentation = _augmentation(config)
    if augmentation == Augmentation():
        return None
    images, _ = dataset.train.first(_SHOWN_IMAGES)
    views = draw_views(
        augmentation,
        images,
        scaling.zero,
        times=_SHOWN_VIEWS,
        seed=config.seed,
    )
    return images, views


def fed_examples(
    config: Config, dataset: "Dataset", scaling: "Scaling"
) -> "tuple[np.ndarray, np.ndarray, np.ndarray | None]":
    """Returns some training images and labels, and views if these are fed.

    Returns:
      uint8 [n, height, width, 3], int32 [n] and uint8 [n, times, height,
      width, 3].
    """
    augmented = augmented_examples(config, dataset, scaling)
    views = None if augmented is None else augmented[1]
    count = _SHOWN_EXAMPLES if views is None else len(views)
    images, labels = dataset.train.first(count)
    return images, labels, views


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


def schedule(config: Config, per_epoch: int, total: int) -> "Schedule":
    """Returns the learning rate of each of `total` steps."""
    from tfnet.training import Schedule

    return Schedule(
        kind=config.schedule,
        rate=config.learning_rate,
        total_steps=total,
        warmup_steps=config.warmup_steps,
        decay=config.decay,
        decay_every=config.decay_every * per_epoch,
    )


def first_record(
    config: Config,
    devices: "Devices",
    dataset: "Dataset",
    scaling: "Scaling",
    model: Any,
    notes: list[str],
) -> dict[str, Any]:
    """Returns what the record holds before a run has trained."""
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
        "scaling": scaling.kept(),
        "devices": list(devices.names),
        "replicas": devices.replicas,
        "memory": devices.memory,
        "threads": devices.threads,
        "lanes": devices.lanes,
        "onednn": devices.onednn,
        "deterministic": devices.deterministic,
        "batch_size": config.batch_size,
        "shares": split_evenly(config.batch_size, devices.replicas),
        "parameters": model.count_params(),
        "notes": [
            *dataset.notes,
            *_remarks(config, dataset),
            *devices.notes,
            *notes,
        ],
        "settings": dataclasses.asdict(config),
        "versions": _versions(),
    }


def _remarks(config: Config, dataset: "Dataset") -> list[str]:
    from tfnet.data import remarks

    if config.dry_run:
        # A few examples say nothing about the others.
        return []
    found = remarks.duplicates(dataset)
    if config.class_weights is None:
        found += remarks.imbalance(dataset)
    return found


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
