"""The evaluation of tfnet alone, on test images in memory.

    python -m benchmarks.own.evaluation --data DIRECTORY

Prints the images/s, the loss and the accuracy as JSON: the median of some
evaluations, after one that compiles.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

from tfnet.config import Config

_TIMES = 7


def main() -> None:
    """Evaluates, and prints what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data

    from tfnet import parts

    # All threads, as a run at a large batch has them.
    config = Config(dataset=str(data), batch_size=256)
    devices = parts.start_devices(config)
    from tfnet import training
    from tfnet.data.scaling import SEED
    from tfnet.models.pytorch import from_state_dict
    from tfnet.models.weights import read_weights

    dataset = parts.open_dataset(config, tell=lambda text: None)
    classes = len(dataset.class_names)
    with devices.strategy.scope():
        model = parts.build_model(config, classes)
        from_state_dict(model, read_weights(data / "weights.npz"))
    function = training.create_evaluate_function(
        devices.strategy,
        model,
        classes,
        SEED,
        lanes=devices.evaluation_lanes,
    )
    seconds = []
    for _ in range(_TIMES + 1):
        begin = time.perf_counter()
        found = training.evaluate(function, devices.strategy, dataset.test)
        seconds.append(time.perf_counter() - begin)
    rate = len(dataset.test) / statistics.median(seconds[1:])
    print(
        json.dumps(
            {
                "images_per_second": rate,
                "loss": found.loss,
                "accuracy": found.accuracy,
            }
        )
    )


if __name__ == "__main__":
    main()
