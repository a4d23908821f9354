"""Kills runs at random moments, and compares them with unbroken ones.

    python -m benchmarks.kills [--kills 200] [--seed 0]

Trains small networks (SGD and Adam; BatchNormalization, dropout, flips and
crops; 1 and 2 replicas), each once unbroken and then again and again with
SIGKILL at a random moment of a phase, until the run has been killed as often
as asked and has ended by itself. What it leaves must be that of the unbroken
run: every bit of the weights, the optimizer and the averages, every row of
metrics.csv (but for its times), the confusion matrix and the figures.

The processes are forked from one that has imported TensorFlow and started
nothing of it, so that a start takes a second.
"""

import argparse
import collections
import csv
import dataclasses
import functools
import json
import os
import random
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfnet.runs import checkpoints

PHASES = (
    "start-up",
    "inner loop",
    "saving",
    "renaming",
    "evaluation",
    "export",
)
_LONGEST_SECONDS = {
    "start-up": 1.5,
    "inner loop": 1.0,
    "evaluation": 0.2,
    "export": 1.0,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """What is trained: the flags apart from the data and the directory."""

    name: str
    flags: tuple[str, ...]


CASES = (
    Case("SGD, 1 replica", ("--optimizer=sgd", "--devices=1")),
    Case(
        "Adam, 2 replicas",
        ("--optimizer=adam", "--devices=2", "--ema=0.9", "--precision=float16"),
    ),
    Case("Adam, 1 replica", ("--optimizer=adam", "--devices=1")),
    Case("SGD, 2 replicas", ("--optimizer=sgd", "--devices=2")),
)
_FLAGS = (
    "--image_size=16",
    "--model=benchmarks.kills:network",
    "--epochs=3",
    "--batch_size=15",
    "--logical_devices=2",
    "--learning_rate=0.01",
    "--schedule=cosine",
    "--flip",
    "--crop=2",
    "--log_every=6",
    "--checkpoint_every=4",
    "--noreport",
)


def network(image_shape: tuple[int, int, int], num_classes: int) -> Any:
    """Builds a network with state and randomness of every kind."""
    import keras

    return keras.Sequential(
        [
            keras.Input(image_shape),
            keras.layers.RandomTranslation(0.1, 0.1),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.MaxPooling2D(),
            keras.layers.Dropout(0.3),
            keras.layers.Flatten(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.GaussianNoise(0.1),
            keras.layers.Dense(num_classes),
        ]
    )


def make_data(place: Path) -> None:
    """Makes a folder of arrays: noise with a bright row for each class."""
    place.mkdir()
    generator = np.random.default_rng(0)
    for split, count in (("train", 398), ("test", 101)):
        labels = generator.integers(0, 5, count).astype(np.int32)
        images = generator.integers(0, 160, (count, 16, 16, 3))
        images[np.arange(count), labels * 3] += 90
        np.save(place / f"{split}_images.npy", images.astype(np.uint8))
        np.save(place / f"{split}_labels.npy", labels)


def run(flags: list[str], output: Path, doom: Callable[[], None]) -> int:
    """Runs the command in a process of its own, after `doom` there.

    Returns:
      Its exit code, or the negative number of the signal that ended it.
    """
    process = os.fork()
    if process == 0:
        # Never returns into the program it was forked from.
        code = 70
        try:
            with open(output, "wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            doom()
            code = _command(flags)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _command(flags: list[str]) -> int:
    from tfnet import Config, command_line, train

    sys.argv = ["tfnet.train", *flags]
    try:
        command_line.main("tfnet.train", "Train.", train.run, Config)
    except SystemExit as error:
        return int(error.code or 0)
    return 0


def kill_in(phase: str, generator: random.Random) -> None:
    """Arranges that this process is killed at a moment of a phase.

    Args:
      phase: One of `PHASES`.
      generator: Chooses the moment.
    """
    from tfnet import results, trainer

    if phase == "saving":
        _on_call(os, "fsync", generator, most=60)
    elif phase == "renaming":
        _on_call(os, "rename", generator, most=15)
    elif phase == "start-up":
        _after(generator.uniform(0, _LONGEST_SECONDS[phase]))
    else:
        owner, name = {
            "inner loop": (trainer.Trainer, "_train_epoch"),
            "evaluation": (trainer.Trainer, "_evaluate_now"),
            "export": (results, "export_model"),
        }[phase]
        delay = generator.uniform(0, _LONGEST_SECONDS[phase])
        _wrap(owner, name, before=lambda: _after(delay))


def _after(seconds: float) -> None:
    timer = threading.Timer(seconds, _die)
    timer.daemon = True
    timer.start()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _on_call(
    owner: Any, name: str, generator: random.Random, *, most: int
) -> None:
    """Kills at a call of a function, before it acts or after."""
    left = [generator.randrange(most)]
    acts_first = generator.random() < 0.5

    def count(*, is_over: bool) -> None:
        if is_over == acts_first and left[0] == 0:
            _die()
        if is_over:
            left[0] -= 1

    _wrap(
        owner,
        name,
        before=lambda: count(is_over=False),
        after=lambda: count(is_over=True),
    )


def _wrap(
    owner: Any,
    name: str,
    *,
    before: Callable[[], None],
    after: Callable[[], None] = lambda: None,
) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before()
        result = original(*args, **kwargs)
        after()
        return result

    setattr(owner, name, wrapped)


def kill_until_done(
    flags: list[str],
    directory: Path,
    generator: random.Random,
    kills: int,
) -> collections.Counter[str]:
    """Runs a command again and again until it was killed often enough.

    Returns:
      How often it was killed, by phase.

    Raises:
      RuntimeError: It ended by an error.
    """
    killed: collections.Counter[str] = collections.Counter()
    output = directory.with_suffix(".txt")
    phases: Iterator[str] = iter(())
    while True:
        phase = next(phases, None)
        if phase is None:
            order = list(PHASES)
            generator.shuffle(order)
            phases = iter(order)
            phase = next(phases)
        enough = sum(killed.values()) >= kills
        seed = generator.random()

        doom = functools.partial(kill_in, phase, random.Random(seed))
        code = run(
            [*flags, f"--run_dir={directory}"],
            output,
            (lambda: None) if enough else doom,
        )
        if code == -signal.SIGKILL:
            killed[phase] += 1
        elif code != 0:
            raise RuntimeError(f"exit code {code}: {output.read_text()}")
        elif enough:
            return killed
        elif sum(killed.values()) < kills:
            # It got through: begin again, elsewhere.
            directory = directory.with_name(f"{directory.name}x")


def what_it_left(directory: Path) -> dict[str, Any]:
    """Returns all of a run that must not depend on how it was stopped."""
    found = checkpoints.newest(directory / "checkpoints")
    assert found.checkpoint is not None, found.passed_over
    with open(directory / "metrics.csv", newline="") as file:
        rows = [
            {
                key: value
                for key, value in row.items()
                if key not in ("seconds", "images_per_second")
            }
            for row in csv.DictReader(file)
        ]
    record = json.loads((directory / "run.json").read_text())
    figures = ("test_loss", "test_accuracy", "class_accuracy", "steps", "best")
    return {
        "checkpoint": found.name,
        "arrays": {
            name: array.tobytes()
            for name, array in found.checkpoint.arrays.items()
        },
        "rows": rows,
        "confusion": (directory / "confusion.csv").read_text(),
        "figures": {name: record[name] for name in figures},
        "exit_reason": record["exit_reason"],
        "files": sorted(path.name for path in directory.iterdir()),
        "leftovers": [
            path.name
            for path in (directory / "checkpoints").iterdir()
            if path.name.startswith(".")
        ],
    }


def import_everything() -> None:
    """Imports what a run imports, and starts nothing."""
    from tfnet.devices.runtime import prepare_process

    prepare_process(verbose=False)
    from tfnet import trainer  # noqa: F401
    from tfnet.exports import saved_model  # noqa: F401


def main() -> None:
    """Kills, compares, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    import_everything()
    generator = random.Random(arguments.seed)
    each = -(-arguments.kills // len(CASES))
    print(f"| case | {' | '.join(PHASES)} | the same as unbroken |")
    print("|---|" + "---|" * (len(PHASES) + 1))
    is_good = True
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_data(place / "data")
        for number, case in enumerate(CASES):
            flags = [*_FLAGS, *case.flags, f"--dataset={place / 'data'}"]
            whole = place / f"whole{number}"
            code = run([*flags, f"--run_dir={whole}"], place / "out.txt", bool)
            assert code == 0, (place / "out.txt").read_text()
            killed, same, rounds = collections.Counter(), 0, 0
            while sum(killed.values()) < each:
                rounds += 1
                left = min(12, each - sum(killed.values()))
                broken = place / f"broken{number}-{rounds}"
                killed += kill_until_done(flags, broken, generator, left)
                # The last of those that it began.
                last = max(place.glob(f"{broken.name}*/"), key=str)
                same += what_it_left(last) == what_it_left(whole)
            is_good &= same == rounds
            counts = " | ".join(str(killed[phase]) for phase in PHASES)
            print(
                f"| {case.name} | {counts} | {same} of {rounds} runs |",
                flush=True,
            )
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
