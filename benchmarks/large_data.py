"""Peak memory of a run as the data set grows beyond it.

    python -m benchmarks.large_data DIRECTORY --gigabytes 0.5 2 8

Makes up array folders of these sizes below DIRECTORY, trains 2,000 batches of
64 on each with the installed tfnet in a process of its own, removes them, and
prints the peak resident size and the rate of each run. What grows with the
set is its order and its labels, 8 bytes an image.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

_IMAGE_BYTES = 32 * 32 * 3
_TEST_IMAGES = 1000


def make_array_folder(place: Path, gigabytes: float) -> int:
    """Writes random images and labels; returns the number of images."""
    count = int(gigabytes * 2**30) // _IMAGE_BYTES
    random = np.random.default_rng(0)
    chunk = random.integers(0, 256, (20_000, 32, 32, 3), dtype=np.uint8)
    place.mkdir(parents=True)
    with open(place / "train_images.npy", "wb") as file:
        header = {
            "descr": "|u1",
            "fortran_order": False,
            "shape": (count, 32, 32, 3),
        }
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, count, len(chunk)):
            file.write(chunk[: count - start].data)
    for name, values in {
        "train_labels": random.integers(0, 10, count),
        "test_images": chunk[:_TEST_IMAGES],
        "test_labels": np.arange(_TEST_IMAGES) % 10,
    }.items():
        np.save(place / f"{name}.npy", values)
    return count


def train(place: Path) -> tuple[float, float]:
    """Returns the peak resident size, in MiB, and the images per second."""
    run_dir = place / "run"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tfnet.train",
            f"--dataset={place}",
            "--batch_size=64",
            "--steps=2000",
            "--epochs=1000",
            "--eval_every=0",
            "--noexport",
            f"--run_dir={run_dir}",
        ],
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the run on {place} failed with status {status}")
    record = json.loads((run_dir / "run.json").read_text())
    return usage.ru_maxrss / 1024, record["images_per_second"]


def main() -> None:
    """Measures each size in turn."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--gigabytes", type=float, nargs="+", default=[0.5, 2, 8]
    )
    arguments = parser.parse_args()
    print("images      size       peak resident  images/s")
    for gigabytes in arguments.gigabytes:
        place = arguments.directory / f"made-up-{gigabytes}"
        try:
            count = make_array_folder(place, gigabytes)
            peak, rate = train(place)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        print(
            f"{count:10,}  {gigabytes:5.1f} GiB"
            f"  {peak:9,.0f} MiB  {rate:8,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
