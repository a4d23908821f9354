"""A checkpoint is all or nothing, and never taken for good unread."""

import errno
import hashlib
import json
import os
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfnet.runs import checkpoints
from tfnet.runs.checkpoints import Checkpoint
from tfnet.runs.saver import Saver

ARRAYS = {
    "model/0": np.arange(12, dtype=np.float32).reshape(3, 4),
    "model/1": np.array(7, np.int64),
    "optimizer/0": np.array([], np.float64),
    "average/0": np.array([1.5, 2.5], tf.bfloat16.as_numpy_dtype),
    "loss_scale/0": np.array([np.nan, np.inf, -0.0], np.float16),
}


def checkpoint(step, run_id="a"):
    progress = {"run_id": run_id, "step": step, "loss": 1 / 3, "best": None}
    return Checkpoint({**ARRAYS, "model/2": np.array(step)}, progress)


@pytest.fixture
def folder(tmp_path):
    """Three checkpoints, after steps 10, 20 and 30."""
    place = tmp_path / "checkpoints"
    for step in (10, 20, 30):
        name = checkpoints.name_of(step, evaluated=False)
        checkpoints.write(place, name, checkpoint(step))
    return place


def names(place):
    return sorted(path.name for path in place.iterdir())


def test_what_is_read_is_what_was_written(folder):
    read = checkpoints.read(folder / "step-00000030")
    assert read.progress == checkpoint(30).progress
    assert read.arrays.keys() == {*ARRAYS, "model/2"}
    for name, array in ARRAYS.items():
        assert read.arrays[name].tobytes() == array.tobytes()
        assert read.arrays[name].shape == array.shape
    # What a person finds with nothing but NumPy.
    with np.load(folder / "step-00000030" / "arrays.npz") as arrays:
        np.testing.assert_array_equal(arrays["model/0"], ARRAYS["model/0"])


def test_the_newest_is_the_one_with_most_steps(folder):
    os.utime(folder / "step-00000010")
    assert checkpoints.newest(folder).name == "step-00000030"
    checkpoints.write(folder, "step-00000030-evaluated", checkpoint(30))
    assert checkpoints.newest(folder).name == "step-00000030-evaluated"
    checkpoints.write(folder, "step-100000000", checkpoint(10**8))
    assert checkpoints.newest(folder).name == "step-100000000"


def change(path, position):
    """Flips a bit of one byte."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def truncate(path, part):
    os.truncate(path, int(path.stat().st_size * part))


def resign(path, **changes):
    """Makes a manifest that is whole, and says something else."""
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    manifest.update(changes)
    body = json.dumps(manifest, sort_keys=True)
    manifest["sha256"] = hashlib.sha256(body.encode()).hexdigest()
    path.write_text(json.dumps(manifest, sort_keys=True, indent=1))


FILES = ("arrays.npz", "progress.json", "manifest.json")
DAMAGES = {
    **{
        f"{file} {what}": (
            lambda path, file=file, act=act: act(path / file),
            file,
        )
        for file in FILES
        for what, act in {
            "cut to nothing": lambda path: truncate(path, 0),
            "cut to half": lambda path: truncate(path, 0.5),
            "changed at its start": lambda path: change(path, 0),
            "changed in the middle": lambda path: change(
                path, path.stat().st_size // 2
            ),
            "changed at its end": lambda path: change(path, -1),
            "missing": lambda path: path.unlink(),
            "longer": lambda path: path.write_bytes(path.read_bytes() + b" "),
        }.items()
    },
    "another format": (
        lambda path: resign(path / "manifest.json", format=0),
        "of format 0; this tfnet reads 1",
    ),
    "no file at all": (
        lambda path: [one.unlink() for one in path.iterdir()],
        "manifest.json is missing",
    ),
    "a file in its place": (
        lambda path: (shutil.rmtree(path), path.write_text("x")),
        "it is no checkpoint of tfnet",
    ),
    "another run's": (
        lambda path: (
            shutil.rmtree(path),
            checkpoints.write(path.parent, path.name, checkpoint(30, "b")),
        ),
        "it is of another run",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_named_and_passed_over(damage, folder):
    act, text = DAMAGES[damage]
    act(folder / "step-00000030")
    before = names(folder)
    found = checkpoints.newest(folder, "a")
    assert found.name == "step-00000020"
    assert found.checkpoint.progress["step"] == 20
    (reason,) = found.passed_over
    assert reason.startswith("step-00000030: ")
    assert text in reason
    assert names(folder) == before


@pytest.mark.parametrize("file", FILES)
def test_every_single_byte_counts(file, tmp_path):
    checkpoints.write(tmp_path, "step-00000001", checkpoint(1))
    path = tmp_path / "step-00000001" / file
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        change(path, position)
        with pytest.raises(checkpoints.DamagedError):
            checkpoints.read(tmp_path / "step-00000001")
        path.write_bytes(whole)
    checkpoints.read(tmp_path / "step-00000001")


def test_what_does_not_belong_there_does_no_harm(folder):
    (folder / "step-00000030" / ".DS_Store").write_text("x")
    (folder / "step-00000030" / "notes.txt").write_text("mine")
    (folder / "notes").mkdir()
    (folder / ".step-00000040-0a1b2c3d.aside").mkdir()
    found = checkpoints.newest(folder, "a")
    assert (found.name, found.passed_over) == ("step-00000030", ())
    # The next one cleans up what a killed process left, and that only.
    checkpoints.write(folder, "step-00000040", checkpoint(40))
    assert names(folder) == [
        "notes", "step-00000010", "step-00000020", "step-00000030",
        "step-00000040",
    ]  # fmt: skip


def test_none_is_good(folder, tmp_path):
    for path in folder.iterdir():
        (path / "arrays.npz").unlink()
    found = checkpoints.newest(folder)
    assert found.checkpoint is None
    assert len(found.passed_over) == 3
    assert checkpoints.newest(tmp_path / "missing").passed_over == ()


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_the_newest_and_the_best_are_kept(keep, folder):
    checkpoints.prune(
        folder, newest="step-00000030", keep=keep, best="step-00000010"
    )
    kept = [10, 20, 30][-keep:]
    assert names(folder) == [f"step-{step:08d}" for step in sorted({10, *kept})]


def test_a_damaged_newer_one_costs_no_good_one(folder):
    (folder / "step-00000030" / "arrays.npz").unlink()
    checkpoints.write(folder, "step-00000025", checkpoint(25))
    checkpoints.prune(folder, newest="step-00000025", keep=2, best=None)
    assert names(folder) == [
        "step-00000020", "step-00000025", "step-00000030"
    ]  # fmt: skip
    assert checkpoints.newest(folder).name == "step-00000025"


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_write_that_fails_leaves_the_others(call, folder, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        checkpoints.write(folder, "step-00000040", checkpoint(40))
    monkeypatch.undo()
    assert names(folder) == ["step-00000010", "step-00000020", "step-00000030"]
    assert checkpoints.newest(folder).passed_over == ()


@pytest.mark.parametrize("lying", FILES)
def test_a_disk_that_lies_is_found_out(folder, monkeypatch, lying):
    real = Path.write_bytes

    def lies(path, data):
        is_lie = path.name == lying
        real(path, data[:-1] + bytes([data[-1] ^ 1]) if is_lie else data)

    monkeypatch.setattr(Path, "write_bytes", lies)
    with pytest.raises(OSError, match="read back"):
        checkpoints.write(folder, "step-00000040", checkpoint(40))
    assert "step-00000040" not in names(folder)


def test_a_run_directory_that_was_removed_stays_removed(tmp_path):
    with pytest.raises(FileNotFoundError):
        checkpoints.write(
            tmp_path / "gone" / "checkpoints", "step-00000001", checkpoint(1)
        )
    assert list(tmp_path.iterdir()) == []


def saver(folder, told, **settings):
    settings = {"keep": 3, "every_steps": None, "every_seconds": None,
                **settings}  # fmt: skip
    return Saver(folder, tell=told.append, **settings)


def save(one, step):
    one.save(
        checkpoints.name_of(step, evaluated=False),
        checkpoint(step),
        best=None,
        before=lambda: None,
    )


def test_a_save_is_due_by_steps_or_by_seconds(tmp_path):
    by_steps = saver(tmp_path / "a", [], every_steps=10)
    assert [step for step in (5, 9, 10, 20) if by_steps.is_due(step)] == [
        10, 20
    ]  # fmt: skip
    time = [0.0]
    by_time = saver(
        tmp_path / "b", [], every_seconds=60.0, clock=lambda: time[0]
    )
    assert not by_time.is_due(1)
    time[0] = 61.0
    assert by_time.is_due(2)
    save(by_time, 2)
    by_time.wait()
    # A clock that goes back makes nothing due.
    time[0] = -1000.0
    assert not by_time.is_due(3)
    never = saver(tmp_path / "c", [])
    assert not never.is_due(10**6)
    for one in (by_steps, by_time, never):
        one.close()


def test_a_save_that_is_due_while_one_is_written_waits_for_a_later_step(
    tmp_path,
):
    one = saver(tmp_path / "checkpoints", [], every_steps=10)
    gate = threading.Event()
    one.save("step-00000010", checkpoint(10), best=None, before=gate.wait)
    assert not one.is_due(20)
    gate.set()
    one.wait()
    assert one.is_due(21)
    save(one, 21)
    one.close()
    assert names(tmp_path / "checkpoints") == ["step-00000010", "step-00000021"]


def test_a_failure_is_told_and_the_next_one_is_tried(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    told = []
    one = saver(tmp_path / "checkpoints", told)
    save(one, 1)
    one.wait()
    monkeypatch.setattr(os, "rename", fail)
    save(one, 2)
    one.wait()
    monkeypatch.undo()
    (line,) = told
    assert line.startswith("warning: the checkpoint step-00000002 can't be")
    assert line.endswith("the last good one is step-00000001")
    assert one.failure is not None
    save(one, 3)
    one.close()
    assert one.failure is None
    assert len(told) == 1
    assert names(tmp_path / "checkpoints") == ["step-00000001", "step-00000003"]


def test_a_last_good_checkpoint_that_is_gone_is_not_named(tmp_path):
    told = []
    one = saver(tmp_path / "checkpoints", told)
    save(one, 1)
    one.wait()
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "checkpoints").write_text("in the way")
    save(one, 2)
    one.close()
    (line,) = told
    assert line.endswith("there is no other")


@pytest.mark.skipif(
    sys.platform != "linux", reason="a thread has no priority of its own here"
)
def test_the_training_comes_before_the_writing(tmp_path):
    nice = []

    def look():
        nice.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    one = saver(tmp_path / "checkpoints", [])
    one.save("step-00000001", checkpoint(1), best=None, before=look)
    one.close()
    look()
    assert nice == [min(before + 10, 19), before]
