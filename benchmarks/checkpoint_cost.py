"""Measures what saving checkpoints costs a run.

    python -m benchmarks.checkpoint_cost [--every 100] [--rounds 8] [FLAGS...]

Trains the seed's network, in turns, without a checkpoint and with one every so
many steps, each time in a process of its own, and compares each with its
neighbour, since the speed of a shared machine drifts. Other flags are those of
`tfnet.train`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    """Runs all, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", default="100")
    parser.add_argument("--rounds", type=int, default=8)
    arguments, flags = parser.parse_known_args()
    ratios: dict[str, list[float]] = {"images/s": [], "whole command": []}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for number in range(arguments.rounds):
            place = Path(folder)
            without = _train(
                [*flags, "--keep_checkpoints=0"], place / f"{number}-without"
            )
            with_ = _train(
                [*flags, f"--checkpoint_every={arguments.every}"],
                place / f"{number}-with",
            )
            ratios["images/s"].append(with_[0] / without[0])
            ratios["whole command"].append(without[1] / with_[1])
            print(
                f"images/s {without[0]:,.0f} and {with_[0]:,.0f}, whole"
                f" command {without[1]:.1f} s and {with_[1]:.1f} s",
                flush=True,
            )
    print("| speed with checkpoints to without | median | range |")
    print("|---|---|---|")
    for what, found in ratios.items():
        print(
            f"| {what} | {statistics.median(found):.3f} |"
            f" {min(found):.3f} to {max(found):.3f} |"
        )


def _train(flags: list[str], place: Path) -> tuple[float, float]:
    """Trains; returns the images per second, and the seconds of it all."""
    command = [sys.executable, "-m", "tfnet.train", f"--run_dir={place}"]
    begin = time.monotonic()
    done = subprocess.run(
        [*command, *flags], capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    record = json.loads((place / "run.json").read_text())
    return record["images_per_second"], seconds


if __name__ == "__main__":
    main()
