"""Every setting of a run, once: its name, default, help and rule.

Owns what a valid setting is. Does not know the command line (see
`command_line`), devices or data. Imports the standard library only.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from tfnet.errors import ConfigError, counted
from tfnet.settings import Settings, setting

OPTIMIZERS = (
    "sgd",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "ftrl",
    "lamb",
    "lion",
    "muon",
    "nadam",
    "rmsprop",
)
PRECISIONS = ("float32", "bfloat16", "float16", "float64")
NORMALIZES = ("seed", "dataset")
RESUMES = ("auto", "must", "never")
SCHEDULES = ("constant", "step", "cosine", "one_cycle")
# What arrays of examples and of steps are counted in.
_MOST = 2**31 - 1
_OWN_FUNCTION = r"[\w.]+:\w+"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The settings of one run, valid by construction.

    Every field is also a flag of the commands, under the same name. None
    stands for a setting left to tfnet; the help of the field says what it
    then does.

    Raises:
      ConfigError: A value breaks its rule. The text names the flag, the
        value, the rule and a value that works.
    """

    dataset: str | None = setting(
        None,
        "What to train on: cifar10, fashion_mnist_10k (the bundled sample),"
        " the name of an image classification set of TensorFlow Datasets, a"
        " folder of images (root/split/class/file or root/class/file) or of"
        " arrays (train_images.npy, train_labels.npy, test_images.npy,"
        " test_labels.npy), or a .csv file of path,label or path,label,split"
        " (train or test). Left unset: CIFAR-10 where a copy is found or can"
        " be downloaded, else the bundled sample.",
        kind=str,
        example="cifar10",
        may_change=True,
    )
    data_dir: str | None = setting(
        None,
        "Where to look for cifar10 and TensorFlow Datasets, and where they"
        " are downloaded to. Left unset: their usual places.",
        kind=str,
        example="~/data",
        may_change=True,
    )
    cache_dir: str | None = setting(
        None,
        "Where image folders and TensorFlow Datasets are kept decoded, for"
        " the next run. Left unset: $XDG_CACHE_HOME/tfnet, or"
        " ~/.cache/tfnet.",
        kind=str,
        example="/var/tmp/tfnet",
        may_change=True,
    )
    test_fraction: float | None = setting(
        None,
        "The part of each class to keep for testing, where the data have no"
        " test images of their own; the same data give the same split,"
        " whatever the seed. Left unset: every fifth image of each class.",
        kind=float,
        above=0,
        below=1,
        example=0.2,
    )
    image_size: int = setting(
        32,
        "Height and width, in pixels, that every image is brought to.",
        kind=int,
        minimum=1,
        maximum=4096,
    )
    normalize: str = setting(
        "seed",
        "How a pixel x is scaled for the model: seed ((x / 255 - 0.5) / 0.5:"
        " from -1 to 1), or dataset ((x / 255 - mean) / std, by the mean and"
        " the standard deviation of red, green and blue in the training"
        " images).",
        kind=str,
        choices=NORMALIZES,
    )
    model: str = setting(
        "net",
        "The network: net (the seed's, 62,006 parameters at the defaults), or"
        " package.module:function, called as function(image_shape,"
        " num_classes), which returns a Keras 3 model that takes float32"
        " images, scaled as --normalize says, and gives logits.",
        kind=str,
    )
    init_from: str | None = setting(
        None,
        "Start from given weights: a .pt, .pth, .safetensors or .npz file of"
        " the seed's network as PyTorch names them, or a run directory, whose"
        " newest checkpoint is taken (the averaged weights where there are"
        " some), of any --precision that keeps its weights in the same type:"
        " float64 in float64, the others in float32. A run that goes on keeps"
        " its own. Left unset: --seed draws them.",
        kind=str,
        example="runs/first",
        # It has no effect on a run that goes on, and its path may be another.
        may_change=True,
    )
    epochs: int = setting(
        2,
        "How often to go over the training data.",
        kind=int,
        minimum=1,
        maximum=_MOST,
        may_change=True,
    )
    steps: int | None = setting(
        None,
        "Stop after this many steps in all, if the epochs have not ended"
        " before. A step is a batch, or --accumulate_steps of them.",
        kind=int,
        minimum=1,
        maximum=_MOST,
        example=1000,
        may_change=True,
    )
    batch_size: int = setting(
        4,
        "Examples in one batch, over all devices together (the global batch).",
        kind=int,
        minimum=1,
        maximum=_MOST,
    )
    accumulate_steps: int = setting(
        1,
        "Batches in one step: their gradients are added up, and the weights"
        " change once, as for one batch of all their examples.",
        kind=int,
        minimum=1,
        maximum=_MOST,
    )
    optimizer: str = setting(
        "sgd",
        f"How the weights follow the gradient: {', '.join(OPTIMIZERS)}, or"
        " package.module:function, called as function(learning_rate), which"
        " returns a Keras 3 optimizer.",
        kind=str,
    )
    learning_rate: float = setting(
        0.001,
        "The learning rate; with a schedule, its highest.",
        kind=float,
        minimum=1e-30,
    )
    momentum: float = setting(
        0.9,
        "The momentum of --optimizer=sgd: v = momentum * v + gradient,"
        " weight = weight - learning_rate * v, while the rate is constant.",
        kind=float,
        minimum=0,
        below=1,
    )
    weight_decay: float | None = setting(
        None,
        "Takes learning_rate * weight_decay * weight from every weight in"
        " each step, apart from the gradient. Left unset: what the optimizer"
        " has by itself (adamw and muon 0.004, others none).",
        kind=float,
        minimum=0,
        example=0.0005,
    )
    schedule: str = setting(
        "constant",
        "The learning rate over the run: constant; step (times --decay every"
        " --decay_every epochs); cosine (half a cosine down to 0); one_cycle"
        " (up from 1/25 over the first 30 % of the steps, then down to"
        " 1/250,000).",
        kind=str,
        choices=SCHEDULES,
    )
    warmup_steps: int = setting(
        0,
        "The learning rate rises in a line over the first so many steps; not"
        " with --schedule=one_cycle, which rises by itself.",
        kind=int,
        minimum=0,
        maximum=_MOST,
        example=100,
    )
    decay: float = setting(
        0.1,
        "The factor of --schedule=step.",
        kind=float,
        above=0,
        maximum=1,
    )
    decay_every: int = setting(
        30, "The epochs of --schedule=step.", kind=int, minimum=1, maximum=_MOST
    )
    clip_norm: float | None = setting(
        None,
        "Scales the gradient of a step down to this global norm, after it is"
        " summed over all devices. Left unset: not.",
        kind=float,
        minimum=1e-30,
        maximum=1e30,
        example=1.0,
    )
    clip_value: float | None = setting(
        None,
        "Bounds each element of the gradient of a step to +- this value, after"
        " it is summed over all devices. Left unset: not.",
        kind=float,
        minimum=1e-30,
        maximum=1e30,
        example=0.5,
    )
    label_smoothing: float = setting(
        0.0,
        "Gives every class label_smoothing / classes of the target, and the"
        " right class the rest.",
        kind=float,
        minimum=0,
        below=1,
        example=0.1,
    )
    class_weights: str | None = setting(
        None,
        "What an example of each class counts in the training loss: numbers"
        " from 0, one a class, with commas between, or balanced: examples /"
        " (classes * examples of the class). The sum is divided by the"
        " examples of the batch, not by the weights. Left unset: 1.",
        kind=str,
        example="balanced",
    )
    ema: float | None = setting(
        None,
        "Keeps averages of the weights, average = ema * average + (1 - ema) *"
        " weight after each step, which evaluation and export then use; the"
        " moments of BatchNormalization are averages already. Left"
        " unset: no averages.",
        kind=float,
        above=0,
        # Nearer to 1, an average in float32 never moves.
        maximum=0.9999999,
        example=0.999,
    )
    sync_batch_norm: bool = setting(
        True,
        "BatchNormalization takes the moments of the whole batch, over all"
        " devices, instead of those of each device's share.",
        kind=bool,
    )
    flip: bool = setting(
        False, "Mirror every other training image, at random.", kind=bool
    )
    crop: int = setting(
        0,
        "Move every training image by up to so many pixels in height and in"
        " width, at random; black fills the border.",
        kind=int,
        minimum=0,
        maximum=_MOST,
        example=4,
    )
    color: float = setting(
        0.0,
        "Change brightness, contrast and saturation of every training image,"
        " each by a factor drawn from 1 - color to 1 + color.",
        kind=float,
        minimum=0,
        maximum=1,
        example=0.1,
    )
    cutout: int = setting(
        0,
        "Grey out a square of so many pixels a side, anywhere in every"
        " training image and cut off at its borders: zero, once scaled.",
        kind=int,
        minimum=0,
        maximum=_MOST,
        example=8,
    )
    mixup: float | None = setting(
        None,
        "Mix every training image with another of its step, and the losses by"
        " their labels likewise: weight * one + (1 - weight) * other, with a"
        " weight drawn from Beta(mixup, mixup) for each step. The training"
        " accuracy counts the label of the one. Left unset: not.",
        kind=float,
        minimum=0.05,
        maximum=100,
        example=0.2,
    )
    precision: str = setting(
        "float32",
        "What the model computes in. bfloat16 and float16 keep the weights in"
        " float32; float16 also scales the loss, and leaves out steps whose"
        " gradient is not finite.",
        kind=str,
        choices=PRECISIONS,
    )
    jit_compile: bool = setting(
        False,
        "Let XLA compile the forward and the backward pass. It is meant for"
        " GPUs, and not measured on one; on a CPU it halves the images/s. Not"
        " for models with a layer that draws random numbers; with"
        " BatchNormalization on several devices, --nosync_batch_norm, too.",
        kind=bool,
    )
    data_on_device: bool = setting(
        False,
        "Keep the training images on every device, as bytes, and send it only"
        " their numbers. It is meant for GPUs with room for them.",
        kind=bool,
        may_change=True,
    )
    deterministic: bool = setting(
        False,
        "Only operations that give the same bits every time, on the same"
        " machine. On a CPU its cost is within the noise (0.92 to 1.04 of the"
        " images/s without it); GPUs lose their fastest kernels.",
        kind=bool,
        may_change=True,
    )
    seed: int = setting(
        0,
        "Fixes the initial weights, the order of the data, and what dropout"
        " and augmentation draw.",
        kind=int,
        minimum=0,
        maximum=2**32 - 1,
    )
    devices: int | None = setting(
        None,
        "How many devices to train on. Left unset: all visible GPUs, or the"
        " CPU where there is none.",
        kind=int,
        minimum=1,
        example=2,
        may_change=True,
    )
    logical_devices: int = setting(
        1,
        "Split each GPU, or the CPU where there is none, into this many"
        " logical devices.",
        kind=int,
        minimum=1,
        maximum=64,
        may_change=True,
    )
    memory_growth: bool = setting(
        True,
        "Take GPU memory as it is needed, instead of all of it at the start.",
        kind=bool,
        may_change=True,
    )
    threads: int | None = setting(
        None,
        "Threads that one operation may use on the CPU. Left unset, the seed's"
        " network works on a batch in parts, each with cores of its own; other"
        " models have one thread for batches below 32, else all cores.",
        kind=int,
        minimum=1,
        maximum=1024,
        example=1,
        may_change=True,
    )
    log_every: int = setting(
        2000,
        "Print the mean loss, and add a line to metrics.csv, every so many"
        " steps.",
        kind=int,
        minimum=1,
        maximum=_MOST,
        may_change=True,
    )
    eval_every: int = setting(
        1,
        "Evaluate on the test data every so many epochs, and always at the"
        " end; 0: only at the end.",
        kind=int,
        minimum=0,
        maximum=_MOST,
        may_change=True,
    )
    early_stopping: int | None = setting(
        None,
        "Stop when so many evaluations, one after the other, were not better"
        " than the best one before, in accuracy on the test data. Left unset:"
        " not.",
        kind=int,
        minimum=1,
        maximum=_MOST,
        example=5,
        may_change=True,
    )
    export: bool = setting(
        True,
        "Leave a SavedModel in the run directory.",
        kind=bool,
        may_change=True,
    )
    report: bool = setting(
        True,
        "Leave a page of pictures in the run directory: report/report.html.",
        kind=bool,
        may_change=True,
    )
    tensorboard: bool = setting(
        False,
        "Write what TensorBoard shows into tensorboard/ of the run directory:"
        " the numbers of metrics.csv, pictures, the settings and the graph of"
        " the model. Needs the package tensorboard.",
        kind=bool,
        may_change=True,
    )
    profile: str | None = setting(
        None,
        "Profile these steps of the run, from the first to the last, with"
        " TensorFlow's profiler; what comes between them, such as an"
        " evaluation, is in it too. Left in tensorboard/plugins/profile/ of"
        " the run directory. Left unset: none.",
        kind=str,
        example="100-120",
        may_change=True,
    )
    checkpoint_every: str = setting(
        "60s",
        "Save a checkpoint every so many steps (100) or seconds (60s), and"
        " always at the end of an epoch; 0: only there. It is written while"
        " the training goes on.",
        kind=str,
        may_change=True,
    )
    keep_checkpoints: int = setting(
        3,
        "How many of the newest checkpoints to keep, apart from the one that"
        " was best on the test data; 0: save none.",
        kind=int,
        minimum=0,
        maximum=_MOST,
        may_change=True,
    )
    resume: str = setting(
        "auto",
        "What to do with a run that --run_dir holds: auto (go on with it, or"
        " begin where there is none), must (go on), never (refuse).",
        kind=str,
        choices=RESUMES,
        may_change=True,
    )
    on_nan: str = setting(
        "stop",
        "What to do when the loss or a weight is not finite: stop, or rewind"
        " (back to the last checkpoint, and on behind the step in question;"
        " three times at most).",
        kind=str,
        choices=("stop", "rewind"),
        may_change=True,
    )
    run_dir: str | None = setting(
        None,
        "The directory that the run makes and fills, or where it goes on."
        " Left unset: runs/<dataset>-<model>-<date>-<time>.",
        kind=str,
        example="runs/first",
        may_change=True,
    )
    dry_run: bool = setting(
        False,
        "Try a few steps of everything on a few examples, and write nothing.",
        kind=bool,
        may_change=True,
    )
    verbosity: int = setting(
        0,
        "1 also shows TensorFlow's own messages, and where an error arose.",
        kind=int,
        minimum=0,
        maximum=1,
        example=1,
        may_change=True,
    )

    def __post_init__(self) -> None:
        """Checks every field by its rule, then what fields say together."""
        super().__post_init__()
        _check_name("model", self.model, ("net",))
        _check_name("optimizer", self.optimizer, OPTIMIZERS)
        _check_class_weights(self.class_weights)
        _check_init_from(self.init_from, self.model)
        if self.batch_size * self.accumulate_steps > _MOST:
            raise ConfigError(
                f"--batch_size ({self.batch_size}) times --accumulate_steps"
                f" ({self.accumulate_steps}) must be at most {_MOST:,}."
            )
        if self.crop >= self.image_size:
            raise ConfigError(
                f"--crop ({self.crop}) must be below --image_size"
                f" ({self.image_size}); for example --crop=4."
            )
        if self.cutout > self.image_size:
            raise ConfigError(
                f"--cutout ({self.cutout}) must be at most --image_size"
                f" ({self.image_size}); for example --cutout=8."
            )
        checkpoint_interval(self.checkpoint_every)
        if self.profile is not None:
            check_profile(self.profile, self.steps)
        if self.early_stopping is not None and not self.eval_every:
            raise ConfigError(
                f"--early_stopping ({self.early_stopping}) needs evaluations to"
                " go by; use --eval_every=1 or more."
            )
        if self.resume == "must" and self.run_dir is None:
            raise ConfigError(
                "--resume (must) needs --run_dir, the directory of the run to"
                " go on with."
            )
        if self.on_nan == "rewind" and not self.keep_checkpoints:
            raise ConfigError(
                "--on_nan (rewind) needs checkpoints to go back to; use"
                " --keep_checkpoints=1 or more."
            )
        is_own = self.optimizer not in OPTIMIZERS
        self._only_with("momentum", "optimizer", "sgd")
        self._only_with("decay", "schedule", "step")
        self._only_with("decay_every", "schedule", "step")
        if self.schedule == "one_cycle" and self.warmup_steps:
            raise ConfigError(
                f"--warmup_steps ({self.warmup_steps}) must be left out with"
                " --schedule=one_cycle, which rises by itself."
            )
        if self.optimizer == "ftrl" and self.weight_decay is not None:
            raise ConfigError(
                f"--weight_decay ({self.weight_decay}) is not for"
                " --optimizer=ftrl, which sets each weight anew from its"
                " gradients so far; leave it out."
            )
        if is_own and self.weight_decay is not None:
            raise ConfigError(
                f"--weight_decay ({self.weight_decay}) is for tfnet's own"
                f" choice of optimizers; --optimizer={self.optimizer} sets its"
                " own."
            )

    def _only_with(self, name: str, other: str, value: str) -> None:
        """Refuses a setting that another one leaves without an effect."""
        given = getattr(self, name)
        default = Config.__dataclass_fields__[name].default
        if getattr(self, other) != value and given != default:
            raise ConfigError(
                f"--{name} ({given}) is for --{other}={value} only; leave it"
                f" out with --{other}={getattr(self, other)}."
            )


def changed_settings(config: Config, before: Mapping[str, Any]) -> list[str]:
    """Names the settings that differ and may not, where a run goes on.

    Args:
      config: The settings now.
      before: Those of the run, by name; what it lacks was at its default.

    Returns:
      For each, in flag spelling, what it was and is.
    """
    changed = []
    for field in dataclasses.fields(config):
        was = before.get(field.name, field.default)
        now = getattr(config, field.name)
        if was != now and not field.metadata["may_change"]:
            changed.append(
                f"--{field.name} was {_shown(was)} and is {_shown(now)}"
            )
    return changed


def _check_name(flag: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known and not re.fullmatch(_OWN_FUNCTION, name):
        raise ConfigError(
            f"--{flag} ({name}) must be {', '.join(known)} or"
            f" package.module:function; for example --{flag}={known[0]}."
        )


def _check_init_from(path: str | None, model: str) -> None:
    endings = (".pt", ".pth", ".safetensors", ".npz")
    if path and path.endswith(endings) and model != "net":
        raise ConfigError(
            f"--init_from ({path}) is a file of the seed's network, for"
            f" --model=net; with --model={model}, give a run directory."
        )


def _check_class_weights(text: str | None) -> None:
    if text in (None, "balanced"):
        return
    try:
        weights = class_weight_numbers(text)
    except ValueError:
        weights = ()
    finite = all(0 <= weight <= 1e30 for weight in weights)
    if not finite or not any(weights):
        raise ConfigError(
            f"--class_weights ({text}) must be balanced, or numbers from 0"
            " to 1e30, one a class, not all 0, with commas between; for example"
            " --class_weights=1,2.5."
        )


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def checkpoint_interval(text: str) -> tuple[int | None, float | None]:
    """Returns the steps, or the seconds, in --checkpoint_every.

    Raises:
      ConfigError: It is neither.
    """
    match = re.fullmatch(r"(\d{1,9})|(\d{1,9}(?:\.\d{1,9})?)s", text)
    if match is None:
        raise ConfigError(
            f"--checkpoint_every ({text}) must be a number of steps, or of"
            " seconds with an s behind; for example --checkpoint_every=100 or"
            " --checkpoint_every=60s."
        )
    steps, seconds = match.groups()
    return int(steps or 0) or None, None if steps else float(seconds)


def profile_steps(text: str) -> tuple[int, int]:
    """Returns the first and the last step in --profile=100-120.

    Raises:
      ConfigError: They are none.
    """
    match = re.fullmatch(r"(\d{1,10})-(\d{1,10})", text)
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 1 <= first <= last <= _MOST:
        raise ConfigError(
            f"--profile ({text}) must be the first and the last step to"
            f" profile, counted from 1 and at most {_MOST:,}, with a - between;"
            " for example --profile=100-120."
        )
    return first, last


def check_profile(text: str, total: int | None) -> tuple[int, int]:
    """Returns the steps of --profile, which a run must have.

    Args:
      text: What was given.
      total: How many steps the run has; None: not known yet.

    Raises:
      ConfigError: They are none, or go beyond the end.
    """
    first, last = profile_steps(text)
    if total is not None and last > total:
        raise ConfigError(
            f"--profile ({text}) must end within the run's"
            f" {counted(total, 'step')}; for example --profile={total}-{total}."
        )
    return first, last


def class_weight_numbers(text: str) -> tuple[float, ...]:
    """Returns the numbers in --class_weights=1,2.5.

    Raises:
      ValueError: They are no numbers.
    """
    return tuple(float(part) for part in text.split(","))
