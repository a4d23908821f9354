"""The run directory, the log, the record, the screen, the signals."""

import csv
import datetime
import io
import itertools
import json
import os
import re
import shutil
import signal
import socket

import numpy as np
import pytest
from rich.console import Console

import tfnet
from tfnet.runs import directory as run_directory
from tfnet.runs.log import Log
from tfnet.runs.metrics import METRICS, Metrics
from tfnet.runs.record import recorded
from tfnet.runs.screen import Screen, _progress, _TerminalBar
from tfnet.runs.signals import StopSignals
from tfnet.runs.summary import first_lines, last_lines
from tfnet.training import BlockResult

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


def rows(path):
    with open(path / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


class Lines(Screen):
    """A screen that remembers."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def line(self, text, *, may_wait=False):
        self.lines.append(text)


def block(first_step, losses, correct, examples, rate=0.5):
    return BlockResult(
        first_step,
        np.array(losses),
        np.array(correct),
        np.full(len(losses), rate),
        examples,
        0.0,
    )


def taken(path, resume="auto"):
    return run_directory.take_run_directory(str(path), resume=resume)


def test_the_default_directory_is_named_after_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run_directory.make_run_directory("mnist-net", NOW)
    second = run_directory.make_run_directory("mnist-net", NOW)
    runs = tmp_path / "runs"
    assert first.path == runs / "mnist-net-20260102-030405"
    assert second.path == runs / "mnist-net-20260102-030405-2"


def test_a_new_or_empty_directory_is_taken(tmp_path):
    (tmp_path / "empty").mkdir()
    # What a process leaves that was killed at once.
    (tmp_path / "left").mkdir()
    (tmp_path / "left" / ".lock").write_text("{}")
    (tmp_path / "left" / ".run.json-0a1b2c3d.aside").write_text("")
    for name in ("empty", "new/deep", "left"):
        for resume in ("auto", "never"):
            made = taken(tmp_path / name, resume)
            assert made.path == tmp_path / name
            made.release()


def test_a_directory_that_holds_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    for resume in ("auto", "never"):
        with pytest.raises(tfnet.ConfigError, match="holds files") as caught:
            taken(tmp_path, resume)
        assert f"--run_dir ({tmp_path})" in str(caught.value)
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_that_holds_a_run_is_for_going_on(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(tfnet.ConfigError, match="--resume is never"):
        taken(tmp_path, "never")
    for resume in ("auto", "must"):
        taken(tmp_path, resume).release()
    for name in ("empty", "missing"):
        with pytest.raises(tfnet.ConfigError, match="--resume=auto"):
            taken(tmp_path / name, "must")
        assert not (tmp_path / name).exists()


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        with pytest.raises(tfnet.ConfigError, match="--run_dir"):
            taken(tmp_path / name)


def test_a_directory_has_one_process_at_a_time(tmp_path):
    first = taken(tmp_path)
    with pytest.raises(tfnet.ConfigError, match="is in use by") as caught:
        taken(tmp_path)
    assert f"process {os.getpid()} on {socket.gethostname()}" in str(
        caught.value
    )
    first.release()
    first.release()
    assert list(tmp_path.iterdir()) == []
    # What a dead process left names nobody.
    (tmp_path / ".lock").write_text('{"pid": 1, "host": "elsewhere"}')
    taken(tmp_path).release()


def test_a_write_that_fails_names_the_file_and_the_way_out(tmp_path):
    made = taken(tmp_path / "r")
    shutil.rmtree(made.path)
    for write in (
        lambda: made.open_metrics(None),
        lambda: made.write_record({}),
        lambda: made.write_config(""),
    ):
        with pytest.raises(tfnet.RunError, match="--run_dir"):
            write()


def test_the_confusion_matrix_is_a_table_with_names(tmp_path):
    made = taken(tmp_path / "r")
    made.write_confusion(["cat", "dog, big"], np.array([[3, 1], [0, 2]]))
    with open(made.path / "confusion.csv", newline="") as file:
        assert list(csv.reader(file)) == [
            ["true class", "cat", "dog, big"],
            ["cat", "3", "1"],
            ["dog, big", "0", "2"],
        ]


def test_steps_that_are_skipped_are_told_and_end_a_run_in_vain():
    screen = Lines()
    log = Log(screen, None, log_every=100, clock=lambda: 0.0)
    log.block(0, block(0, [1.0] * 30, [1] * 30, 120))
    log.end_epoch(0, skipped_steps=29)
    assert screen.lines[-1].endswith(", 29 steps skipped")
    with pytest.raises(tfnet.RunError, match="no gradient was finite"):
        log.end_epoch(0, skipped_steps=30)


def test_the_log_is_the_seeds_line_and_a_row(tmp_path):
    made = taken(tmp_path / "r")
    time = [10.0]
    screen = Lines()
    metrics = made.open_metrics(None)
    log = Log(screen, metrics, log_every=4, clock=lambda: time[0])
    log.begin_epoch()
    time[0] += 2
    log.block(0, block(0, [1.0, 2.0, 3.0], [1, 0, 2], 12))
    time[0] += 2
    log.block(0, block(3, [6.0], [1], 4))
    time[0] += 1
    log.block(0, block(4, [9.0], [2], 2))
    log.end_epoch(0)
    log.evaluation(0, loss=0.5, accuracy=0.25, seconds=1.5)
    # (1 + 2 + 3 + 6) / 4 = 3; 4 of 16 right; 16 images in 4 seconds.
    # Then the rest: loss 9, 2 of 2 right, 2 images in 1 second.
    # All: 21 / 5 = 4.2; 6 of 18; 18 images in 5 seconds.
    assert screen.lines == [
        "[1,     4] loss: 3.000",
        "epoch 1: loss 4.200, accuracy 33.3%, 4 images/s, 5.0 s",
        "epoch 1: test loss 0.500, test accuracy 25.0%, 1.5 s",
    ]
    head, rest, test = rows(made.path)
    assert head == {
        "epoch": "1",
        "step": "4",
        "split": "train",
        "loss": "3.000000",
        "accuracy": "0.250000",
        "learning_rate": "0.5",
        "images_per_second": "4.0",
        "seconds": "4.000",
    }
    assert (rest["step"], rest["loss"], rest["accuracy"]) == (
        "5",
        "9.000000",
        "1.000000",
    )
    assert (test["split"], test["images_per_second"]) == ("test", "")
    assert log.totals() == {"steps": 5, "images_per_second": 3.6}


def test_a_new_epoch_starts_a_new_window():
    screen = Lines()
    log = Log(screen, None, log_every=2)
    for epoch in range(2):
        log.begin_epoch()
        log.block(epoch, block(0, [epoch + 1.0] * 2, [0, 0], 8))
        log.block(epoch, block(2, [7.0], [0], 4))
        log.end_epoch(epoch)
    assert [line for line in screen.lines if line.startswith("[")] == [
        "[1,     2] loss: 1.000",
        "[2,     2] loss: 2.000",
    ]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_finite_is_placed(bad):
    log = Log(Lines(), None, log_every=100)
    log.block(2, block(0, [1.5, 1.25], [0, 0], 8))
    with pytest.raises(tfnet.RunError) as caught:
        log.block(2, block(2, [1.125, bad, 3.0], [0, 0, 0], 12))
    # Steps are counted from 1: the second of the block is the fourth.
    assert "epoch 3, step 4; the last finite loss was 1.125" in str(
        caught.value
    )
    with pytest.raises(tfnet.RunError, match="no finite loss before"):
        Log(Lines(), None, log_every=9).block(0, block(0, [bad], [0], 4))


def test_a_test_loss_that_is_not_finite_is_no_result():
    log = Log(Lines(), None, log_every=9)
    with pytest.raises(tfnet.RunError, match="test loss is not finite"):
        log.evaluation(0, loss=np.nan, accuracy=0.1, seconds=1)


def test_the_record_says_how_a_run_ended(tmp_path):
    def record_of(name, error):
        made = taken(tmp_path / name)
        record = {"steps": 3}
        seen = []

        def body():
            with recorded(record, made, started=1.0, clock=lambda: 3.5):
                path = made.path / "run.json"
                seen.append(json.loads(path.read_text())["exit_reason"])
                if error is not None:
                    raise error

        if error is None:
            body()
        else:
            with pytest.raises(type(error)):
                body()
        assert seen == ["running"]
        return json.loads((made.path / "run.json").read_text())

    assert record_of("good", None) == {
        "steps": 3,
        "exit_reason": "finished",
        "seconds": 2.5,
    }
    bad = record_of("bad", tfnet.RunError("the disk is full"))
    assert bad["exit_reason"] == "the disk is full"
    assert record_of("odd", KeyError("x"))["exit_reason"] == "KeyError: 'x'"
    stopped = record_of("stop", tfnet.Interrupted("SIGINT ended the run"))
    assert stopped["exit_reason"] == "SIGINT ended the run"


def test_the_first_signal_asks_and_the_second_ends():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as stop:
        with stop.finishing():
            assert stop.received is None
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.received == signal.SIGTERM
            with pytest.raises(tfnet.Interrupted, match="at once") as caught:
                os.kill(os.getpid(), signal.SIGINT)
        assert caught.value.exit_code == 130
        assert stop.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_where_nothing_is_lost_the_first_signal_ends():
    with StopSignals() as stop:
        with pytest.raises(tfnet.Interrupted, match="SIGTERM") as caught:
            os.kill(os.getpid(), signal.SIGTERM)
        assert caught.value.exit_code == 143
        assert not stop.save_asked
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.save_asked


def numbers(state):
    return {key: value for key, value in state.items() if key != "seconds"}


def test_the_log_goes_on_from_its_state(tmp_path):
    """Stopped in mid window, and with blocks of other sizes."""
    losses = np.random.default_rng(0).random(11)

    def trained(cuts, *, stop=None):
        screen = Lines()
        log = Log(screen, None, log_every=4, clock=lambda: 0.0)
        log.begin_epoch()
        for begin, end in itertools.pairwise(cuts):
            log.block(
                0, block(begin, losses[begin:end], [1] * (end - begin), 8)
            )
            if end == stop:
                state = json.loads(json.dumps(log.state()))
                log = Log(screen, None, log_every=4, clock=lambda: 9.0)
                log.restore(state)
        log.end_epoch(0)
        return log.state()["epoch"]["_loss"], screen.lines

    whole, lines = trained([0, 4, 8, 11])
    for cuts, stop in (
        ([0, 1, 2, 3, 4, 6, 8, 11], 6), ([0, 3, 4, 5, 8, 9, 10, 11], 3)
    ):  # fmt: skip
        again, again_lines = trained(cuts, stop=stop)
        assert again == whole
        assert [line.partition(" images")[0] for line in again_lines[:2]] == [
            line.partition(" images")[0] for line in lines[:2]
        ]


def test_rows_that_came_later_are_taken_away(tmp_path):
    path = tmp_path / "metrics.csv"
    metrics = Metrics(path)
    metrics.add(step=1, loss=0.5)
    position = json.loads(json.dumps(metrics.position))
    metrics.add(step=2, loss=0.25)
    again = Metrics(path, position)
    assert again.is_whole
    again.add(step=2, loss=0.125)
    assert [(row["step"], row["loss"]) for row in rows(tmp_path)] == [
        ("1", "0.5"),
        ("2", "0.125"),
    ]
    # A file that has lost rows, or is lost, goes on with what there is.
    path.write_text(",".join(METRICS) + "\n")
    assert not Metrics(path, position).is_whole
    path.unlink()
    lost = Metrics(path, position)
    assert not lost.is_whole
    lost.add(step=3)
    assert [row["step"] for row in rows(tmp_path)] == ["3"]


def test_rows_that_cannot_be_written_wait(tmp_path):
    path = tmp_path / "metrics.csv"
    metrics = Metrics(path)
    metrics.add(step=1)
    path.rename(tmp_path / "away")
    metrics.add(step=2)
    assert isinstance(metrics.failure, FileNotFoundError)
    assert not path.exists()
    position = metrics.position
    (tmp_path / "away").rename(path)
    metrics.add(step=3)
    assert metrics.failure is None
    assert [row["step"] for row in rows(tmp_path)] == ["1", "2", "3"]
    # What waited when a checkpoint was saved is not lost either.
    again = Metrics(path, position)
    again.write()
    assert [row["step"] for row in rows(tmp_path)] == ["1", "2"]


def test_exit_codes_of_errors():
    assert tfnet.ConfigError("").exit_code == 2
    assert tfnet.DataError("").exit_code == 2
    assert tfnet.RunError("").exit_code == 1
    assert tfnet.Interrupted("").exit_code == 130
    assert tfnet.Interrupted("", signum=signal.SIGTERM).exit_code == 143


def test_summary_shows_what_the_record_holds(tmp_path):
    record = {
        "dataset": {
            "name": "pets",
            "origin": "/somewhere",
            "train": 1234,
            "test": 56,
            "classes": ["cat", "wolf\nhound"],
        },
        "devices": ["CPU:0 (some)", "CPU:1 (some)"],
        "replicas": 2,
        "memory": "the host's",
        "threads": 1,
        "lanes": 1,
        "onednn": "on",
        "batch_size": 5,
        "shares": [3, 2],
        "parameters": 62006,
        "resumed": [{"step": 1234}],
        "total_steps": 5678,
        "notes": ["no test images", "another"],
        "settings": {
            "model": "net",
            "precision": "float16",
            "accumulate_steps": 3,
        },
        "versions": {
            "tfnet": "1",
            "tensorflow": "2",
            "keras": "3",
            "python": "4",
        },
    }
    text = first_lines(record, tmp_path)
    for part in (
        "pets: 1,234 training and 56 test images, from /somewhere",
        r"2: cat, wolf\nhound",
        "2 replicas: CPU:0 (some), CPU:1 (some)",
        "5 in all, 2 or 3 on each replica; 3 batches in a step",
        "net, 62,006 parameters, in float16",
        "note     another",
        str(tmp_path),
        "goes on after step 1,234 of 5,678",
        "cpu      1 thread for an operation, oneDNN on\n",
    ):
        assert part in " ".join(text.split()) or part in text
    assert (
        "2 parts of a batch at once, each with 3 threads for an operation"
        in first_lines(record | {"lanes": 2, "threads": 3}, tmp_path)
    )
    (tmp_path / "run.json").write_text("{}")
    record |= {
        "test_loss": 0.5,
        "test_accuracy": 0.75,
        "class_accuracy": {"cat": 1.0, "wolf": None},
    }
    text = last_lines(record, tmp_path)
    assert "test loss 0.500, test accuracy 75.0% on 56 images of pets" in text
    assert "  cat   100.0%\n  wolf  no test image\n" in text
    assert f"written to {tmp_path}: run.json" in text
    assert "skipped" not in text
    record |= {"steps": 1000, "skipped_steps": 12}
    text = last_lines(record, tmp_path)
    assert "12 of 1,000 steps were skipped" in text
    assert "top 5" not in text
    record["dataset"]["classes"] = list("abcdef")
    record["test_top_5_accuracy"] = 0.9
    assert "75.0% (top 5: 90.0%) on 56" in last_lines(record, tmp_path)
    assert "note     no test images" in text
    assert "nothing was written" in last_lines(record, None)


def test_lines_that_may_wait_come_together(monkeypatch):
    now, shown = [100.0], []
    bar = _TerminalBar(10, clock=lambda: now[0])
    monkeypatch.setattr(
        bar._progress.console, "out", lambda text, highlight: shown.append(text)
    )

    def move():
        bar.update(completed=1, loss="", accuracy="", rate="")

    bar.line("1", may_wait=True)
    assert shown == ["1"]
    bar.line("2", may_wait=True)
    bar.line("3", may_wait=True)
    now[0] += 0.2
    move()
    assert shown == ["1"]
    now[0] += 0.1
    move()
    assert shown == ["1", "2\n3"]
    bar.line("4", may_wait=True)
    bar.line("5", may_wait=False)
    assert shown == ["1", "2\n3", "4\n5"]
    bar.line("6", may_wait=True)
    bar.stop()
    assert shown == ["1", "2\n3", "4\n5", "6"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_bar_leaves_room_for_what_a_terminal_echoes(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    progress, task = _progress(1000, console=console)
    progress.update(
        task, completed=7, loss="loss 1.234", accuracy="accuracy 12.3%"
    )
    with console.capture() as capture:
        console.print(progress.get_renderable())
    lines = re.sub(r"\x1b\[[\d;]*m", "", capture.get()).splitlines()
    assert len(lines[0].strip()) > width / 4
    assert max(len(line.rstrip()) for line in lines) <= width - 2


def test_a_signal_says_what_goes_on_with_the_run():
    with StopSignals() as stop:
        stop.hint = "; --run_dir=x goes on with it"
        with pytest.raises(
            tfnet.Interrupted,
            match=r"^SIGTERM ended the run; --run_dir=x goes on with it\.$",
        ):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(tfnet.Interrupted, match=r" at once; --run_dir=x "):
            signal.raise_signal(signal.SIGTERM)
