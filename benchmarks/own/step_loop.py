"""The compiled loop of tfnet alone, under a strategy or under none.

    python -m benchmarks.own.step_loop --data DIRECTORY --strategy mirrored|none

Trains two epochs, and prints the images/s and the loss of the last as JSON.
The program is tfnet's own in both cases; with `none`, its variables are plain
ones, and no strategy has a part in it.
"""

import argparse
import contextlib
import json
import time
import types
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inputs import EPOCHS
from tfnet.config import Config
from tfnet.devices.runtime import prepare_process


class _NoStrategy:
    """What the train function asks of a strategy, answered without one."""

    num_replicas_in_sync = 1
    extended = types.SimpleNamespace(worker_devices=("/device:CPU:0",))
    scope = staticmethod(contextlib.nullcontext)

    @staticmethod
    def run(function: Any, args: tuple = ()) -> Any:
        return function(*args)

    @staticmethod
    def experimental_local_results(value: Any) -> tuple:
        return (value,)


def make_train_function(
    data: Path, config: Config, *, mirrored: bool
) -> tuple[Any, Any]:
    """Returns tfnet's train function for the seed's network, and its data."""
    prepare_process(verbose=False)
    from tfnet import parts, training
    from tfnet.data.scaling import SEED
    from tfnet.models.pytorch import from_state_dict
    from tfnet.models.weights import read_weights

    devices = parts.start_devices(config)
    dataset = parts.open_dataset(config, tell=lambda text: None)
    strategy: Any = devices.strategy if mirrored else _NoStrategy()
    with strategy.scope():
        model = parts.build_model(config, len(dataset.class_names))
        from_state_dict(model, read_weights(data / "weights.npz"))
        optimizer = training.create_optimizer(
            config.optimizer,
            learning_rate=config.learning_rate,
            momentum=config.momentum,
        )
        state = training.TrainState(model, optimizer)
    function = training.TrainFunction(
        strategy,
        state,
        dataset.image_shape,
        parts.step_rule(config, dataset, SEED),
        lanes=devices.lanes,
    )
    return function, dataset


def train(function: Any, dataset: Any, config: Config) -> tuple[float, float]:
    """Trains; returns the images/s and the mean loss of the last epoch."""
    from tfnet import training

    for epoch in range(EPOCHS):
        begin, losses = time.perf_counter(), []
        for block in training.train_epoch(
            function,
            dataset.train,
            seed=config.seed,
            epoch=epoch,
            batch_size=config.batch_size,
            replicas=1,
            until_stop=lambda step: 2**31,
            learning_rate=lambda steps: np.full(
                len(steps), config.learning_rate
            ),
        ):
            losses.append(block.loss)
        seconds = time.perf_counter() - begin
    return len(dataset.train) / seconds, float(np.concatenate(losses).mean())


def main() -> None:
    """Trains, and prints what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=0.001)
    parser.add_argument(
        "--strategy", choices=("mirrored", "none"), default="mirrored"
    )
    arguments = parser.parse_args()
    config = Config(
        dataset=str(arguments.data),
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
    )
    function, dataset = make_train_function(
        arguments.data, config, mirrored=arguments.strategy == "mirrored"
    )
    rate, loss = train(function, dataset, config)
    print(json.dumps({"images_per_second": rate, "loss": loss}))


if __name__ == "__main__":
    main()
