"""What is compared: each piece of work, its rivals and its targets."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import inputs, process
from benchmarks.comparison import Comparison, Rival
from benchmarks.inputs import EPOCHS, Source
from benchmarks.process import Outcome
from benchmarks.sides import (
    ENVIRONMENT,
    REPOSITORY,
    Figures,
    Side,
    last_epoch,
    peak_proportional,
    peak_resident,
    peer,
    seconds,
    seconds_to,
    tfnet_train,
    whole_run,
)

_BARE = ("--noreport", "--noexport")
_ALL_OFF = (
    *_BARE, "--keep_checkpoints=0", "--eval_every=0", "--log_every=1000000"
)  # fmt: skip
# A step of larger batches needs a larger rate to have learnt anything.
_RATES = {4: 0.001, 64: 0.01, 256: 0.02, 1024: 0.04}
# Images of an epoch: multiples of the batch, a few seconds for the slowest.
_QUICK = {4: 6_000, 64: 19_200, 256: 25_600, 1024: 24_576}
_FULL = {4: 16_000, 64: 49_920, 256: 49_920, 1024: 49_152}
_FEW, _MANY = 10_000, 4_000_000


@dataclasses.dataclass(frozen=True)
class Suite:
    """Makes the comparisons.

    Attributes:
      source: The images.
      place: A directory for what they read.
      peers: A Python that has PyTorch, JAX and Lightning.
      is_full: Whether all forms of each peer run, on all images.
    """

    source: Source
    place: Path
    peers: str
    is_full: bool

    def comparisons(self) -> dict[str, Callable[[], Comparison]]:
        """Returns what makes each of them, by their keys."""
        made: dict[str, Callable[[], Comparison]] = {
            "recipe": self._recipe,
            "first-step": self._first_step,
            "strategy": self._strategy,
            "two-devices-4": self._two_devices,
            "everything-on": self._everything_on,
            "evaluation": self._evaluation,
            "predict": self._predict,
            "memory": functools.partial(
                self._memory,
                "memory",
                "resident memory of all its processes (RSS)",
                peak_resident,
            ),
            "memory-once": functools.partial(
                self._memory,
                "memory-once",
                "the same, what processes share counted once (PSS)",
                peak_proportional,
            ),
        }
        for size in _RATES:
            made[f"batch-{size}"] = functools.partial(self._throughput, size)
        for size in (64, 256):
            made[f"bfloat16-{size}"] = functools.partial(self._bfloat16, size)
        for number in (2, 4, 8):
            made[f"devices-{number}"] = functools.partial(
                self._logical_devices, number
            )
        if self.is_full:
            made["growth"] = self._growth
        return made

    def profile_of(self, batch_size: int) -> dict[str, Any]:
        """Returns where the time of a step goes: what `own.op_profile` says."""
        return process.run(
            [
                sys.executable,
                "-m",
                "benchmarks.own.op_profile",
                f"--data={self._data(batch_size)}",
                f"--batch_size={batch_size}",
            ],
            directory=REPOSITORY,
            environment=ENVIRONMENT,
        ).json()

    def _data(self, batch_size: int) -> Path:
        images = (_FULL if self.is_full else _QUICK)[batch_size]
        place = self.place / f"data-{images}"
        if not place.exists():
            inputs.write_part(place, self.source, images)
        return place

    def _tfnet(
        self, batch_size: int, *flags: str, name: str = "tfnet",
        on_terminal: bool = False,
    ) -> Side:  # fmt: skip
        data = self._data(batch_size)
        return tfnet_train(
            name,
            data,
            [
                f"--batch_size={batch_size}",
                f"--learning_rate={_RATES[batch_size]}",
                f"--epochs={EPOCHS}",
                f"--init_from={data / 'weights.npz'}",
                *(flags or _BARE),
            ],
            last_epoch(batch_size),
            on_terminal=on_terminal,
        )

    def _peer(self, batch_size: int, module: str, *options: str) -> Side:
        name = " ".join([module, *options]).replace("--", "")
        is_tensorflow = module.startswith(("keras", "bare", "tf_"))
        return peer(
            name,
            sys.executable if is_tensorflow else self.peers,
            f"peers.{module}",
            [
                f"--data={self._data(batch_size)}",
                f"--batch_size={batch_size}",
                f"--learning_rate={_RATES[batch_size]}",
                f"--epochs={EPOCHS}",
                *options,
            ],
        )

    def _forms(
        self, batch_size: int, module: str, quick: Sequence[str],
        full: Sequence[str],
    ) -> list[Side]:  # fmt: skip
        """Returns the forms of a peer; options of each with blanks between."""
        forms = [*quick, *(full if self.is_full else ())]
        return [self._peer(batch_size, module, *one.split()) for one in forms]

    def _throughput(self, batch_size: int) -> Comparison:
        is_small = batch_size == 4
        threads = "--threads 1", "--threads 2"
        best_torch = self._forms(
            batch_size,
            "torch_memory",
            threads if is_small else threads[1:],
            [
                "--threads 2 --channels_last",
                "--threads 2 --compile",
                "--threads 1 --compile",
                *(() if is_small else threads[:1]),
            ],
        )
        best_keras = self._forms(
            batch_size,
            "keras_fit",
            [
                "--input numpy --steps_per_execution 100 --intra_threads 1"
                if is_small
                else "--input numpy --steps_per_execution 20",
            ],
            [
                "--input numpy",
                "--input tfdata",
                "--input tfdata --steps_per_execution 50",
                "--input tfdata --steps_per_execution 50 --intra_threads 1",
            ],
        )
        best_jax = self._forms(
            batch_size,
            "jax_scan",
            ["--per_step"],
            ["", "--per_step --threads 1"],
        )
        rivals = [
            Rival("best PyTorch", best_torch, 2.0 if is_small else 1.2),
            Rival("best Keras `fit`", best_keras, 1.5 if is_small else 1.2),
            Rival("best JAX", best_jax, 2.0 if is_small else 1.5),
            Rival(
                "bare loop",
                self._forms(
                    batch_size,
                    "bare_loop",
                    ["--intra_threads 1" if is_small else "--intra_threads 2"],
                    [],
                ),
            ),
        ]
        if is_small:
            script = self._peer(batch_size, "seed_script")
            rivals.insert(0, Rival("the seed's script", [script], 5.5))
        if self.is_full:
            lightning = self._peer(batch_size, "torch_lightning")
            rivals.append(Rival("Lightning", [lightning]))
        return Comparison(
            f"batch-{batch_size}",
            f"training at batch {batch_size:,}",
            "images/s",
            self._tfnet(batch_size),
            rivals,
        )

    def _recipe(self) -> Comparison:
        data = self.source.arrays
        ours = tfnet_train(
            "tfnet", data, [f"--epochs={EPOCHS}", "--batch_size=4"], seconds
        )
        script = peer(
            "seed_script",
            self.peers,
            "peers.seed_script",
            [
                f"--data={data}", "--batch_size=4", "--learning_rate=0.001",
                f"--epochs={EPOCHS}",
            ],
            seconds,
        )  # fmt: skip
        return Comparison(
            "recipe",
            "the seed's recipe, from process start to the saved model",
            "s",
            ours,
            [Rival("the seed's script and torch.save", [script], 4.0)],
            more_is_better=False,
        )

    def _bfloat16(self, batch_size: int) -> Comparison:
        return Comparison(
            f"bfloat16-{batch_size}",
            f"training at batch {batch_size} in bfloat16",
            "images/s",
            self._tfnet(
                batch_size, *_BARE, "--precision=bfloat16", name="bfloat16"
            ),
            [Rival("float32", [self._tfnet(batch_size)])],
        )

    def _strategy(self) -> Comparison:
        def side(strategy: str) -> Side:
            options = f"--data={self._data(4)}", f"--strategy={strategy}"
            return peer(strategy, sys.executable, "own.step_loop", options)

        return Comparison(
            "strategy",
            "MirroredStrategy over one device, batch 4",
            "images/s",
            side("mirrored"),
            [Rival("the same loop, no strategy", [side("none")], 0.98)],
        )

    def _logical_devices(self, devices: int) -> Comparison:
        targets = {2: 0.95, 4: 0.9, 8: 0.7}
        return Comparison(
            f"devices-{devices}",
            f"{devices} logical devices, global batch 256",
            "images/s",
            self._tfnet(
                256, *_BARE, f"--logical_devices={devices}", name=f"{devices}"
            ),
            [Rival("one device", [self._tfnet(256)], targets[devices])],
        )

    def _two_devices(self) -> Comparison:
        two = "--logical_devices", "2"
        return Comparison(
            "two-devices-4",
            "2 logical devices, global batch 4",
            "images/s",
            self._tfnet(4, *_BARE, "--logical_devices=2"),
            [
                Rival("Keras `fit`", [self._peer(4, "keras_fit", *two)], 4.0),
                Rival(
                    "a loop over a distributed data set",
                    [self._peer(4, "tf_distributed", *two)],
                    2.0,
                ),
            ],
        )

    def _everything_on(self) -> Comparison:
        return Comparison(
            "everything-on",
            "progress, log, TensorBoard, a checkpoint every 100 steps; batch 4",
            "images/s",
            self._tfnet(
                4,
                *_BARE,
                "--checkpoint_every=100",
                "--log_every=100",
                "--tensorboard",
                name="all on",
                on_terminal=True,
            ),
            [
                Rival(
                    "all off", [self._tfnet(4, *_ALL_OFF, name="all off")], 0.95
                )
            ],
        )

    def _evaluation(self) -> Comparison:
        data = f"--data={self.source.arrays}"
        return Comparison(
            "evaluation",
            "evaluation of 10,000 images in memory",
            "images/s",
            peer("tfnet", sys.executable, "own.evaluation", [data]),
            [
                Rival(
                    "PyTorch eager, its best batch",
                    [
                        peer(
                            "torch_evaluate",
                            self.peers,
                            "peers.torch_evaluate",
                            [data],
                        )
                    ],
                    1.5,
                )
            ],
        )

    def _first_step(self) -> Comparison:
        data = self._data(4)
        ours = tfnet_train(
            "tfnet",
            data,
            [*_BARE, "--steps=1", "--log_every=1"],
            seconds_to("[1,     1] loss"),
        )
        script = peer(
            "keras_start",
            sys.executable,
            "peers.keras_start",
            [f"--data={data}"],
            seconds_to("first step"),
        )
        return Comparison(
            "first-step",
            "process start to the first trained step",
            "s",
            ours,
            [Rival("a stock Keras script", [script], 1.0)],
            more_is_better=False,
        )

    def _predict(self) -> Comparison:
        model = self.place / "trained"
        if not model.exists():
            model.mkdir()
            # Any trained model: one step is enough.
            flags = ["--noreport", "--steps=1"]
            made = tfnet_train("tfnet", self._data(4), flags, seconds)
            made.run(model / "side")
        saved = str(model / "side" / "run" / "saved_model")
        return Comparison(
            "predict",
            "`predict` on 10,000 image files",
            "s",
            _program("tfnet", ["tfnet.predict", saved, str(self.source.files)]),
            [
                Rival(
                    "a TensorFlow script that decodes in tf.data",
                    [
                        _program(
                            "tf_predict",
                            [
                                "benchmarks.peers.tf_predict",
                                saved,
                                str(self.source.files),
                            ],
                        )
                    ],
                    1.5,
                )
            ],
            more_is_better=False,
        )

    def _memory(
        self, key: str, how: str, read: Callable[[Outcome, Path], Figures]
    ) -> Comparison:
        data = self.source.arrays
        ours = tfnet_train(
            "tfnet",
            data,
            ["--epochs=1", "--batch_size=4", "--steps=4000"],
            read,
            measure_memory=True,
        )
        script = peer(
            "seed_script",
            self.peers,
            "peers.seed_script",
            [
                f"--data={data}", "--batch_size=4", "--learning_rate=0.001",
                "--epochs=1", "--limit=4000",
            ],
            read,
            measure_memory=True,
        )  # fmt: skip
        return Comparison(
            key,
            f"peak on CIFAR-10, {how}",
            "MiB",
            ours,
            [Rival("the seed's script with its workers", [script], 1.0)],
            more_is_better=False,
        )

    def _growth(self) -> Comparison:
        def side(images: int) -> Side:
            place = self.place / f"made-up-{images}"
            if not place.exists():
                inputs.write_made_up(place, images)
            flags = [
                *_ALL_OFF, "--batch_size=64", "--steps=20000", "--epochs=200"
            ]  # fmt: skip
            return tfnet_train(f"{images:,} images", place, flags, whole_run)

        return Comparison(
            "growth",
            f"training on {_MANY:,} images in a file, batch 64",
            "images/s",
            side(_MANY),
            [Rival(f"on {_FEW:,}", [side(_FEW)], 0.95)],
        )


def _program(name: str, arguments: Sequence[str]) -> Side:
    command = [sys.executable, "-m", *arguments]
    return Side(name, lambda place: command, seconds)
