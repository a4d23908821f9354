"""What is read from a run directory is what the run had."""

import csv
import dataclasses
import io
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from terminal import terminal

import tfnet
from benchmarks import kills
from tfnet import Config, ConfigError, DataError, Run
from tfnet.compare import CompareSettings, compare
from tfnet.evaluate import EvaluateSettings, evaluate
from tfnet.export import ExportSettings, export
from tfnet.predict import PredictSettings, predict


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("trained")
    kills.make_data(place / "data")
    return tfnet.run(
        Config(
            dataset=str(place / "data"),
            image_size=16,
            batch_size=15,
            model="benchmarks.kills:network",
            logical_devices=8,
            devices=2,
            ema=0.5,
            learning_rate=0.05,
            log_every=6,
            run_dir=str(place / "run"),
        )
    )


@pytest.fixture
def opened(run):
    return Run.open(run.directory)


def test_the_model_is_the_one_that_was_trained(run, opened):
    assert opened.record == run.record
    for one, other in zip(
        opened.model.get_weights(), run.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert opened.checkpoint == "step-00000054-evaluated"
    assert opened.config.batch_size == 15
    assert opened.class_names == ("0", "1", "2", "3", "4")


def test_history_is_metrics_csv(opened):
    with open(opened.directory / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(opened.history) == len(rows) > 0
    for one, row in zip(opened.history, rows, strict=True):
        assert one["split"] == row["split"]
        assert one["step"] == int(row["step"])
        assert one["loss"] == float(row["loss"])
        assert (one["learning_rate"] is None) == (row["learning_rate"] == "")


def test_scores_are_those_of_the_run_and_of_numpy(run, opened):
    scores = opened.evaluate()
    assert scores.loss == pytest.approx(run.record["test_loss"], rel=1e-6)
    assert scores.accuracy == run.record["test_accuracy"]
    images, labels = opened.dataset.test.take(np.arange(scores.images))
    probabilities = opened.predict(images)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    guess = probabilities.argmax(axis=1)
    assert scores.accuracy == np.mean(guess == labels)
    own = probabilities[np.arange(len(labels)), labels]
    assert scores.loss == pytest.approx(-np.log(own).mean(), rel=1e-5)
    with open(opened.directory / "confusion.csv", newline="") as file:
        kept = [[int(cell) for cell in row[1:]] for row in csv.reader(file)
                if row[0] != "true class"]  # fmt: skip
    assert scores.confusion.tolist() == kept
    for number, one in enumerate(scores.classes.values()):
        found = np.sum((guess == number) & (labels == number))
        assert one.recall == found / np.sum(labels == number)
        guessed = np.sum(guess == number)
        assert one.precision == (found / guessed if guessed else None)


def test_the_command_evaluates(run, capsys):
    place = str(run.directory)
    evaluate(EvaluateSettings(run_dir=place))
    text = capsys.readouterr().out
    assert f"accuracy {run.record['test_accuracy']:.2%}" in text
    evaluate(EvaluateSettings(run_dir=place, json=True))
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy"] == run.record["test_accuracy"]
    assert found["images"] == 101
    assert set(found["classes"]) == set("01234")
    assert found["notes"] == []


def test_data_that_changed_are_told_and_other_classes_refused(
    run, capsys, tmp_path
):
    place = str(run.directory)
    kills.make_data(tmp_path / "other")
    labels = np.load(tmp_path / "other" / "test_labels.npy")
    np.save(tmp_path / "other" / "test_labels.npy", labels % 4)
    evaluate(EvaluateSettings(run_dir=place, dataset=str(tmp_path / "other")))
    np.save(tmp_path / "other" / "test_labels.npy", labels * 2)
    with pytest.raises(DataError, match="must have the classes of the run"):
        evaluate(
            EvaluateSettings(run_dir=place, dataset=str(tmp_path / "other"))
        )


def test_what_holds_no_run_is_refused(tmp_path, run):
    with pytest.raises(ConfigError, match="must be a directory that holds"):
        Run.open(tmp_path)
    (tmp_path / "config.flags").write_text("")
    for damaged in ("[]", "{}", '{"dataset": 1}', '{"data'):
        (tmp_path / "run.json").write_text(damaged)
        with pytest.raises(ConfigError, match=r"run\.json or config\.flags"):
            Run.open(tmp_path)
    (tmp_path / "run.json").write_bytes(
        (run.directory / "run.json").read_bytes()
    )
    with pytest.raises(ConfigError, match="no checkpoint to read the model"):
        _ = Run.open(tmp_path).model
    with pytest.raises(ConfigError, match="--run_dir must be given"):
        EvaluateSettings()


@pytest.fixture
def pictures(run, tmp_path):
    """The test images as files, by class, and what the model says of them."""
    images, labels = run.dataset.test.take(np.arange(101))
    names = []
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = tmp_path / "images" / str(label) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(image).numpy())
        names.append(str(path))
    return tmp_path / "images", dict(
        zip(names, run.predict(images), strict=True)
    )


def said(capsys, *arguments, **settings):
    predict(PredictSettings(model_and_images=arguments, **settings))
    return capsys.readouterr().out.splitlines()


def test_the_command_predicts_what_the_model_does(run, pictures, capsys):
    folder, expected = pictures
    lines = said(
        capsys, str(run.directory), str(folder), json=True, top_k=2,
        batch_size=17,
    )  # fmt: skip
    assert len(lines) == 101
    assert [json.loads(line)["file"] for line in lines[:2]] == sorted(
        (name for name in expected if "/0/" in name),
        key=lambda name: int(Path(name).stem),
    )[:2]
    for line in lines:
        one = json.loads(line)
        probabilities = expected[one["file"]]
        best = np.argsort(-probabilities)[:2]
        assert one["classes"] == [str(i) for i in best]
        np.testing.assert_allclose(
            one["probabilities"], probabilities[best], atol=1e-5
        )


def test_files_are_given_in_many_ways(run, pictures, capsys, monkeypatch):
    folder, expected = pictures
    model = str(run.directory / "saved_model")
    name = next(iter(expected))
    text = said(capsys, model, name)
    assert text[0].startswith(f"{name}: {expected[name].argmax()} ")
    pattern = said(capsys, model, str(folder / "3" / "*.png"), csv=True)
    assert pattern[0] == "file,class,probability"
    assert len(pattern) == 1 + len(list((folder / "3").iterdir()))
    names = io.TextIOWrapper(io.BytesIO("\n".join(expected).encode()))
    monkeypatch.setattr(sys, "stdin", names)
    assert len(said(capsys, model, "-")) == 101


def test_what_is_no_image_is_named_and_passed_over(run, pictures, capsys):
    folder, expected = pictures
    (folder / "0" / "text.jpg").write_text("no image")
    (folder / "0" / "empty.png").write_bytes(b"")
    (folder / "0" / "notes.txt").write_text("not looked at")
    with pytest.raises(tfnet.RunError, match="4 of 105 could not be read"):
        said(
            capsys, str(run.directory), str(folder), str(folder / "gone.png"),
            str(folder / "*.gif"),
        )  # fmt: skip
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == len(expected)
    for text in (
        "text.jpg: no image that can be read",
        "empty.png: no image that can be read",
        "gone.png: No such file",
        "*.gif: a pattern that fits no file",
    ):
        assert text in printed.err


def test_other_data_may_have_test_images_where_those_of_the_run_had_none(run):
    config = dataclasses.replace(run.config, test_fraction=0.2)
    other = Run(config=config, record=run.record, directory=run.directory)
    assert len(other.open_dataset(run.config.dataset).test) == 101
    with pytest.raises(DataError, match=r"--test_fraction \(0.2\)"):
        other.open_dataset()


@pytest.mark.parametrize(
    ("place", "form"),
    [
        ("both", "plain"),
        ("both", "csv"),
        ("errors", "plain"),
        ("errors", "json"),
        ("results", "plain"),
    ],
)
def test_a_bar_on_a_terminal_tears_no_line(
    place, form, run, pictures, capsys, monkeypatch
):
    folder, _ = pictures
    (folder / "1" / "text.jpg").write_text("no image")
    given = [str(run.directory), str(folder), str(folder / "gone.png")]
    settings = {"batch_size": 10, **({form: True} if form != "plain" else {})}
    with pytest.raises(tfnet.RunError):
        said(capsys, *given, **settings)
    plain = capsys.readouterr()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with terminal() as screen:
        streams = {"both": ("stdout", "stderr"), "errors": ("stderr",)}
        for name in streams.get(place, ("stdout",)):
            stream = open(os.dup(screen.end), "w", buffering=1)  # noqa: SIM115
            monkeypatch.setattr(sys, name, stream)
        with pytest.raises(tfnet.RunError, match="2 of 103"):
            predict(PredictSettings(model_and_images=tuple(given), **settings))
        for name in streams.get(place, ("stdout",)):
            getattr(sys, name).close()
    lines = [line for line in screen.lines if line]
    complaints = [one for one in lines if one.startswith("tfnet.predict: ")]
    results = [one for one in lines if one not in complaints]
    elsewhere = capsys.readouterr()
    if place == "errors":
        assert results == []
        results = elsewhere.out.splitlines()
    if place == "results":
        assert complaints == []
        assert "\x1b" not in screen.written
        complaints = elsewhere.err.splitlines()
    else:
        assert re.search(r"\d+/103", screen.written)
    assert results == plain.out.splitlines()
    assert complaints == plain.err.splitlines()
    assert len(complaints) == 2


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="with a saved_model/ in it"):
        predict(PredictSettings(model_and_images=(str(tmp_path), "a.png")))
    with pytest.raises(ConfigError, match="a model and images must be given"):
        PredictSettings(model_and_images=("runs/first",))
    module = tf.Module()
    tf.saved_model.save(module, str(tmp_path / "saved_model"))
    with pytest.raises(ConfigError, match="no model that this tfnet exported"):
        predict(PredictSettings(model_and_images=(str(tmp_path), "a.png")))


@pytest.mark.draws_report
def test_a_run_leaves_a_report(run, tmp_path):
    config = dataclasses.replace(
        run.config, run_dir=str(tmp_path / "run"), steps=3, export=False,
        flip=True,
    )  # fmt: skip
    tfnet.run(config)
    page = (tmp_path / "run" / "report" / "report.html").read_text()
    assert "did not finish" not in page
    assert "Augmentation" in page
    assert (tmp_path / "run" / "report" / "augmented.png").is_file()
    again = Run.open(tmp_path / "run").report(tmp_path / "again")
    assert (again / "report.html").is_file()


def test_the_command_exports_and_says_how_it_compares(run, tmp_path, capsys):
    place = tmp_path / "out"
    settings = ExportSettings(
        run_dir=str(run.directory), format="keras,tflite",
        output_dir=str(place),
    )  # fmt: skip
    export(settings)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{place / 'model.keras'}: ")
    assert "on 101 test images (+0.00 points)" in lines[0]
    card = (place / "README.md").read_text()
    assert "model.keras" in card
    with pytest.raises(ConfigError, match=r"--format \(keras,oops\) must be"):
        ExportSettings(run_dir="r", format="keras,oops")


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_place_of_the_output_is_named_first(place, run, tmp_path):
    (tmp_path / "file").write_text("mine")
    settings = ExportSettings(
        run_dir=str(tmp_path / "nowhere"), output_dir=str(tmp_path / place)
    )
    with pytest.raises(
        ConfigError,
        match=r"^--output_dir \(.*\) must be a directory.*file is no directory",
    ):
        export(settings)
    assert (tmp_path / "file").read_text() == "mine"


def test_what_can_not_be_exported_is_named_and_the_rest_written(run, tmp_path):
    with pytest.raises(tfnet.RunError, match=r"not exported: pytorch: "):
        run.export(["pytorch", "keras"], tmp_path)
    assert (tmp_path / "model.keras").is_file()
    assert not (tmp_path / "pytorch").exists()


def test_runs_are_compared(run, tmp_path, capsys):
    config = dataclasses.replace(
        run.config, run_dir=str(tmp_path / "other"), learning_rate=0.01,
        steps=3, export=False,
    )  # fmt: skip
    other = tfnet.run(config)
    capsys.readouterr()
    places = (str(run.directory), str(other.directory))
    compare(CompareSettings(runs=places, json=True))
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == {
        "learning_rate": [0.05, 0.01],
        "steps": [None, 3],
    }
    accuracies = [one.record["test_accuracy"] for one in (run, other)]
    assert found["figures"]["test_accuracy"] == accuracies
    picture = tmp_path / "curves.png"
    compare(CompareSettings(runs=places, picture=str(picture)))
    text = capsys.readouterr().out
    assert re.search(r"--learning_rate +0\.05 +0\.01\n", text)
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="two runs at least"):
        CompareSettings(runs=("r",))


def test_a_place_that_can_not_be_written_is_named(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(tfnet.RunError, match=r"keras: .*file can't be written"):
        run.export(["keras"], tmp_path / "file")
