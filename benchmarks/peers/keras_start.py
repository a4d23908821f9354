"""A stock Keras script, until it has trained on its first batch."""

import sys

import keras

from benchmarks.peers import common
from benchmarks.peers.keras_fit import build


class _Stop(keras.callbacks.Callback):
    """Says when the first batch was trained on, and ends the training."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Prints, and stops."""
        print("first step", flush=True)
        sys.exit(0)


def main() -> None:
    """Trains on one batch."""
    work = common.read(common.parser(__doc__).parse_args())
    model = build(work)
    model.compile(
        keras.optimizers.SGD(work.rate, momentum=common.MOMENTUM),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        work.scaled(),
        work.labels,
        batch_size=work.batch_size,
        callbacks=[_Stop()],
        verbose=0,
    )


if __name__ == "__main__":
    main()
