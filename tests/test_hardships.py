"""What can befall a run directory and a process, with the outcome of each."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tfnet
from benchmarks import kills
from tfnet import Config, ConfigError, files
from tfnet.config import changed_settings
from tfnet.runs import checkpoints
from tfnet.runs.checkpoints import DamagedError
from tfnet.runs.directory import take_run_directory
from tfnet.runs.metrics import METRICS, Metrics, csv_line

ROW = {"epoch": 1, "step": 10, "split": "train", "loss": 0.5}
HEADER = csv_line(METRICS)


@pytest.fixture
def data(tmp_path):
    kills.make_data(tmp_path / "data")
    return str(tmp_path / "data")


def settings(data, place, **more):
    return Config(
        **{
            "dataset": data, "image_size": 16, "batch_size": 15, "steps": 4,
            "log_every": 2, "export": False, "logical_devices": 8,
            "devices": 1, "run_dir": str(place), **more,
        }
    )  # fmt: skip


def test_a_run_whose_checkpoints_are_gone_is_not_begun_again(data, tmp_path):
    place = tmp_path / "run"
    tfnet.run(settings(data, place))
    (place / "run.json").unlink()
    before = (place / "metrics.csv").read_bytes()
    for path in (place / "checkpoints").iterdir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    with pytest.raises(ConfigError, match=r"metrics\.csv has rows.* changed"):
        tfnet.run(settings(data, place))
    assert (place / "metrics.csv").read_bytes() == before


def test_steps_behind_what_was_reached_are_told(data, tmp_path):
    place = tmp_path / "run"
    tfnet.run(settings(data, place))
    record = tfnet.run(settings(data, place, steps=3)).record
    assert "has reached step 4" in " ".join(record["notes"])
    assert record["steps"] == 4


@pytest.mark.parametrize("name", ["run.json", "metrics.csv", "config.flags"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_and_not_waited_for(name, make, tmp_path):
    make(tmp_path / name)
    with pytest.raises(ConfigError, match=f"holds {name} that is no file"):
        take_run_directory(str(tmp_path), resume="auto")


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard"])
def test_what_must_be_a_directory_is_one(name, tmp_path):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / name).write_text("")
    with pytest.raises(ConfigError, match=f"{name} that is no directory"):
        take_run_directory(str(tmp_path), resume="auto")


@pytest.mark.parametrize(
    "name", ["manifest.json", "progress.json", "arrays.npz"]
)
def test_a_pipe_in_a_checkpoint_is_passed_over(name, tmp_path):
    one = checkpoints.Checkpoint({}, {"run_id": "a"})
    checkpoints.write(tmp_path, "step-00000001", one)
    (tmp_path / "step-00000001" / name).unlink()
    os.mkfifo(tmp_path / "step-00000001" / name)
    with pytest.raises(DamagedError, match="no file"):
        checkpoints.read(tmp_path / "step-00000001")


def test_places_that_can_not_be_made_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"--run_dir \(x+\) can't be made"):
        take_run_directory("x" * 300, resume="auto")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="is a link to nothing"):
        take_run_directory(str(tmp_path / "link"), resume="auto")


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        ("", HEADER),
        (HEADER[:20], HEADER),
        (HEADER, HEADER),
        (HEADER + "1,5,tra", HEADER),
        (HEADER + csv_line([1, 5]) + "1,10", HEADER + csv_line([1, 5])),
    ],
)
def test_metrics_that_were_cut_go_on_with_whole_rows(left, kept, tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(left)
    metrics = Metrics(path, {"bytes": 10_000, "waiting": ""})
    assert not metrics.is_whole
    assert path.read_text() == kept
    metrics.add(**ROW)
    assert path.read_text() == kept + csv_line(
        [ROW.get(name, "") for name in METRICS]
    )


def test_metrics_go_on_from_their_position(tmp_path):
    path = tmp_path / "metrics.csv"
    whole = HEADER + csv_line([1, 5])
    path.write_text(whole + csv_line([1, 10]))
    metrics = Metrics(path, {"bytes": len(whole), "waiting": ""})
    assert metrics.is_whole
    assert path.read_text() == whole


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_stop_no_run(closed, data, tmp_path):
    place = tmp_path / "run"
    command = (
        f"{sys.executable} -m tfnet.train --dataset={data} --image_size=16"
        f" --steps=2 --noexport --noreport --run_dir={place} {closed}"
    )
    done = subprocess.run(
        command, shell=True, cwd=Path(__file__).parents[1], check=False
    )
    assert done.returncode == 0
    for path in place.rglob("*"):
        if path.suffix in (".json", ".csv", ".flags"):
            text = path.read_text()
            assert "tensorflow/" not in text
            assert "Finished Training" not in text


def test_a_late_signal_to_save_ends_nothing():
    code = (
        "import os, signal\n"
        "from tfnet import Config, command_line\n"
        "command_line.main('tfnet.train', '',"
        " lambda config: os.kill(os.getpid(), signal.SIGUSR1), Config)\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "print('still here')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "still here\n"
    assert signal.getsignal(signal.SIGUSR1) != signal.SIG_IGN


def test_what_is_no_directory_is_not_replaced_by_one(tmp_path):
    for make in (lambda path: path.write_text("mine"), os.mkfifo):
        path = tmp_path / make.__name__.strip("<>")
        make(path)
        with (
            pytest.raises(FileExistsError, match="no directory"),
            files.new_directory(path),
        ):
            pass
        assert path.exists()


def test_files_put_into_an_export_are_not_lost(data, tmp_path):
    place = tmp_path / "run"
    tfnet.run(settings(data, place, export=True))
    (place / "saved_model" / "notes.txt").write_text("mine")
    with pytest.raises(tfnet.RunError, match=r"saved_model \(it holds notes"):
        tfnet.run(settings(data, place, export=True))
    assert (place / "saved_model" / "notes.txt").read_text() == "mine"


def test_metrics_that_were_removed_hold_up_no_checkpoint(tmp_path):
    metrics = Metrics(tmp_path / "metrics.csv")
    (tmp_path / "metrics.csv").unlink()
    metrics.add(**ROW)
    assert metrics.failure is not None
    metrics.flush()


def test_changed_settings_are_named_in_the_words_of_flags():
    before = dataclasses.asdict(Config())
    now = Config(flip=True, ema=0.9, sync_batch_norm=False)
    assert changed_settings(now, before) == [
        "--ema was unset and is 0.9",
        "--sync_batch_norm was on and is off",
        "--flip was off and is on",
    ]
