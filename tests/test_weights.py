"""Files of weights are read to the bit, and run nothing that is in them.

`golden/weights.pt` and `weights.npz` were made by PyTorch, with
`benchmarks/pytorch_weights.py`, which says what is in them.
"""

import contextlib
import io
import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import tfnet
from tfnet.models import weights
from tfnet.models.weights import read_weights

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def without_pytorch(monkeypatch):
    """Reads as where PyTorch is not installed, wherever the tests run."""
    monkeypatch.setattr(weights, "has_pytorch", lambda: False)


def assert_same(found, want):
    assert list(found) == list(want)
    for name, array in want.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


def error_of(path):
    with pytest.raises(tfnet.ConfigError) as caught:
        read_weights(path)
    text = str(caught.value)
    assert text.startswith(f"--init_from ({path}) ")
    assert "\n" not in text
    return text


def test_what_pytorch_saved_is_read_without_pytorch():
    with np.load(GOLDEN / "weights.npz") as file:
        want = dict(file)
    assert len(want) == 16
    assert_same(read_weights(GOLDEN / "weights.pt"), want)


def test_a_file_from_a_big_endian_machine_is_read(tmp_path):
    path = tmp_path / "a.pt"
    with (
        zipfile.ZipFile(GOLDEN / "weights.pt") as old,
        zipfile.ZipFile(path, "w") as new,
    ):
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("/byteorder"):
                data = b"big"
            if name.endswith("/data/0"):  # float32, the first one saved
                data = np.frombuffer(data, "<f4").astype(">f4").tobytes()
            new.writestr(name, data)
    want = np.load(GOLDEN / "weights.npz")["float32"]
    assert read_weights(path)["float32"].tobytes() == want.tobytes()


def test_arrays_of_numpy_and_safetensors_come_back(tmp_path):
    random = np.random.default_rng(0)
    want = {
        "a": random.normal(size=(3, 4)).astype(np.float32),
        "b": random.normal(size=5),
        "c": random.normal(size=()).astype(np.float16),
        "d": np.arange(4),
    }
    np.savez(tmp_path / "a.npz", **want)
    save_file(want, tmp_path / "a.safetensors")
    assert_same(read_weights(tmp_path / "a.npz"), want)
    found = read_weights(tmp_path / "a.safetensors")
    assert_same({name: found[name] for name in want}, want)


def test_bfloat16_comes_as_float32(tmp_path):
    values = np.array([1, -1 / 3, 3e38]).astype(ml_dtypes.bfloat16)
    save_file({"a": values}, tmp_path / "a.safetensors")
    found = read_weights(tmp_path / "a.safetensors")["a"]
    assert found.dtype == np.float32
    assert found.astype(ml_dtypes.bfloat16).tobytes() == values.tobytes()


def written(path, data):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/data/0", np.ones(4, np.float32).tobytes())
    return path


class Calls:
    """What pickle, when it is loaded, makes a call of."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "make",
    [
        lambda mark: Calls(os.system, f"touch {mark}"),
        lambda mark: Calls(eval, f"open({str(mark)!r}, 'w')"),
        lambda mark: Calls(open, str(mark), "w"),
        lambda mark: {"a": Calls(os.system, f"touch {mark}")},
        lambda mark: OrderedDict(a=Calls(Path.touch, mark)),
        lambda mark: Calls(np.save, str(mark), 1),
    ],
    ids=["system", "eval", "open", "in a dict", "method", "numpy"],
)
def test_no_code_in_a_file_runs(make, tmp_path):
    mark = tmp_path / "ran"
    data = pickle.dumps(make(mark), protocol=2)
    path = written(tmp_path / "a.pt", data)
    assert "tensors by name and nothing else; it holds" in error_of(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        b"cos\nsystem\n(S'touch ran'\ntR.",
        b"ctorch.serialization\nload\n(S'a'\ntR.",
        b"ctorch\nload\n(S'a'\ntR.",
        b"ctorch._utils\n_rebuild_tensor_v3\n.",
        b"cbuiltins\n__import__\n(S'os'\ntR.",
        b"ccollections\ndefaultdict\n.",
        # Dots would lead from a name that is allowed to its attributes.
        b"ccollections\nOrderedDict.fromkeys.__class__\n.",
        b"c__main__\nNet\n)R.",
    ],
)
def test_nothing_but_tensors_is_admitted(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "a.pt", b"\x80\x04" + name)
    text = error_of(path)
    assert "and nothing else" in text
    assert "torch.save(net.state_dict(), path)" in text
    assert [one.name for one in tmp_path.iterdir()] == ["a.pt"]


def test_attributes_set_by_a_pickle_change_nothing(tmp_path):
    # BUILD (b) sets attributes of what find_class gave.
    state = b"(S'move_to_end'\nS'x'\nd"
    for name in (b"ccollections\nOrderedDict\n", b"ctorch\nFloatStorage\n"):
        path = written(
            tmp_path / "a.pt", b"\x80\x04" + name + b"N" + state + b"\x86b."
        )
        error_of(path)
    assert callable(OrderedDict.move_to_end)


def tensor(shape, strides, offset=0, count=4, key="0"):
    """A pickle of one tensor over a storage of four numbers."""
    numbers = "".join(f"I{n}\n" for n in shape)
    steps = "".join(f"I{n}\n" for n in strides)
    return (
        "\x80\x02}S'a'\nctorch._utils\n_rebuild_tensor_v2\n("
        f"(S'storage'\nctorch\nFloatStorage\nS'{key}'\nS'cpu'\nI{count}\ntQ"
        f"I{offset}\n({numbers}t({steps}tI00\n}}tRs."
    ).encode("latin-1")


def test_a_tensor_is_cut_from_its_storage(tmp_path):
    path = written(tmp_path / "a.pt", tensor((2, 2), (2, 1)))
    assert_same(read_weights(path), {"a": np.ones((2, 2), np.float32)})


@pytest.mark.parametrize(
    "data",
    [
        tensor((5,), (1,)),
        tensor((2,), (4,)),
        tensor((2,), (1,), offset=3),
        tensor((2,), (-1,), offset=1),
        tensor((1,), (1,), offset=-1),
        tensor((1000000000000,), (0,)),
        tensor((2, 2), (1,)),
        tensor((4,), (1,), count=5),
        tensor((4,), (1,), key="1"),
        tensor((2,), (1,)).replace(b"ctorch\nFloatStorage\n", b"S'O'\n"),
        tensor((4,), (1,), key="../../../../etc/passwd"),
        b"",
        b"\x80\x04N",
    ],
)
def test_a_tensor_never_reaches_beyond_its_storage(data, tmp_path):
    path = written(tmp_path / "a.pt", data)
    assert "damaged" in error_of(path)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.pt", b"", "is no zip archive, as torch.save writes since"),
        ("a.pth", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "install torch"),
        ("a.npz", b"no", "is damaged"),
        ("a.safetensors", b"\xff" * 100, "is damaged"),
        ("a.h5", b"", "must end in .pt, .pth, .safetensors, .npz, or be a run"),
        ("a", None, "must end in"),
        ("a.pt", None, "can't be read: No such file"),
        ("a.safetensors", None, "can't be read: No such file"),
    ],
)
def test_a_file_that_is_none_is_named(name, data, text, tmp_path):
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    assert text in error_of(path)


def test_damage_anywhere_is_an_error_or_other_numbers(tmp_path):
    whole = (GOLDEN / "weights.pt").read_bytes()
    path = tmp_path / "a.pt"
    for length in range(0, len(whole), 500):
        path.write_bytes(whole[:length])
        error_of(path)
    random = np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[random.integers(len(whole))] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        # Other numbers, or this error, and no other.
        with contextlib.suppress(tfnet.ConfigError):
            read_weights(path)


def test_an_array_of_objects_is_refused(tmp_path):
    array = np.empty(1, object)
    array[0] = Calls(os.system, f"touch {tmp_path / 'ran'}")
    np.savez(tmp_path / "a.npz", a=array)
    assert "Object arrays" in error_of(tmp_path / "a.npz")
    assert not (tmp_path / "ran").exists()


def test_a_checkpoint_of_a_training_says_what_to_save(tmp_path):
    data = io.BytesIO()
    pickle.dump({"epoch": 3}, data, protocol=2)
    path = written(tmp_path / "a.pt", data.getvalue())
    text = error_of(path)
    assert "'epoch' of type int" in text
