"""Every setting of a run, once: its name, default, help and rule.

Owns what a valid setting is. Does not know the command line (see
`command_line`), devices or data. Imports the standard library only.
"""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

from tfnet.errors import ConfigError

OPTIMIZERS = ("sgd", "adam", "adamw")


def _setting(
    default: Any,
    help: str,
    *,
    kind: type,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    example: Any = None,
) -> Any:
    """Describes one field of `Config`; the bounds are part of its rule."""
    rule = {
        "kind": kind,
        "minimum": minimum,
        "above": above,
        "maximum": maximum,
        "below": below,
        "choices": choices,
        "example": default if example is None else example,
    }
    return dataclasses.field(
        default=default, metadata={"help": help, "rule": rule}
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of one run, valid by construction.

    Every field is also a flag of the commands, under the same name. None
    stands for a setting left to tfnet; the help of the field says what it
    then does.

    Raises:
      ConfigError: A value breaks its rule. The text names the flag, the
        value, the rule and a value that works.
    """

    dataset: str | None = _setting(
        None,
        "What to train on: cifar10, fashion_mnist_10k (the bundled sample),"
        " the name of an image classification set of TensorFlow Datasets, or"
        " a folder: of images (root/split/class/file or root/class/file), or"
        " of arrays (train_images.npy, train_labels.npy, test_images.npy,"
        " test_labels.npy). Left unset: CIFAR-10 where a copy is found or can"
        " be downloaded, else the bundled sample.",
        kind=str,
        example="cifar10",
    )
    data_dir: str | None = _setting(
        None,
        "Where to look for cifar10 and TensorFlow Datasets, and where they"
        " are downloaded to. Left unset: their usual places.",
        kind=str,
        example="~/data",
    )
    cache_dir: str | None = _setting(
        None,
        "Where image folders and TensorFlow Datasets are kept decoded, for"
        " the next run. Left unset: $XDG_CACHE_HOME/tfnet, or"
        " ~/.cache/tfnet.",
        kind=str,
        example="/var/tmp/tfnet",
    )
    image_size: int = _setting(
        32,
        "Height and width, in pixels, that every image is brought to.",
        kind=int,
        minimum=1,
        maximum=4096,
    )
    model: str = _setting(
        "net",
        "The network: net (the seed's, 62,006 parameters at the defaults), or"
        " package.module:function, called as function(image_shape,"
        " num_classes), which returns a Keras 3 model that takes float32"
        " images in [-1, 1] and gives logits.",
        kind=str,
    )
    epochs: int = _setting(
        2, "How often to go over the training data.", kind=int, minimum=1
    )
    steps: int | None = _setting(
        None,
        "Stop after this many steps (batches) in all, if the epochs have not"
        " ended before.",
        kind=int,
        minimum=1,
        example=1000,
    )
    batch_size: int = _setting(
        4,
        "Examples in one step, over all devices together (the global batch).",
        kind=int,
        minimum=1,
    )
    optimizer: str = _setting(
        "sgd", "How the weights follow the gradient.", kind=str,
        choices=OPTIMIZERS,
    )  # fmt: skip
    learning_rate: float = _setting(
        0.001, "The learning rate of the optimizer.", kind=float, above=0
    )
    momentum: float = _setting(
        0.9,
        "The momentum of --optimizer=sgd: v = momentum * v + gradient,"
        " weight = weight - learning_rate * v.",
        kind=float,
        minimum=0,
        below=1,
    )
    seed: int = _setting(
        0,
        "Fixes the initial weights and the order of the data.",
        kind=int,
        minimum=0,
        maximum=2**32 - 1,
    )
    devices: int | None = _setting(
        None,
        "How many devices to train on. Left unset: all visible GPUs, or the"
        " CPU where there is none.",
        kind=int,
        minimum=1,
        example=2,
    )
    logical_devices: int = _setting(
        1,
        "Split each GPU, or the CPU where there is none, into this many"
        " logical devices.",
        kind=int,
        minimum=1,
        maximum=64,
    )
    memory_growth: bool = _setting(
        True,
        "Take GPU memory as it is needed, instead of all of it at the start.",
        kind=bool,
    )
    threads: int | None = _setting(
        None,
        "Threads that one operation may use on the CPU. Left unset: one for"
        " batches below 32, which are faster that way, else all cores.",
        kind=int,
        minimum=1,
        maximum=1024,
        example=1,
    )
    log_every: int = _setting(
        2000,
        "Print the mean loss, and add a line to metrics.csv, every so many"
        " batches.",
        kind=int,
        minimum=1,
    )
    eval_every: int = _setting(
        1,
        "Evaluate on the test data every so many epochs, and always at the"
        " end; 0: only at the end.",
        kind=int,
        minimum=0,
    )
    export: bool = _setting(
        True, "Leave a SavedModel in the run directory.", kind=bool
    )
    run_dir: str | None = _setting(
        None,
        "The directory that the run makes and fills. Left unset:"
        " runs/<dataset>-<model>-<date>-<time>.",
        kind=str,
        example="runs/first",
    )
    dry_run: bool = _setting(
        False,
        "Try a few steps of everything on a few examples, and write nothing.",
        kind=bool,
    )
    verbosity: int = _setting(
        0,
        "1 also shows TensorFlow's own messages, and where an error arose.",
        kind=int,
        minimum=0,
        maximum=1,
        example=1,
    )

    def __post_init__(self) -> None:
        """Checks every field by its rule, then what fields say together."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            checked = _check(field, value)
            object.__setattr__(self, field.name, checked)
        _check_model_name(self.model)
        if self.optimizer != "sgd" and self.momentum != _default("momentum"):
            raise ConfigError(
                f"--momentum ({self.momentum}) is for --optimizer=sgd only;"
                f" leave it out with --optimizer={self.optimizer}."
            )

    @classmethod
    def from_flags(cls, arguments: Sequence[str] = ()) -> "Config":
        """Makes a Config from command-line flags, given as a list.

        Args:
          arguments: Flags as a shell passes them, without a program's name,
            such as `['--flagfile=flags/seed.flags', '--epochs=1']`.

        Returns:
          The settings. Neither `sys.argv` nor absl's FLAGS is touched.

        Raises:
          ConfigError: A flag is unknown or its value breaks its rule.
        """
        from tfnet import command_line

        return command_line.parse(arguments)


def wrong_value(name: str, value: Any) -> ConfigError:
    """Returns the error for a `value` that breaks the rule of field `name`."""
    field = next(f for f in dataclasses.fields(Config) if f.name == name)
    shown = "" if value is None else str(value)
    if not shown.isprintable():
        shown = repr(shown)
    return ConfigError(
        f"--{name} ({shown}) must be {rule_text(field)};"
        f" for example {_example(field)}."
    )


def rule_text(field: dataclasses.Field) -> str:
    """Returns the rule of a field of `Config` in words."""
    rule = field.metadata["rule"]
    if rule["choices"]:
        *most, last = rule["choices"]
        return f"{', '.join(most)} or {last}"
    if rule["kind"] is bool:
        return "true or false"
    if rule["kind"] is str:
        return "text without line breaks or blanks at its ends"
    words = {int: "a whole number,", float: "a finite number,"}[rule["kind"]]
    bounds = [
        f"{label} {rule[key]:,}"
        for key, label in (
            ("minimum", "at least"),
            ("above", "above"),
            ("maximum", "at most"),
            ("below", "below"),
        )
        if rule[key] is not None
    ]
    return f"{words} {' and '.join(bounds)}".rstrip(" ,")


def _example(field: dataclasses.Field) -> str:
    example = field.metadata["rule"]["example"]
    if isinstance(example, bool):
        return f"--{'' if example else 'no'}{field.name}"
    return f"--{field.name}={example}"


def _default(name: str) -> Any:
    return Config.__dataclass_fields__[name].default


def _check(field: dataclasses.Field, value: Any) -> Any:
    """Returns `value` in the type of `field`, or raises ConfigError."""
    rule = field.metadata["rule"]
    kind = rule["kind"]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    is_kind = isinstance(value, kind) and (
        kind is bool or not isinstance(value, bool)
    )
    if not is_kind or not _within(rule, value):
        raise wrong_value(field.name, value)
    return value


def _within(rule: dict[str, Any], value: Any) -> bool:
    if rule["kind"] is bool:
        return True
    if rule["kind"] is str:
        if rule["choices"]:
            return value in rule["choices"]
        # config.flags must be able to hold it on a line of its own.
        return value != "" and value == value.strip() and value.isprintable()
    return (
        math.isfinite(value)
        and (rule["minimum"] is None or value >= rule["minimum"])
        and (rule["above"] is None or value > rule["above"])
        and (rule["maximum"] is None or value <= rule["maximum"])
        and (rule["below"] is None or value < rule["below"])
    )


def _check_model_name(model: str) -> None:
    if model != "net" and not re.fullmatch(r"[\w.]+:\w+", model):
        raise ConfigError(
            f"--model ({model}) must be net or package.module:function; for"
            " example --model=net."
        )
