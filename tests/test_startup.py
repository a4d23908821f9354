"""What must be quick and quiet: import, help, and saying what is wrong."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run_python(*arguments, cwd=ROOT):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=cwd
    )


@pytest.mark.parametrize(
    "code",
    [
        "import tfnet",
        "import tfnet; tfnet.Config(epochs=3); tfnet.Error",
        "import tfnet.train",
        "import tfnet; tfnet.Config.from_flags(['--flagfile=seed.flags'])",
    ],
)
def test_nothing_heavy_is_imported(code):
    heavy = "{'tensorflow', 'keras', 'numpy', 'tensorflow_datasets', 'rich'}"
    check = f"import sys; {code}; print({heavy} & set(sys.modules))"
    done = run_python("-c", check)
    assert done.returncode == 0, done.stderr
    allowed = ["set()"]
    if "train" in code:
        # The log of a run adds up arrays.
        allowed.append("{'numpy'}")
    assert done.stdout.strip() in allowed


def test_help_lists_every_flag_with_its_default():
    import dataclasses

    from tfnet import Config

    done = run_python("-m", "tfnet.train", "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for field in dataclasses.fields(Config):
        assert f"{field.name}\n" in done.stdout
    assert "seed.flags" in done.stdout


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--epochs=0", "--epochs (0) must be a whole number, at least 1"),
        ("--epoch=1", "did you mean --epochs?"),
        ("--batch_size=-4", "--batch_size (-4)"),
        ("--learning_rate=fast", "--learning_rate (fast)"),
        ("--model=nett", "--model (nett)"),
        ("--optimizer=sgdd", "--optimizer (sgdd) must be sgd, "),
        ("--schedule=linear", "constant, step, cosine or one_cycle"),
        ("--class_weights=1;2", "--class_weights (1;2) must be balanced"),
        ("--run_dir=.", "--run_dir (.) holds files already"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(flag, text):
    done = run_python("-X", "importtime", "-m", "tfnet.train", flag)
    lines = [
        line
        for line in done.stderr.splitlines()
        if not line.startswith("import time:")
    ]
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(lines) == 1
    assert lines[0].startswith("tfnet.train: error: ")
    assert text in lines[0]
    assert " tensorflow\n" not in done.stderr


def test_readme_and_ci_hold_the_same_test_command():
    line = next(
        line
        for line in (ROOT / ".ci" / "run").read_text().splitlines()
        if line.startswith("python3 -m venv")
    )
    assert f"\n{line}\n" in (ROOT / "README.md").read_text()


def test_the_version_is_the_packages():
    import importlib.metadata

    import tfnet

    assert importlib.metadata.version("tfnet") == tfnet.__version__


def test_the_build_system_is_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["build-system"]["build-backend"] == "setuptools.build_meta"


@pytest.mark.parametrize(
    ("before", "after"), [(None, "1"), ("0", "0"), ("1", "1")]
)
def test_onednn_is_on_from_the_import_unless_somebody_says_else(
    before, after, monkeypatch
):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    if before is not None:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", before)
    code = "import os, tfnet; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"
    assert run_python("-c", code).stdout == f"{after}\n"


def test_tensorflow_imported_first_costs_a_note(monkeypatch):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    code = """
import tensorflow
import tfnet

flags = ["--dataset=fashion_mnist_10k", "--dry_run", "--noexport"]
tfnet.run(tfnet.Config.from_flags(flags))
"""
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "note TensorFlow was imported before tfnet" in shown
    assert "oneDNN as TensorFlow chooses" in shown


def test_imports_leave_matplotlib_for_later_and_keras_finds_it_then(tmp_path):
    """Keras imports it for its galleries alone: they still work."""
    code = """
import gc, sys, weakref
from tfnet.devices.runtime import prepare_process

class Cycle:
    def __init__(self):
        self.itself = self

before = weakref.ref(Cycle())
prepare_process(verbose=False)
assert gc.isenabled() and before() is None
assert gc.get_freeze_count() > 100_000
after = weakref.ref(Cycle())
gc.collect()
assert after() is None
assert not [name for name in sys.modules if name.startswith("matplotlib")]
import keras, numpy
images = numpy.full((4, 8, 8, 3), 255, numpy.uint8)
keras.visualization.plot_image_gallery(images, path="images.png")
# It needs OpenCV for the rest.
from keras.src.visualization import plot_bounding_box_gallery as boxes
assert boxes.patches.Patch(color="red").get_facecolor() == (1, 0, 0, 1)
import matplotlib.pyplot
assert matplotlib.pyplot.figure
"""
    done = run_python("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "images.png").read_bytes().startswith(b"\x89PNG")
