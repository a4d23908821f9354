"""The run directory, the log, the record, the screen, the signals."""

import csv
import datetime
import json
import os
import signal

import numpy as np
import pytest

import tfnet
from tfnet.runs import directory as run_directory
from tfnet.runs.log import Log
from tfnet.runs.record import recorded
from tfnet.runs.screen import Screen
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

    def line(self, text):
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


def test_the_default_directory_is_named_after_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run_directory.create_run_directory(None, "mnist-net", NOW)
    second = run_directory.create_run_directory(None, "mnist-net", NOW)
    runs = tmp_path / "runs"
    assert first.path == runs / "mnist-net-20260102-030405"
    assert second.path == runs / "mnist-net-20260102-030405-2"


def test_a_new_or_empty_directory_is_taken(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new/deep"):
        place = tmp_path / name
        run_directory.check_run_dir(str(place))
        made = run_directory.create_run_directory(str(place), "x", NOW)
        assert made.path == place


def test_a_directory_that_holds_something_is_left_alone(tmp_path):
    for name, what in (("run.json", "a run"), ("thesis.tex", "files")):
        place = tmp_path / name.partition(".")[0]
        place.mkdir()
        (place / name).write_text("precious")
        for refuse in (
            lambda place=place: run_directory.check_run_dir(str(place)),
            lambda place=place: run_directory.create_run_directory(
                str(place), "x", NOW
            ),
        ):
            with pytest.raises(tfnet.ConfigError, match=f"holds {what}"):
                refuse()
        assert [path.name for path in place.iterdir()] == [name]
        assert (place / name).read_text() == "precious"


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        with pytest.raises(tfnet.ConfigError, match="--run_dir"):
            run_directory.check_run_dir(str(tmp_path / name))
        with pytest.raises(tfnet.ConfigError, match="--run_dir"):
            run_directory.create_run_directory(str(tmp_path / name), "x", NOW)


def test_a_write_that_fails_names_the_file_and_the_way_out(tmp_path):
    made = run_directory.create_run_directory(str(tmp_path / "r"), "x", NOW)
    for path in made.path.iterdir():
        path.unlink()
    made.path.rmdir()
    for write in (
        lambda: made.log(step=1),
        lambda: made.write_record({}),
        lambda: made.write_config(""),
    ):
        with pytest.raises(tfnet.RunError, match="--run_dir"):
            write()


def test_the_confusion_matrix_is_a_table_with_names(tmp_path):
    made = run_directory.create_run_directory(str(tmp_path / "r"), "x", NOW)
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
    made = run_directory.create_run_directory(str(tmp_path / "r"), "x", NOW)
    time = [10.0]
    screen = Lines()
    log = Log(screen, made, log_every=4, clock=lambda: time[0])
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
        made = run_directory.create_run_directory(
            str(tmp_path / name), "x", NOW
        )
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
        assert stop.received is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


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
        "onednn": "on",
        "batch_size": 5,
        "shares": [3, 2],
        "parameters": 62006,
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
        "2: cat, wolf hound",
        "2 replicas: CPU:0 (some), CPU:1 (some)",
        "5 in all, 2 or 3 on each replica; 3 batches in a step",
        "net, 62,006 parameters, in float16",
        "note     another",
        str(tmp_path),
    ):
        assert part in text
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
