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
from tfnet.exports.card import write_card
from tfnet.predict import Prediction, PredictSettings, _form, predict
from tfnet.runs.summary import last_lines


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


def test_all_of_five_classes_are_no_figure(run, tmp_path, capsys):
    evaluate(EvaluateSettings(run_dir=str(run.directory)))
    assert "top 5" not in capsys.readouterr().out
    place = write_run(tmp_path / "run", run)
    given = (str(run.directory), str(place))
    compare(CompareSettings(runs=given))
    assert "top 5" not in capsys.readouterr().out
    record = json.loads((place / "run.json").read_text())
    record["dataset"]["classes"].append("5")
    (place / "run.json").write_text(json.dumps(record))
    compare(CompareSettings(runs=given))
    assert "test top 5 accuracy" in capsys.readouterr().out


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


def write_run(place, run):
    """Copies the settings, the record and the rows of a run."""
    place.mkdir()
    for name in ("run.json", "config.flags", "metrics.csv"):
        (place / name).write_bytes((run.directory / name).read_bytes())
    return place


def refused(action, error=ConfigError):
    """Returns the text of the error, which is one line."""
    with pytest.raises(error) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_run_is_named_as_it_was_given(tmp_path):
    place = str(tmp_path / "gone")
    text = f"({place}) must be a directory that holds a run; name another one."
    assert refused(EvaluateSettings(run_dir=place).open) == f"--run_dir {text}"
    for action in (
        lambda: Run.open(place),
        lambda: compare(CompareSettings(runs=(place, place))),
    ):
        assert refused(action).startswith(f"{place} must be a directory")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\xff", "config.flags is damaged: it is no text; bring back"),
        (b"--lerning_rate=1\n", "--lerning_rate is not a flag"),
        (b"--epochs=many\n", r"--epochs \(many\) must be a whole number"),
        (b"--crop=40\n", r"--crop \(40\) must be below --image_size"),
    ],
)
def test_a_bad_line_of_config_flags_is_placed(text, said, run, tmp_path):
    place = write_run(tmp_path / "run", run)
    (place / "config.flags").write_bytes(text)
    found = refused(lambda: Run.open(place))
    assert found.startswith(f"{place / 'config.flags'}")
    assert re.search(said, found)
    if b"--" in text:
        assert found.endswith(". Mend or remove that line.")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.replace(b"train", b"train,", 1), "must have 8 cells"),
        (lambda t: re.sub(rb"\n1,6,", b"\n1,six,", t), r"step \(six\) must be"),
        (lambda t: t[t.index(b"\n") + 1 :], "its first line must be epoch,"),
        (lambda t: b"\xff" + t, "it is no text"),
        (lambda t: b"", "its first line must be epoch,"),
    ],
)
def test_damaged_metrics_are_one_line_before_anything_is_printed(
    change, said, run, tmp_path, capsys
):
    place = write_run(tmp_path / "run", run)
    path = place / "metrics.csv"
    path.write_bytes(change(path.read_bytes()))
    picture = tmp_path / "a.png"
    settings = CompareSettings(
        runs=(str(run.directory), str(place)), picture=str(picture)
    )
    found = refused(lambda: compare(settings))
    assert found.startswith(str(path))
    assert re.search(said, found)
    assert capsys.readouterr().out == ""
    assert not picture.exists()


def test_a_row_that_is_being_written_is_left_out(run, opened, tmp_path):
    place = write_run(tmp_path / "run", run)
    with open(place / "metrics.csv", "ab") as file:
        file.write(b"4,60,tra")
    assert Run.open(place).history == opened.history


def test_what_holds_no_run_is_refused(tmp_path, run):
    with pytest.raises(ConfigError, match="must be a directory that holds"):
        Run.open(tmp_path)
    (tmp_path / "config.flags").write_text("")
    for damaged in ("[]", "{}", '{"dataset": 1}', '{"data'):
        (tmp_path / "run.json").write_text(damaged)
        with pytest.raises(ConfigError, match=r"whose run\.json is damaged"):
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


def test_a_picture_replaces_nothing_but_a_picture(run, tmp_path, capsys):
    place = str(run.directory)
    png = tf.io.encode_png(np.zeros((4, 4, 3), np.uint8)).numpy()

    def draw(picture):
        compare(CompareSettings(runs=(place, place), picture=str(picture)))

    assert "must be a name that ends in .png" in refused(
        lambda: draw(tmp_path / "a.jpg")
    )
    photo = tmp_path / "photo.png"
    photo.write_bytes(png)
    (tmp_path / "link.png").symlink_to(photo)
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    for name, said in (
        ("photo.png", "not drawn by tfnet.compare, so it is not written over"),
        ("link.png", "not drawn by tfnet.compare"),
        ("pipe.png", "not drawn by tfnet.compare"),
        ("folder.png", "must be a file, and is a directory"),
        ("photo.png/a.png", "photo.png is no directory that can be written"),
    ):
        found = refused(lambda name=name: draw(tmp_path / name))
        assert found.startswith(f"--picture ({tmp_path / name}) ")
        assert said in found
    # Refused before work is done.
    assert capsys.readouterr().out == ""
    assert photo.read_bytes() == png
    own = tmp_path / "new" / "own.PNG"
    draw(own)
    first = own.read_bytes()
    draw(own)
    assert own.read_bytes() == first
    capsys.readouterr()
    compare(CompareSettings(runs=(place, place), picture=str(own), json=True))
    json.loads(capsys.readouterr().out)


def test_many_runs_fit_a_terminal(run, tmp_path, monkeypatch):
    places = []
    for number in range(12):
        place = write_run(tmp_path / f"a run\nof a long name {number:30}", run)
        places.append(str(place))
    monkeypatch.setenv("COLUMNS", "60")
    with terminal() as screen:
        stream = open(os.dup(screen.end), "w", buffering=1)  # noqa: SIM115
        monkeypatch.setattr(sys, "stdout", stream)
        compare(CompareSettings(runs=tuple(places)))
        stream.close()
    lines = screen.written.replace("\r", "").split("\n")
    assert lines[0].startswith(r" 1  a run\nof a long name ")
    assert lines[11].startswith("12  a run")
    # The names alone may be longer.
    assert max(map(len, lines[12:])) <= 60
    headings = " ".join(one for one in lines[12:] if one[:1] == " ")
    assert headings.split() == [str(number) for number in range(1, 13)]


def test_names_with_line_breaks_keep_their_tables(run, tmp_path, capsys):
    names = ["a\nb", "tab\there", "\x1b[31mred", "plain", "\u2028"]
    record = json.loads(json.dumps(run.record))
    record["dataset"]["classes"] = names
    accuracies = record["class_accuracy"].values()
    record["class_accuracy"] = dict(zip(names, accuracies, strict=True))
    dataset = dataclasses.replace(run.dataset, class_names=tuple(names))
    renamed = Run(
        config=run.config, record=record, directory=run.directory,
        model=run.model, dataset=dataset,
    )  # fmt: skip
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(EvaluateSettings, "open", lambda _: (renamed, dataset))
        evaluate(EvaluateSettings(run_dir="r"))
        lines = capsys.readouterr().out.splitlines()
        evaluate(EvaluateSettings(run_dir="r", json=True))
    assert list(json.loads(capsys.readouterr().out)["classes"]) == names
    shown = [r"a\nb", r"tab\there", r"\x1b[31mred", "plain", r"\u2028"]
    assert [line.split("  ")[0] for line in lines[-5:]] == shown
    assert len({line.rindex("  ") for line in lines[-5:]}) == 1
    summary = last_lines(record, None).splitlines()
    assert [line.split()[0] for line in summary[1:6]] == shown
    write_card(tmp_path / "README.md", record, {})
    card = (tmp_path / "README.md").read_text()
    assert all(
        f"| {number} | {name} |" in card for number, name in enumerate(shown)
    )


def test_predictions_stand_on_one_line_each_and_keep_their_names_in_json():
    one = Prediction("a\tb.png", ("cat\ndog", "é\u200c猫"), (0.75, 0.25))
    images = {"model_and_images": ("m", "a")}
    _, line = _form(PredictSettings(**images))
    assert line(one) == "a\\tb.png: cat\\ndog 75.0%, é\u200c猫 25.0%"
    _, line = _form(PredictSettings(**images, json=True))
    assert json.loads(line(one))["classes"] == list(one.classes)


def test_an_export_replaces_nothing_but_an_export(run, tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    for name in ("README.md", "model.keras"):
        (place / name).write_text("of my own")
        found = refused(lambda: run.export(["keras"], place))
        assert found.startswith(f"{place / name} is there, and no model card")
        assert (place / name).read_text() == "of my own"
        (place / name).unlink()
    run.export(["keras"], place)
    run.export(["keras"], place)
    assert (place / "README.md").read_text().startswith("# benchmarks.kills")


def test_a_place_that_can_not_be_written_is_named(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(tfnet.RunError, match=r"keras: .*file can't be written"):
        run.export(["keras"], tmp_path / "file")
