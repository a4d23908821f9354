"""--init_from: a run starts from given weights, to the bit."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import tfnet
from tfnet import Config
from tfnet.models import net
from tfnet.models.pytorch import to_state_dict
from tfnet.runs import checkpoints

CLASSES = 5


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(data, **more):
    # At this learning rate no weight changes, so what is left is the start.
    return {
        "dataset": data, "image_size": 16, "epochs": 1, "steps": 2,
        "batch_size": 15, "learning_rate": 1e-30, "logical_devices": 8,
        "devices": 1, "threads": 1, "export": False, "run_dir": "run", **more,
    }  # fmt: skip


def run(data, **more):
    return tfnet.run(Config(**settings(data, **more)))


def error_of(data, **more):
    with pytest.raises(tfnet.ConfigError) as caught:
        run(data, **more)
    text = str(caught.value)
    assert text.startswith("--init_from (")
    assert "\n" not in text
    assert not Path("run", "run.json").exists()
    return text


def state(classes=CLASSES, size=16):
    return to_state_dict(net.build((size, size, 3), classes, seed=9))


def assert_equal(found, want):
    for ours, theirs in zip(found, want, strict=True):
        assert ours.tobytes() == np.asarray(theirs).tobytes()


def test_a_run_starts_from_a_file_of_pytorchs_names(data, here):
    want = state()
    save_file(want, "a.safetensors")
    done = run(data, init_from="a.safetensors", devices=2)
    assert_equal(to_state_dict(done.model).values(), want.values())
    flags = Path("run", "config.flags").read_text()
    assert f"--init_from={here / 'a.safetensors'}\n" in flags


def test_a_run_that_goes_on_keeps_its_own_weights(data):
    want = state()
    np.savez("a.npz", **want)
    first = run(data, init_from="a.npz", learning_rate=0.1)
    Path("a.npz").unlink()
    again = run(data, init_from="a.npz", learning_rate=0.1)
    assert_equal(again.model.get_weights(), first.model.get_weights())
    # It did train: what it keeps is not what it started from.
    assert not np.array_equal(
        to_state_dict(again.model)["fc3.bias"], want["fc3.bias"]
    )
    (note,) = [n for n in again.record["notes"] if "--init_from" in n]
    assert note.endswith("the run goes on with its own weights.")


def test_a_run_starts_from_the_averages_of_another(data):
    before = run(data, run_dir="first", ema=0.5, learning_rate=0.1)
    found = checkpoints.newest(Path("first", "checkpoints"))
    after = run(data, init_from="first")
    weights = after.model.get_weights()
    assert_equal(weights, before.model.get_weights())
    arrays = found.checkpoint.arrays
    assert_equal(weights, [arrays[f"average/{n}"] for n in range(10)])
    assert not np.array_equal(arrays["average/9"], arrays["model/9"])
    assert (
        f"The run starts from the averaged weights of {found.name} in first."
        in after.record["notes"]
    )


def test_a_damaged_checkpoint_is_passed_over_by_name(data):
    before = run(data, run_dir="first")
    names = sorted(p.name for p in Path("first", "checkpoints").iterdir())
    newest = Path("first", "checkpoints", names[-1])
    (newest / "arrays.npz").write_bytes(b"")
    after = run(data, init_from="first")
    (note,) = [n for n in after.record["notes"] if newest.name in n]
    assert "was passed over" in note
    assert_equal(after.model.get_weights(), before.model.get_weights())
    for path in Path("first", "checkpoints").iterdir():
        (path / "arrays.npz").write_bytes(b"")
    shutil.rmtree("run")
    assert "0 bytes instead of" in error_of(data, init_from="first")


def test_what_does_not_fit_is_named(data):
    want = state()
    del want["fc3.bias"]
    np.savez("missing.npz", **want, extra=np.ones(1), other=np.ones(1))
    text = error_of(data, init_from="missing.npz")
    assert "missing: fc3.bias; unknown: extra, other." in text
    np.savez("classes.npz", **state(classes=10))
    text = error_of(data, init_from="classes.npz")
    assert "fc3.weight must be [5, 84] and is [10, 84]" in text
    assert "fc3.bias must be [5] and is [10]" in text
    want = state()
    want["fc1.bias"][3] = np.nan
    np.savez("nan.npz", **want)
    text = error_of(data, init_from="nan.npz")
    assert "fc1.bias has a number that is not finite" in text
    assert error_of(data, init_from="nowhere.pt") == (
        "--init_from (nowhere.pt) can't be read: No such file or directory."
    )
    assert "must end in .pt" in error_of(data, init_from="nowhere")
    Path("empty").mkdir()
    text = error_of(data, init_from="empty")
    assert "must hold a checkpoint of a run: there is none" in text


def test_a_checkpoint_of_another_model_is_refused(data):
    run(data, run_dir="first", image_size=24)
    text = error_of(data, init_from="first")
    assert "model/4 has shape (144, 120) in float32 where there is" in text
    assert "It must be a run of the same model, classes, image size" in text


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_weights_in_float32_start_a_run_that_computes_in_less(precision, data):
    run(data, run_dir="first")
    arrays = checkpoints.newest(Path("first", "checkpoints")).checkpoint.arrays
    # At this rate no step changes a bit.
    after = run(
        data, init_from="first", precision=precision, learning_rate=1e-30
    )
    assert_equal(after.model.get_weights(), [arrays[f"model/{n}"]
                                             for n in range(10)])  # fmt: skip


def test_weights_of_another_type_are_refused(data):
    run(data, run_dir="first")
    text = error_of(data, init_from="first", precision="float64")
    assert "type of weights (float64 by --precision=float64, else" in text


def test_a_file_is_for_the_seeds_network_only():
    for name in ("a.pt", "a.pth", "a.safetensors", "a.npz"):
        with pytest.raises(tfnet.ConfigError, match="for --model=net; with"):
            Config(init_from=name, model="a.b:c")
    assert Config(init_from="runs/first", model="a.b:c")
