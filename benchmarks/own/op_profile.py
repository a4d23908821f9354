"""Where the time of a step goes, by operation.

    python -m benchmarks.own.op_profile --data DIRECTORY --batch_size 4

Trains some steps, then the same number under TensorFlow's profiler, and prints
JSON: the seconds of a step, and those of each kind of operation in it.
TensorFlow records no operation that it deems cheap: what is left of a step are
those, and what it takes to call them all.
"""

import argparse
import collections
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.own.step_loop import make_train_function
from tfnet.config import Config

_STEPS = 200


def main() -> None:
    """Profiles, and prints what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--batch_size", type=int, default=4)
    arguments = parser.parse_args()
    config = Config(
        dataset=str(arguments.data), batch_size=arguments.batch_size
    )
    function, dataset = make_train_function(
        arguments.data, config, mirrored=True
    )
    with tempfile.TemporaryDirectory() as folder:
        seconds = _train_profiled(function, dataset, config, Path(folder))
        picoseconds = _times(Path(folder))
    print(
        json.dumps(
            {
                "seconds_per_step": seconds / _STEPS,
                "operations": {
                    name: time * 1e-12 / _STEPS
                    for name, time in picoseconds.most_common()
                },
            }
        )
    )


def _train_profiled(
    function: Any, dataset: Any, config: Config, folder: Path
) -> float:
    """Trains; returns the seconds of the steps that were profiled."""
    import tensorflow as tf

    from tfnet import training

    def blocks() -> Iterator[Any]:
        return training.train_epoch(
            function,
            dataset.train,
            seed=0,
            epoch=0,
            batch_size=config.batch_size,
            replicas=1,
            steps=_STEPS,
            until_stop=lambda step: _STEPS,
            learning_rate=lambda steps: np.full(len(steps), 0.001),
        )

    for _ in blocks():
        pass
    tf.profiler.experimental.start(str(folder))
    seconds = sum(block.seconds for block in blocks())
    tf.profiler.experimental.stop()
    return seconds


def _times(folder: Path) -> "collections.Counter[str]":
    """Returns the picoseconds that each kind of operation took."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (file,) = folder.glob("**/*.xplane.pb")
    space = xplane_pb2.XSpace()
    space.ParseFromString(file.read_bytes())
    found: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        if plane.name != "/host:CPU":
            continue
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                # Operations are name:kind; the rest is the executor's own.
                label, colon, kind = name.rpartition(":")
                is_call = not kind.isidentifier() or kind.startswith("__")
                if colon and not label.endswith(":") and not is_call:
                    found[kind] += event.duration_ps
    return found


if __name__ == "__main__":
    main()
