"""What TensorBoard's own reader finds is what metrics.csv holds."""

import collections
import csv
import errno
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)
from tensorboard.util.tensor_util import make_ndarray
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import tfnet
from tfnet import Config, ConfigError, files
from tfnet.board import Board
from tfnet.data import Dataset
from tfnet.data.order import epoch_order
from tfnet.data.scaling import SEED
from tfnet.runs import checkpoints
from tfnet.runs.events import Events
from tfnet.runs.saver import Saver
from tfnet.trainer import Trainer

ROOT = Path(__file__).parents[1]
NUMBERS = ("loss", "accuracy", "learning_rate", "images_per_second")


def settings(data, **more):
    """27 steps an epoch, a row for each 6 of them and for the rest."""
    return {
        "dataset": data, "image_size": 16, "model": "benchmarks.kills:network",
        "epochs": 2, "batch_size": 15, "learning_rate": 0.01,
        "logical_devices": 8, "devices": 1, "threads": 1, "log_every": 6,
        "schedule": "cosine", "export": False, "tensorboard": True, **more,
    }  # fmt: skip


def read(place, *, purges=True):
    events = EventAccumulator(
        str(place),
        size_guidance={"scalars": 0, "images": 0},
        purge_orphaned_data=purges,
    )
    return events.Reload()


def scalars(directory, **how):
    """Returns {split: {tag: [(step, value), ...]}}."""
    found = {}
    for split in ("train", "test"):
        events = read(directory / "tensorboard" / split, **how)
        found[split] = {
            tag: [(one.step, one.value) for one in events.Scalars(tag)]
            for tag in events.Tags()["scalars"]
        }
    return found


def rows(directory):
    """Returns the same of metrics.csv, with its numbers in float32."""
    found = {"train": {}, "test": {}}
    with open(directory / "metrics.csv", newline="") as file:
        for row in csv.DictReader(file):
            for tag in NUMBERS:
                if row[tag]:
                    found[row["split"]].setdefault(tag, []).append(
                        (int(row["step"]), float(np.float32(row[tag])))
                    )
    return found


def without_times(found):
    return {
        split: {t: v for t, v in tags.items() if t != "images_per_second"}
        for split, tags in found.items()
    }


def picture_steps(place, tag):
    found = read(place).Images(tag)
    for one in found:
        image = Image.open(io.BytesIO(one.encoded_image_string))
        assert image.format == "PNG"
        assert image.size == (one.width, one.height)
        assert min(image.size) > 300
    return [one.step for one in found]


def traced_steps(directory):
    """Returns how often the program of a step ran, by the profile."""
    (path,) = directory.glob("tensorboard/plugins/profile/*/*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    counts = collections.Counter(
        plane.event_metadata[event.metadata_id].name
        for plane in space.planes
        for line in plane.lines
        for event in line.events
    )
    (steps,) = {
        count for name, count in counts.items() if "BackpropFilter" in name
    }
    return steps


@pytest.mark.draws_report
def test_tensorboard_reads_what_the_run_wrote(data, tmp_path):
    plain = tfnet.run(
        Config(**settings(data, run_dir=str(tmp_path / "p"), tensorboard=False))
    )
    run = tfnet.run(
        Config(
            **settings(data, run_dir=str(tmp_path / "r"), profile="8-15"),
        )
    )
    place = run.directory / "tensorboard"
    found = scalars(run.directory)
    assert found == rows(run.directory)
    assert [step for step, _ in found["train"]["loss"]] == [
        6, 12, 18, 24, 27, 33, 39, 45, 51, 54,
    ]  # fmt: skip
    assert sorted(found["train"]) == sorted(NUMBERS)
    assert [step for step, _ in found["test"]["accuracy"]] == [27, 54]

    # Neither they nor a profile change a number.
    assert not (plain.directory / "tensorboard").exists()
    assert without_times(rows(plain.directory)) == without_times(found)
    for one, other in zip(
        plain.model.get_weights(), run.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert traced_steps(run.directory) == 8

    assert picture_steps(place / "train", "examples") == [0]
    assert picture_steps(place / "test", "confusion") == [27, 54]
    assert picture_steps(place / "test", "worst_mistakes") == [54]
    about = read(place)
    names = {node.name for node in about.Graph().node}
    assert "images" in names
    assert any("conv2d" in name for name in names)
    (text,) = about.Tensors("settings")
    assert b"| batch_size | **15** |" in make_ndarray(text.tensor_proto).item()
    assert b"| momentum | 0.9 |" in make_ndarray(text.tensor_proto).item()


def test_a_killed_run_reads_back_as_an_unbroken_one(data, tmp_path):
    """SIGKILL after step 18, with a checkpoint of step 10."""
    code = (
        "import os, shutil, signal, sys, time\n"
        "from pathlib import Path\n"
        "from benchmarks import kills\n"
        "kills.import_everything()\n"
        "from tfnet.board import Board\n"
        "place, *flags = sys.argv[1:]\n"
        "saved = Path(place, 'broken', 'checkpoints', 'step-00000010')\n"
        "def doom():\n"
        "    add = Board.add\n"
        "    def add_and_die(self, **row):\n"
        "        add(self, **row)\n"
        "        if row['step'] == 18:\n"
        "            for _ in range(200):\n"
        "                if saved.is_dir():\n"
        "                    os.kill(os.getpid(), signal.SIGKILL)\n"
        "                time.sleep(0.1)\n"
        "    Board.add = add_and_die\n"
        "def run(name, doom):\n"
        "    here = f'--run_dir={place}/{name}'\n"
        "    return kills.run([*flags, here], Path(place, 'out'), doom)\n"
        "codes = [run('broken', doom)]\n"
        "shutil.copytree(f'{place}/broken', f'{place}/killed')\n"
        "codes += [run('broken', bool), run('whole', bool)]\n"
        "print(codes)\n"
    )
    flags = [
        f"--dataset={data}", "--image_size=16", "--batch_size=15",
        "--model=benchmarks.kills:network", "--log_every=6", "--epochs=2",
        "--checkpoint_every=10", "--tensorboard", "--noexport", "--noreport",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *flags],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.stdout == "[-9, 0, 0]\n", (tmp_path / "out").read_text()
    killed = scalars(tmp_path / "killed")
    assert [step for step, _ in killed["train"]["loss"]] == [6, 12, 18]
    newest = checkpoints.newest(tmp_path / "killed" / "checkpoints")
    assert newest.name == "step-00000010"
    broken = scalars(tmp_path / "broken")
    assert broken == rows(tmp_path / "broken")
    # TensorBoard itself reads by another class.
    shown = plugin_event_accumulator.EventAccumulator(
        str(tmp_path / "broken" / "tensorboard" / "train")
    ).Reload()
    assert [
        (one.step, float(make_ndarray(one.tensor_proto)))
        for one in shown.Tensors("loss")
    ] == broken["train"]["loss"]
    whole = scalars(tmp_path / "whole")
    assert without_times(broken) == without_times(whole)
    # Its fast reader goes by the order of the steps alone.
    unmarked = scalars(tmp_path / "broken", purges=False)["train"]["loss"]
    assert [step for step, _ in unmarked][:6] == [6, 12, 18, 6, 12, 18]
    place = tmp_path / "broken" / "tensorboard"
    assert picture_steps(place / "test", "confusion") == [27, 54]
    assert picture_steps(place / "train", "examples") == [0]
    assert read(place).Graph().node


def test_rows_of_steps_gone_back_over_are_gone(data, tmp_path, monkeypatch):
    step = 14
    bad = epoch_order(398, seed=0, epoch=0)[step * 15 + 7]
    place = tmp_path / "trap"
    shutil.copytree(data, place)
    images = np.load(place / "train_images.npy")
    images[bad] = 255
    np.save(place / "train_images.npy", images)
    save = Saver.save

    def save_and_wait(self, *arguments, **keywords):
        save(self, *arguments, **keywords)
        self.wait()

    monkeypatch.setattr(Saver, "save", save_and_wait)
    run = tfnet.run(
        Config(
            **settings(
                str(place), model="test_resume:trap", on_nan="rewind",
                checkpoint_every="4", run_dir=str(tmp_path / "r"), epochs=1,
                learning_rate=1e-3, schedule="constant",
            )
            | {"log_every": 1}
        )
    )  # fmt: skip
    assert len(run.record["rewinds"]) == 1
    found = scalars(run.directory)
    assert found == rows(run.directory)
    # The checkpoint is of step 12; the loss is not finite in step 15.
    assert [step for step, _ in found["train"]["loss"]] == [
        *range(1, 13), *range(16, 28),
    ]  # fmt: skip
    unmarked = scalars(run.directory, purges=False)["train"]["loss"]
    assert [step for step, _ in unmarked][11:16] == [12, 13, 14, 12, 16]


def test_what_was_not_written_comes_when_the_run_goes_on(
    data, tmp_path, monkeypatch, capsys
):
    """Turned on late; removed in mid-run; goes on; each time all is there."""
    place = {"run_dir": str(tmp_path / "r"), "model": "net"}
    off = settings(data, **place, tensorboard=False, epochs=1)
    tfnet.run(Config(**off))
    evaluate = Trainer._evaluate_now

    def remove(self, epoch):
        if epoch == 1:
            assert scalars(tmp_path / "r") == rows(tmp_path / "r")
            shutil.rmtree(tmp_path / "r" / "tensorboard")
        evaluate(self, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_evaluate_now", remove)
        with pytest.raises(
            tfnet.RunError, match=r"tensorboard \(No such file or directory\)"
        ):
            tfnet.run(Config(**settings(data, **place, epochs=3)))
    output = capsys.readouterr()
    assert output.out.count("warning: tensorboard can't be written") == 1
    assert output.err == ""
    assert not (tmp_path / "r" / "tensorboard").exists()
    assert len(rows(tmp_path / "r")["test"]["loss"]) == 3
    run = tfnet.run(Config(**settings(data, **place, epochs=3)))
    assert scalars(run.directory) == rows(run.directory)
    assert (
        json.loads((run.directory / "run.json").read_text())["exit_reason"]
        == "finished"
    )


def row(step, split="train"):
    return {"step": step, "split": split, "loss": f"{1 / step:.6f}"}


def test_events_that_find_no_room_wait(tmp_path, monkeypatch):
    events = Events(tmp_path / "tensorboard")
    events.go_on(0, {}, [])
    events.add(**row(1))
    assert events.position == {"train": 1}

    def half(path, size, data):
        with open(path, "r+b") as file:
            file.seek(size)
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "append", half)
        events.add(**row(2))
        events.add(**row(3))
        assert events.failure.errno == errno.ENOSPC
        assert events.position == {"train": 1}
    events.add(**row(4))
    assert events.failure is None
    assert events.position == {"train": 4}
    found = scalars(tmp_path)["train"]["loss"]
    assert [step for step, _ in found] == [1, 2, 3, 4]


def test_a_model_without_a_graph_is_told(make_examples, tmp_path):
    def model(images, training):
        raise ValueError("not here")

    told = []
    examples = make_examples(4)
    board = Board(
        Config(tensorboard=True),
        Dataset("made", "here", ("a", "b"), examples, examples),
        SEED,
        model,
        tmp_path,
    )
    board.begin(0, told.append)
    (line,) = told
    assert line.endswith("gets no graph of --model (net): ValueError: not here")
    assert board.missing == []
    assert "settings" in read(tmp_path / "tensorboard").Tags()["tensors"]


def test_a_second_process_in_the_same_second_is_read_last(tmp_path):
    for last in (2, 3):
        events = Events(tmp_path / "tensorboard", clock=lambda: 1e9)
        events.go_on(0, {}, [])
        for step in range(1, last + 1):
            events.add(**row(step))
    found = scalars(tmp_path)["train"]["loss"]
    assert [step for step, _ in found] == [1, 2, 3]


def test_without_the_package_the_way_out_is_named(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['tensorboard'] = None\n"
        "from tfnet import Config, command_line, train\n"
        "try:\n"
        "    command_line.main('tfnet.train', '', train.run, Config)\n"
        "finally:\n"
        "    assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--tensorboard", f"--run_dir={tmp_path}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "--tensorboard" in line
    assert line.endswith("pip install '.[tensorboard]'.")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["100", "0-5", "7-3", "a-b", "1-2-3", "-1-4", "1-99999999999", "5-"]
)
def test_a_profile_is_a_first_and_a_last_step(text):
    with pytest.raises(ConfigError, match=r"--profile \(.*for example") as one:
        Config(profile=text)
    assert "\n" not in str(one.value)


def test_a_profile_lies_within_the_run_and_is_taken_once(data, tmp_path):
    place = {"tensorboard": False, "run_dir": str(tmp_path / "r")}
    with pytest.raises(ConfigError, match=r"--profile \(50-55\).*54 steps"):
        tfnet.run(Config(**settings(data, **place, profile="50-55")))
    first = Config(**settings(data, **place, steps=10))
    tfnet.run(first)
    # Over the end of an epoch, and from a step that is done.
    run = tfnet.run(Config(**settings(data, **place, profile="5-30")))
    assert traced_steps(run.directory) == 20
    (note,) = [one for one in run.record["notes"] if "--profile" in one]
    assert "profiles steps 11 to 30" in note
    again = tfnet.run(Config(**settings(data, **place, profile="5-30")))
    (note,) = [one for one in again.record["notes"] if "--profile" in one]
    assert "profiles nothing" in note
    assert traced_steps(run.directory) == 20


def test_a_dry_run_writes_no_events(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tfnet.run(Config(**settings(data, dry_run=True, profile="1-2")))
    assert not list(tmp_path.iterdir())
