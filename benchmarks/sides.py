"""The sides of the comparisons: how each is started, and what it shows."""

import csv
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import process
from benchmarks.process import Outcome

REPOSITORY = Path(__file__).parent.parent
# What chooses kernels or devices is the same for all, whatever the shell has.
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}


@dataclasses.dataclass(frozen=True)
class Figures:
    """What a side has shown in one round.

    Attributes:
      value: In the unit of its comparison.
      loss: The mean training loss of the last epoch; None: it does not train.
    """

    value: float
    loss: float | None = None


@dataclasses.dataclass(frozen=True)
class Side:
    """One way to do the work of a comparison.

    Attributes:
      name: What it is, as the table says it.
      command: From a directory of its own to program and arguments.
      read: From what it has shown, and that directory, to its figures.
      environment: Added to that of all.
      on_terminal: Whether its output goes to a terminal.
      measure_memory: Whether its memory is measured.
    """

    name: str
    command: Callable[[Path], Sequence[str]]
    read: Callable[[Outcome, Path], Figures]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    on_terminal: bool = False
    measure_memory: bool = False

    def run(self, place: Path) -> Figures:
        """Does the work once, in a process of its own.

        Args:
          place: A directory for what it writes; it must not exist.

        Raises:
          SideError: It failed.
        """
        place.mkdir()
        outcome = process.run(
            self.command(place),
            directory=REPOSITORY,
            environment={**ENVIRONMENT, **self.environment},
            on_terminal=self.on_terminal,
            measure_memory=self.measure_memory,
        )
        return self.read(outcome, place)


def tfnet_train(
    name: str,
    data: Path,
    flags: Sequence[str],
    read: Callable[[Outcome, Path], Figures],
    **more: bool,
) -> Side:
    """Returns the side that is `python -m tfnet.train`."""

    def command(place: Path) -> list[str]:
        run_dir = f"--run_dir={place / 'run'}"
        program = [sys.executable, "-m", "tfnet.train", f"--dataset={data}"]
        return [*program, run_dir, *flags]

    return Side(name, command, read, **more)  # type: ignore[arg-type]


def peer(
    name: str,
    python: str,
    module: str,
    arguments: Sequence[str],
    read: Callable[[Outcome, Path], Figures] | None = None,
    **more: bool,
) -> Side:
    """Returns the side that is a module of this package."""

    def command(place: Path) -> list[str]:
        return [python, "-m", f"benchmarks.{module}", *arguments]

    return Side(
        name,
        command,
        read or images_per_second,
        **more,  # type: ignore[arg-type]
    )


def images_per_second(outcome: Outcome, place: Path) -> Figures:
    """Reads what a peer prints."""
    shown = outcome.json()
    return Figures(shown["images_per_second"], shown.get("loss"))


def seconds(outcome: Outcome, place: Path) -> Figures:
    """Reads how long the whole process took."""
    return Figures(outcome.seconds)


def seconds_to(text: str) -> Callable[[Outcome, Path], Figures]:
    """Reads how long it took to a line that holds `text`."""
    return lambda outcome, place: Figures(outcome.time_of(text))


def peak_resident(outcome: Outcome, place: Path) -> Figures:
    """Reads the most memory it had, in MiB: what is shared counts for each."""
    return Figures(outcome.peak.resident / 2**20)


def peak_proportional(outcome: Outcome, place: Path) -> Figures:
    """Reads the most memory it had, in MiB: what is shared counts once."""
    return Figures(outcome.peak.proportional / 2**20)


def whole_run(outcome: Outcome, place: Path) -> Figures:
    """Reads the images/s of a whole run from its run.json."""
    record = json.loads((place / "run" / "run.json").read_text())
    return Figures(record["images_per_second"])


def last_epoch(batch_size: int) -> Callable[[Outcome, Path], Figures]:
    """Reads the last epoch of a run from its metrics.csv."""

    def read(outcome: Outcome, place: Path) -> Figures:
        with open(place / "run" / "metrics.csv", newline="") as file:
            rows = [
                row for row in csv.DictReader(file) if row["split"] == "train"
            ]
        last = max(int(row["epoch"]) for row in rows)
        begin = max(
            (int(row["step"]) for row in rows if int(row["epoch"]) < last),
            default=0,
        )
        steps, spent, loss = 0, 0.0, 0.0
        for row in rows:
            if int(row["epoch"]) == last:
                done = int(row["step"]) - begin
                begin += done
                steps += done
                spent += done * batch_size / float(row["images_per_second"])
                loss += done * float(row["loss"])
        return Figures(steps * batch_size / spent, loss / steps)

    return read
