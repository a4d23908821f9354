"""`python -m tfnet.predict`: a model that is damaged, and names of images."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tfnet
from tfnet import Config, ConfigError
from tfnet.predict import PredictSettings, predict


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    """A saved_model directory."""
    run = tfnet.run(
        Config(
            dataset=data,
            image_size=16,
            batch_size=15,
            steps=1,
            devices=1,
            logical_devices=8,
            run_dir=str(tmp_path_factory.mktemp("predict") / "run"),
        )
    )
    return run.directory / "saved_model"


def encoded(kind, mode="RGB", **settings):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 4))
    file = io.BytesIO()
    image = Image.fromarray(pixels.astype(np.uint8)).convert(mode)
    image.save(file, kind, **settings)
    return file.getvalue()


PNG = encoded("png")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the command is: an empty folder."""
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def said(*names, **settings):
    predict(
        PredictSettings(model_and_images=tuple(map(str, names)), **settings)
    )


def damages(content):
    noise = np.random.default_rng(0).bytes(len(content))
    third = len(content) // 3
    return {
        "emptied": b"",
        "cut in the middle": content[: len(content) // 2],
        "cut at the end": content[:-1],
        "cut at the start": content[:3],
        "other bytes": noise,
        "some other bytes": content[:third] + noise[:50]
        + content[third + 50 :],
        "removed": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "saved_model.pb",
        "fingerprint.pb",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
    ],
)
def test_a_damaged_model_is_one_line(name, model, folder, capfd):
    Path("a.png").write_bytes(PNG)
    content = (model / name).read_bytes()
    # A model is whole without it, and with one that says nothing.
    harmless = ("emptied", "removed") if name == "fingerprint.pb" else ()
    for kind, damaged in damages(content).items():
        shutil.rmtree("copy", ignore_errors=True)
        shutil.copytree(model, "copy")
        Path("copy", name).unlink()
        if damaged is not None:
            Path("copy", name).write_bytes(damaged)
        if kind in harmless:
            said("copy", "a.png")
            assert capfd.readouterr().out.startswith("a.png: ")
            continue
        with pytest.raises(ConfigError) as caught:
            said("copy", "a.png")
        wanted = "is damaged; export it again"
        if (name, kind) == ("saved_model.pb", "removed"):
            wanted = "must be a run directory with a saved_model/ in it"
        assert wanted in str(caught.value), kind
        assert capfd.readouterr().err == "", kind


def test_a_folder_gives_what_is_an_image_by_name_or_by_contents(
    model, folder, capsys
):
    files = {
        "1.png": PNG,
        "2.JPE": encoded("jpeg"),
        "3": encoded("gif", "P"),
        "4.download": encoded("webp"),
        "5.tif": encoded("tiff"),
        "6.jp2": b"\0\0\0\x0cjP  \r\n\x87\n",
        "7.heic": b"\0\0\0\x18ftypheic\0\0\0\0",
        "8.avif": b"\0\0\0\x20ftypavif\0\0\0\0",
        "9.dat": encoded("tiff"),
        "labels.csv": b"path,label\n",
        "README.txt": b"BMW, P1, II: a text about cars",
        ".hidden.png": b"no image",
    }
    Path("photos").mkdir()
    for name, content in files.items():
        Path("photos", name).write_bytes(content)
    os.mkfifo("photos/pipe.png")
    with pytest.raises(tfnet.RunError, match="6 of 10 could not be read"):
        said(model, "photos")
    printed = capsys.readouterr()
    names = [line.partition(": ")[0] for line in printed.out.splitlines()]
    assert [os.path.basename(name) for name in names] == list(files)[:4]
    start = "no image that can be read: it is"
    end = "; convert it to PNG or JPEG\n"
    for text in (
        f"5.tif: {start} a TIFF{end}",
        f"6.jp2: {start} a JPEG 2000{end}",
        f"7.heic: {start} a HEIC{end}",
        f"8.avif: {start} an AVIF{end}",
        f"9.dat: {start} a TIFF{end}",
        "pipe.png: it is no file\n",
    ):
        assert text in printed.err
    assert "labels" not in printed.err
    assert "README" not in printed.err


def test_a_webp_that_can_not_be_read_is_told_why(model, folder, capsys):
    second = Image.new("RGB", (10, 12))
    files = {
        "alpha.webp": encoded("webp", "RGBA"),
        "lossless.webp": encoded("webp", "RGBA", lossless=True),
        "animation.webp": encoded("webp", save_all=True,
                                  append_images=[second]),
        "cut.webp": encoded("webp")[:-40],
    }  # fmt: skip
    for name, content in files.items():
        Path(name).write_bytes(content)
    with pytest.raises(tfnet.RunError, match="4 of 4"):
        said(model, *files)
    printed = capsys.readouterr().err
    end = "; convert it to PNG or JPEG\n"
    for text in (
        f"alpha.webp: no image that can be read: it is a WebP with alpha{end}",
        f"lossless.webp: no image that can be read: it is a WebP with alpha"
        f"{end}",
        f"animation.webp: no image that can be read: it is a WebP with"
        f" animation{end}",
        "cut.webp: no image that can be read: it is a WebP that is damaged",
    ):
        assert text in printed


def listed(monkeypatch, names):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(names)))


def test_no_name_on_standard_input_is_an_error(model, folder, monkeypatch):
    for names in (b"", b"\n\r\n\n"):
        listed(monkeypatch, names)
        with pytest.raises(ConfigError, match="^- stands for the names"):
            said(model, "-")


def test_a_list_of_names_from_windows(model, folder, monkeypatch, capsys):
    for name in ("a.png", "b.png", "c.png\r"):
        Path(name).write_bytes(PNG)
    listed(monkeypatch, b"\xef\xbb\xbfa.png\r\nb.png\r\n\r\nc.png\r\n")
    said(model, "-", json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["file"] for one in found] == ["a.png", "b.png", "c.png\r"]


def test_a_file_that_begins_as_a_flag(folder):
    Path("-a.png").write_bytes(PNG)
    arguments = ["runs/first", "-a.png"]
    with pytest.raises(ConfigError, match=r"write \./-a\.png\.$"):
        PredictSettings.from_flags(arguments)
    Path("-a.png").unlink()
    with pytest.raises(ConfigError, match="is not a flag"):
        PredictSettings.from_flags(arguments)


@pytest.mark.parametrize(
    "command",
    ["predict a b", "evaluate --run_dir=a", "compare a b", "lr_find"],
)
def test_results_without_an_output_are_an_error(command, folder):
    done = subprocess.run(
        f"{sys.executable} -m tfnet.{command} >&-",
        shell=True,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(tfnet.__file__).parents[1])},
    )
    name = command.split()[0]
    assert done.returncode == 1
    assert done.stderr == (
        f"tfnet.{name}: error: the standard output can't be used: it is"
        " closed.\n"
    )


def test_links_that_lead_in_a_circle_are_named_and_not_followed(tmp_path):
    from tfnet.image_names import find_images

    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "1.jpg").write_bytes(b"")
    (tmp_path / "inner" / "outer").symlink_to(tmp_path)
    (tmp_path / "itself.jpg").symlink_to("itself.jpg")
    (tmp_path / "itself").symlink_to("itself")
    files, missing = find_images([str(tmp_path)])
    # Whoever reads the link says what it is.
    assert files == [
        str(tmp_path / "itself.jpg"), str(tmp_path / "inner" / "1.jpg")
    ]  # fmt: skip
    assert missing == []
