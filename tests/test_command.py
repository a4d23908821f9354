"""`python -m tfnet.train`, as a person runs it, in a process of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminal import terminal

from tfnet.runs import checkpoints

QUICK = (
    "--dataset=fashion_mnist_10k",
    "--batch_size=32",
    "--learning_rate=0.02",
    "--noreport",
)


def command(*flags):
    return [sys.executable, "-m", "tfnet.train", *flags]


def train(*flags, cwd, **keywords):
    return subprocess.run(
        command(*flags), capture_output=True, text=True, cwd=cwd, **keywords
    )


def started(*flags, cwd):
    """The same, while it runs."""
    return subprocess.Popen(
        command(*flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """A home with nothing in it, and a proxy that answers nothing."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    monkeypatch.delenv("KERAS_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    return work


def test_the_main_command_from_an_empty_directory(offline):
    done = train("--epochs=2", cwd=offline)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    text = " ".join(done.stdout.split())
    # Why this is not CIFAR-10: in the first lines and in the last.
    assert text.count("this run uses fashion_mnist_10k") == 2
    assert "[1,  2000] loss: " in done.stdout
    assert "[2,  2000] loss: " in done.stdout
    assert "Finished Training" in lines
    (run,) = (offline / "runs").iterdir()
    assert sorted(path.name for path in run.iterdir()) == [
        "checkpoints",
        "config.flags",
        "confusion.csv",
        "metrics.csv",
        "report",
        "run.json",
        "saved_model",
    ]
    record = json.loads((run / "run.json").read_text())
    assert record["exit_reason"] == "finished"
    assert record["dataset"]["name"] == "fashion_mnist_10k"
    assert "CIFAR-10 can't be had" in record["notes"][0]
    assert record["steps"] == 4000
    assert record["parameters"] == 62006
    assert record["test_accuracy"] > 0.7
    assert f"{record['test_accuracy']:.1%}" in text
    for name, accuracy in record["class_accuracy"].items():
        assert re.search(rf"  {name} +{accuracy:.1%}\n", done.stdout)
    assert f"run      {run.relative_to(offline)}\n" in done.stdout
    assert f"written to {run.relative_to(offline)}: checkpoints" in text


@pytest.mark.parametrize("split", [2, 4])
def test_logical_devices(split, tmp_path):
    done = train(
        *QUICK,
        f"--logical_devices={split}",
        "--steps=20",
        "--run_dir=r",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    assert record["replicas"] == split
    assert len(record["devices"]) == split
    assert f"{split} replicas: CPU:0" in done.stdout
    assert (tmp_path / "r" / "saved_model" / "saved_model.pb").is_file()


@pytest.mark.parametrize(
    ("flags", "texts"),
    [
        (["--dataset=no_such_set"], ["--dataset (no_such_set)"]),
        (["--dataset=mnits"], ["--dataset (mnits)", "mnist"]),
        (["--dataset=./nowhere"], ["--dataset (nowhere)"]),
        (["--dataset=cifar10"], ["--dataset=cifar10", "--data_dir"]),
        (["--devices=2"], ["--devices (2) must be at most 1"]),
        (["--model=no_such_module:f"], ["--model (no_such_module:f)"]),
        (["--image_size=8"], ["--image_size (8) must be at least 16"]),
        (["--run_dir=/proc/nowhere/r"], ["--run_dir (/proc/nowhere/r)"]),
    ],
)
def test_what_cannot_be_had_is_one_line_and_exit_code_2(flags, texts, offline):
    done = train(*QUICK[:1], *flags, cwd=offline)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    for text in ["tfnet.train: error: ", *texts]:
        assert text in done.stderr
    assert not (offline / "runs").exists()


def test_another_keras_backend_is_refused(offline, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    done = train(*QUICK, cwd=offline)
    assert done.returncode == 2
    assert "KERAS_BACKEND (torch)" in done.stderr


def test_a_directory_with_a_run_is_left_as_it_was(tmp_path):
    run = tmp_path / "r"
    run.mkdir()
    (run / "run.json").write_text("{}")
    done = train(*QUICK, "--run_dir=r", "--resume=never", cwd=tmp_path)
    assert done.returncode == 2
    assert "--run_dir (r) holds a run already" in done.stderr
    assert [path.name for path in run.iterdir()] == ["run.json"]


def test_a_loss_that_is_not_finite_ends_with_1(tmp_path):
    done = train(*QUICK, "--learning_rate=1e37", "--run_dir=r", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("tfnet.train: error: the loss is not finite")
    assert done.stderr.count("\n") == 1


def wait_for(process, text):
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"{text!r} never came in: {seen}")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_stops_cleanly(number, code, tmp_path):
    with started(
        *QUICK, "--epochs=10000", "--log_every=5", "--run_dir=r", cwd=tmp_path
    ) as process:
        wait_for(process, "[1,    10]")
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == code
    assert errors.count("\n") == 1
    assert signal.Signals(number).name in errors
    assert f"--run_dir={tmp_path / 'r'} goes on with it" in errors
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    assert signal.Signals(number).name in record["exit_reason"]
    # What was trained is there.
    found = checkpoints.newest(tmp_path / "r" / "checkpoints")
    assert found.name == f"step-{record['steps']:08d}"
    assert found.passed_over == ()
    assert sorted(one.name for one in (tmp_path / "r").iterdir()) == [
        "checkpoints", "config.flags", "metrics.csv", "run.json"
    ]  # fmt: skip


def test_a_second_signal_ends_at_once_and_the_files_are_good(tmp_path):
    with started(
        *QUICK,
        "--epochs=10000",
        "--log_every=5",
        "--run_dir=r",
        "--checkpoint_every=5",
        cwd=tmp_path,
    ) as process:
        wait_for(process, "[1,    20]")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert errors.count("\n") == 1
    found = checkpoints.newest(tmp_path / "r" / "checkpoints")
    assert found.checkpoint is not None
    assert found.passed_over == ()


def test_usr1_saves_and_goes_on(tmp_path):
    with started(
        *QUICK, "--epochs=10000", "--log_every=5", "--run_dir=r", cwd=tmp_path
    ) as process:
        wait_for(process, "[1,    10]")
        folder = tmp_path / "r" / "checkpoints"
        assert checkpoints.newest(folder).name == "step-00000000"
        process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 60
        while checkpoints.newest(folder).name == "step-00000000":
            assert time.monotonic() < deadline
            wait_for(process, "[1,")
        second = train(*QUICK, "--run_dir=r", cwd=tmp_path)
        assert second.returncode == 2
        assert f"in use by process {process.pid} on " in second.stderr
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_during_start_up_is_one_line(number, code, tmp_path):
    with started(
        *QUICK, "--epochs=10000", "--run_dir=r", cwd=tmp_path
    ) as process:
        # TensorFlow alone takes longer than this to import.
        time.sleep(1.0)
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert errors.count("\n") == 1
    # The same command begins there.
    done = train(*QUICK, "--run_dir=r", "--steps=3", "--noexport", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_ends_the_run_quietly(tmp_path):
    done = subprocess.run(
        [
            "bash",
            "-c",
            '"$@" | head -1; exit ${PIPESTATUS[0]}',
            "-",
            *command(*QUICK, "--log_every=5", "--run_dir=r"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="not Linux")
@pytest.mark.parametrize("flags", [QUICK, ("--help",)])
def test_an_output_that_is_full_is_one_line(flags, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*flags),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "tfnet.train: error: the standard output can't be used: No space left"
        " on device.\n"
    )


def small_disk(path, size):
    """Mounts a small file system; skips where that is not allowed."""
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)],
        capture_output=True,
    )
    if done.returncode:
        pytest.skip("mounting a tmpfs needs root")


@pytest.mark.parametrize(
    ("size", "flags", "code", "what", "left"),
    [
        # Pages of 4 KiB: config.flags, run.json, metrics.csv and no more.
        ("20k", ["--keep_checkpoints=0"], 1, "metrics.csv .No space", set()),
        ("200k", ["--keep_checkpoints=0"], 1, "saved_model .No space", set()),
        # Not even the first checkpoint: known before the training.
        ("200k", [], 2, "can't hold a checkpoint: No space", {"checkpoints"}),
        # One checkpoint of half a megabyte, and no second one.
        ("900k", [], 1, "the last checkpoint .No space", {"checkpoints"}),
    ],
)
def test_a_full_disk_is_one_line_and_loses_nothing(
    size, flags, code, what, left, tmp_path
):
    disk = tmp_path / "disk"
    small_disk(disk, size)
    try:
        (disk / "mine").write_text("precious")
        done = train(
            *QUICK, "--run_dir=disk/r", "--log_every=1", "--epochs=1", *flags,
            cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert done.stderr.count("\n") == 1
        assert re.search(what, done.stderr)
        assert "ake room" in done.stderr
        assert (disk / "mine").read_text() == "precious"
        names = {path.name for path in (disk / "r").iterdir()}
        assert names - {"confusion.csv"} == {
            "config.flags", "metrics.csv", "run.json", *left
        }  # fmt: skip
        rows = (disk / "r" / "metrics.csv").read_text()
        assert rows.endswith("\n")
        if size == "900k":
            assert "warning: the checkpoint step-00000250 can't" in done.stdout
            found = checkpoints.newest(disk / "r" / "checkpoints")
            assert found.name == "step-00000000"
            # With room, the same command goes on and ends well.
            subprocess.run(
                ["mount", "-o", "remount,size=20m", str(disk)], check=True
            )
            again = train(
                *QUICK, "--run_dir=disk/r", "--epochs=1", cwd=tmp_path
            )
            assert again.returncode == 0, again.stderr
            assert (disk / "r" / "saved_model").is_dir()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def assert_trained_and_kept_nothing(out, errors):
    """The training went on, and one line says what could not be written."""
    assert "Finished Training" in out
    assert errors.count("\n") == 1
    for what in ("metrics.csv", "the last checkpoint", "saved_model"):
        assert what in errors


def test_a_directory_that_turns_read_only_ends_with_1(tmp_path):
    disk = tmp_path / "disk"
    small_disk(disk, "20m")
    try:
        with started(
            *QUICK,
            "--epochs=3",
            "--log_every=5",
            "--run_dir=disk/r",
            cwd=tmp_path,
        ) as process:
            wait_for(process, "[1,    10]")
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            out, errors = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "warning: the checkpoint step-" in out
        assert_trained_and_kept_nothing(out, errors)
        found = checkpoints.newest(disk / "r" / "checkpoints")
        assert found.checkpoint is not None
        done = train(*QUICK, "--run_dir=disk/r", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_directory_that_is_removed_is_not_made_again(tmp_path):
    with started(
        *QUICK, "--epochs=3", "--log_every=5", "--run_dir=r", cwd=tmp_path
    ) as process:
        wait_for(process, "[1,    10]")
        shutil.rmtree(tmp_path / "r")
        out, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "test accuracy" in out
    assert_trained_and_kept_nothing(out, errors)
    assert not (tmp_path / "r").exists()


def test_a_terminal_gets_a_progress_bar(tmp_path):
    with terminal() as screen:
        done = subprocess.run(
            command(*QUICK, "--epochs=1", "--log_every=100", "--noexport"),
            stdout=screen.end,
            stderr=screen.end,
            cwd=tmp_path,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )
    assert done.returncode == 0
    assert re.search(r"\d+/250", screen.written)
    assert "images/s" in screen.written
    assert any(line.startswith("[1,   100] loss: ") for line in screen.lines)
    assert not any("/250" in line for line in screen.lines)


def test_verbosity_shows_where_an_error_arose(tmp_path):
    Path(tmp_path, "mine.py").write_text("def f(shape, n):\n    return 1 / 0\n")
    quiet = train(*QUICK, "--model=mine:f", cwd=tmp_path)
    loud = train(*QUICK, "--model=mine:f", "--verbosity=1", cwd=tmp_path)
    assert quiet.returncode == loud.returncode == 2
    assert "ZeroDivisionError" in quiet.stderr
    assert "Traceback" not in quiet.stderr
    assert "return 1 / 0" in loud.stderr
