"""A run that was stopped goes on to the same numbers."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tfnet
from benchmarks import kills
from tfnet import Config
from tfnet.data.order import epoch_order
from tfnet.runs import checkpoints
from tfnet.runs.saver import Saver


def settings(data, **more):
    return {
        "dataset": data, "image_size": 16, "model": "benchmarks.kills:network",
        "epochs": 2, "batch_size": 15, "learning_rate": 0.01,
        "logical_devices": 8, "devices": 1, "threads": 1, "flip": True,
        "crop": 2, "log_every": 6, "export": False, **more,
    }  # fmt: skip


def rows(directory):
    with open(Path(directory, "metrics.csv"), newline="") as file:
        return [
            {k: v for k, v in row.items() if k not in TIMES}
            for row in csv.DictReader(file)
        ]


TIMES = ("seconds", "images_per_second")


def test_killed_runs_end_as_unbroken_ones():
    """A dozen of the hundreds: SIGKILL in every phase, in real processes."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kills", "--kills=12", "--seed=3"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in done.stdout.splitlines()[2:]
    ]
    assert len(table) == len(kills.CASES)
    assert sum(int(cell) for row in table for cell in row[1:-1]) >= 12
    assert {row[-1] for row in table} == {"1 of 1 runs"}


@pytest.mark.parametrize("devices", [2, 5])
def test_another_number_of_replicas_goes_on_to_the_same_numbers(
    devices, data, tmp_path
):
    exact = {"precision": "float64", "model": "net", "epochs": 2}
    whole = tfnet.run(
        Config(**settings(data, **exact, run_dir=str(tmp_path / "whole")))
    )
    broken = {**exact, "run_dir": str(tmp_path / "broken")}
    tfnet.run(Config(**settings(data, **broken, steps=27)))
    rest = tfnet.run(Config(**settings(data, **broken, devices=devices)))
    for one, other in zip(
        whole.model.get_weights(), rest.model.get_weights(), strict=True
    ):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-12)
    assert rest.record["test_loss"] == pytest.approx(
        whole.record["test_loss"], abs=1e-12
    )
    (note,) = rest.record["notes"]
    assert f"replicas: 1 before, {devices} now" in note
    assert rest.record["resumed"][0]["step"] == 27


def test_a_finished_run_started_again_changes_nothing(data, tmp_path):
    config = Config(**settings(data, run_dir=str(tmp_path / "r")))
    first = tfnet.run(config)
    before = rows(first.directory)
    again = tfnet.run(config)
    assert rows(first.directory) == before
    assert again.record["test_loss"] == first.record["test_loss"]
    for one, other in zip(
        first.model.get_weights(), again.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    # More epochs go on from there.
    more = tfnet.run(
        Config(**settings(data, run_dir=str(tmp_path / "r"), epochs=3))
    )
    assert rows(first.directory)[: len(before)] == before
    assert more.record["steps"] == 81


def test_early_stopping_counts_on_where_a_run_goes_on(data, tmp_path, capsys):
    # Nothing is learnt, so that epoch 1 stays the best.
    still = settings(data, learning_rate=1e-20, early_stopping=2, model="net")
    whole = {**still, "epochs": 10, "run_dir": str(tmp_path / "whole")}
    record = tfnet.run(Config(**whole)).record
    assert record["steps"] == 3 * 27
    assert record["stopped_early"]
    assert record["best"]["epoch"] == 1
    assert "Stopped early: epoch 1 was the best" in capsys.readouterr().out
    broken = {**still, "epochs": 10, "run_dir": str(tmp_path / "broken")}
    first = tfnet.run(Config(**{**broken, "epochs": 2})).record
    assert not first["stopped_early"]
    rest = tfnet.run(Config(**broken)).record
    assert rest["steps"] == 3 * 27
    assert rows(tmp_path / "broken") == rows(tmp_path / "whole")
    # Started again, it has ended; with more patience, it goes on.
    assert tfnet.run(Config(**broken)).record["steps"] == 3 * 27
    patient = Config(**{**broken, "early_stopping": 3})
    assert tfnet.run(patient).record["steps"] == 4 * 27


def test_other_settings_and_other_data_are_named(data, tmp_path):
    place = {"run_dir": str(tmp_path / "r")}
    tfnet.run(Config(**settings(data, **place, steps=3)))
    files = sorted((tmp_path / "r").rglob("*"))
    with pytest.raises(tfnet.ConfigError) as caught:
        tfnet.run(Config(**settings(data, **place, seed=7) | {"batch_size": 8}))
    assert "--batch_size was 15 and is 8; --seed was 0 and is 7" in str(
        caught.value
    )
    other = tmp_path / "other"
    shutil.copytree(data, other)
    labels = np.load(other / "train_labels.npy")
    np.save(other / "train_labels.npy", labels[::-1])
    with pytest.raises(tfnet.ConfigError, match="holds a run on other data"):
        tfnet.run(Config(**settings(str(other), **place)))
    assert sorted((tmp_path / "r").rglob("*")) == files
    # What does not change the numbers may change.
    done = tfnet.run(
        Config(
            **settings(data, **place, steps=5, eval_every=0) | {"log_every": 1}
        )
    )
    assert done.record["steps"] == 5


def test_no_good_checkpoint_is_an_error_and_nothing_is_lost(data, tmp_path):
    place = {"run_dir": str(tmp_path / "r")}
    tfnet.run(Config(**settings(data, **place, steps=3)))
    for path in (tmp_path / "r" / "checkpoints").iterdir():
        (path / "arrays.npz").write_bytes(b"")
    files = sorted((tmp_path / "r").rglob("*"))
    with pytest.raises(tfnet.ConfigError, match="no checkpoint that can be"):
        tfnet.run(Config(**settings(data, **place)))
    assert sorted((tmp_path / "r").rglob("*")) == files


def test_a_lost_record_and_lost_rows_do_not_stop_a_run(data, tmp_path):
    place = {"run_dir": str(tmp_path / "r")}
    tfnet.run(Config(**settings(data, **place, steps=13)))
    (tmp_path / "r" / "run.json").write_text("{")
    (tmp_path / "r" / "metrics.csv").unlink()
    whole = tfnet.run(Config(**settings(data, run_dir=str(tmp_path / "whole"))))
    rest = tfnet.run(Config(**settings(data, **place)))
    (note,) = rest.record["notes"]
    assert "run.json can't be read" in note
    for one, other in zip(
        whole.model.get_weights(), rest.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)


BAD = 123


@pytest.fixture
def data_with_a_trap(data, tmp_path):
    """One image that makes the loss infinite: see `trap`."""
    place = tmp_path / "trap"
    shutil.copytree(data, place)
    images = np.load(place / "train_images.npy")
    images[BAD] = 255
    np.save(place / "train_images.npy", images)
    return str(place)


def trap(image_shape, num_classes):
    import keras

    def spring(images):
        darkest = keras.ops.min(images, axis=(1, 2, 3), keepdims=True)
        return images + keras.ops.where(darkest == 1.0, np.inf, 0.0)

    return keras.Sequential(
        [
            keras.Input(image_shape),
            keras.layers.Lambda(spring),
            keras.layers.Flatten(),
            keras.layers.Dense(num_classes),
        ]
    )


@pytest.fixture
def saved_at_once(monkeypatch):
    """Every save that is due is made: none is put off by a busy disk."""
    save = Saver.save

    def save_and_wait(self, *arguments, **keywords):
        save(self, *arguments, **keywords)
        self.wait()

    monkeypatch.setattr(Saver, "save", save_and_wait)


def test_a_run_rewinds_and_leaves_out_the_step(
    data_with_a_trap, saved_at_once, tmp_path
):
    # Neither flips nor crops change where it is.
    bad = [
        epoch * 27
        + int(np.flatnonzero(epoch_order(398, seed=0, epoch=epoch) == BAD)[0])
        // 15
        for epoch in range(4)
    ]
    more = {
        "model": "test_resume:trap", "checkpoint_every": "4", "crop": 0,
        "run_dir": str(tmp_path / "r"),
    }  # fmt: skip
    with pytest.raises(tfnet.RunError, match="last good checkpoint is step-"):
        tfnet.run(Config(**settings(data_with_a_trap, **more)))
    found = checkpoints.newest(tmp_path / "r" / "checkpoints")
    assert found.name == f"step-{bad[0] // 4 * 4:08d}"
    run = tfnet.run(
        Config(
            **settings(data_with_a_trap, **more, on_nan="rewind")
            | {"epochs": 3}
        )
    )
    assert [one["to_step"] for one in run.record["rewinds"]] == [
        step + 1 for step in bad[:3]
    ]
    for one in run.record["rewinds"]:
        assert 0 <= one["to_step"] - 1 - one["from_step"] < 4
    assert all(np.isfinite(w).all() for w in run.model.get_weights())
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    assert record["rewinds"] == run.record["rewinds"]
    steps = [int(row["step"]) for row in rows(tmp_path / "r")]
    assert steps == sorted(steps)
    with pytest.raises(tfnet.RunError, match="has gone back 3 times"):
        tfnet.run(
            Config(
                **settings(data_with_a_trap, **more, on_nan="rewind")
                | {"epochs": 4}
            )
        )
