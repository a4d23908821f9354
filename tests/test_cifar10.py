"""Copies of CIFAR-10 as others leave them, seven images a file."""

import io
import os
import pickle
import tarfile

import numpy as np
import pytest

import tfnet
from tfnet.data import cifar10

ROWS = 7
NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def contents():
    """For each file: planes of pixels [rows, 3072], and labels [rows]."""
    random = np.random.default_rng(0)
    return {
        name: (
            random.integers(0, 256, (ROWS, 3072)).astype(np.uint8),
            random.integers(0, 10, ROWS),
        )
        for name in NAMES
    }


def python_files():
    return {
        name: pickle.dumps(
            {b"data": pixels, b"labels": labels.tolist()}, protocol=2
        )
        for name, (pixels, labels) in contents().items()
    }


def binary_files():
    return {
        f"{name}.bin": np.concatenate(
            [labels[:, None].astype(np.uint8), pixels], axis=1
        ).tobytes()
        for name, (pixels, labels) in contents().items()
    }


def write_folder(place, files):
    place.mkdir(parents=True)
    for name, content in files.items():
        (place / name).write_bytes(content)
    return place


def write_archive(path, folder, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


LAYOUTS = {
    "python": lambda place: write_folder(
        place / "cifar-10-batches-py", python_files()
    ),
    "binary": lambda place: write_folder(
        place / "cifar-10-batches-bin", binary_files()
    ),
    "keras": lambda place: write_folder(
        place / "cifar-10-batches-py-target" / "cifar-10-batches-py",
        python_files(),
    ),
    "python archive": lambda place: write_archive(
        place / "cifar-10-python.tar.gz", "cifar-10-batches-py", python_files()
    ),
    "binary archive": lambda place: write_archive(
        place / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", binary_files()
    ),
    "the folder itself": lambda place: write_folder(place, python_files()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_found_and_gives_the_same(layout, tmp_path):
    place = tmp_path / "data"
    LAYOUTS[layout](place)
    (path,) = cifar10.find_copies(str(place))
    source = cifar10.open_copy(path, rows=ROWS)
    assert source.counts == {"train": 5 * ROWS, "test": ROWS}
    assert source.class_names[:2] == ("airplane", "automobile")
    for split, names in (("train", NAMES[:5]), ("test", NAMES[5:])):
        ((images, labels),) = source.read(split, 32, None)
        pixels = np.concatenate([contents()[name][0] for name in names])
        want = np.concatenate([contents()[name][1] for name in names])
        assert labels.tolist() == want.tolist()
        # Three planes of 32 rows of 32: red first.
        for row, column, channel in [
            (0, 0, 0),
            (0, 1, 0),
            (3, 5, 1),
            (31, 31, 2),
        ]:
            np.testing.assert_array_equal(
                images[:, row, column, channel],
                pixels[:, 1024 * channel + 32 * row + column],
            )


def test_the_usual_places_are_looked_in_and_a_named_one_alone(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KERAS_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    LAYOUTS["python"](tmp_path / "data")
    LAYOUTS["keras"](tmp_path / "home" / ".keras" / "datasets")
    LAYOUTS["binary archive"](tmp_path / "home" / "Downloads")
    found = [path.resolve() for path in cifar10.find_copies(None)]
    assert found == [
        tmp_path / "data" / "cifar-10-batches-py",
        tmp_path
        / "home/.keras/datasets/cifar-10-batches-py-target/cifar-10-batches-py",
        tmp_path / "home" / "Downloads" / "cifar-10-binary.tar.gz",
    ]
    assert list(cifar10.find_copies(str(tmp_path / "elsewhere"))) == []
    (only,) = cifar10.find_copies("~/Downloads")
    assert only == found[2]


class Attack:
    def __reduce__(self):
        return os.system, ("touch attacked",)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("data_batch_3", None, "data_batch_3 is missing"),
        ("data_batch_3", b"", "no batch"),
        ("data_batch_3", python_files()["data_batch_3"][:5000], "no batch"),
        ("test_batch", b"\x00random\xff", "no batch"),
        ("test_batch", pickle.dumps(Attack()), "asks for"),
        ("test_batch", pickle.dumps([1, 2]), "no batch"),
        (
            "test_batch",
            pickle.dumps(
                {b"data": np.zeros((3, 3072), np.uint8), b"labels": [0] * 3}
            ),
            "holds 3 images, not 7",
        ),
        (
            "test_batch",
            pickle.dumps({b"data": np.zeros((7, 3072)), b"labels": [0] * 7}),
            "no pixels",
        ),
    ],
)
def test_a_damaged_copy_is_named_and_runs_nothing(
    name, content, text, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    files = python_files()
    del files[name]
    if content is not None:
        files[name] = content
    place = write_folder(tmp_path / "copy", files)
    with pytest.raises(tfnet.DataError) as caught:
        cifar10.open_copy(place, rows=ROWS)
    assert str(place) in str(caught.value)
    assert text in str(caught.value)
    assert not (tmp_path / "attacked").exists()


def test_a_binary_file_cut_short_is_named(tmp_path):
    files = binary_files()
    files["data_batch_1.bin"] = files["data_batch_1.bin"][:-1]
    place = write_folder(tmp_path / "copy", files)
    with pytest.raises(tfnet.DataError, match="bin has 21510"):
        cifar10.open_copy(place, rows=ROWS)


@pytest.mark.parametrize("part", [0, 100, 0.5, 0.99])
def test_a_truncated_archive_is_named(part, tmp_path):
    path = LAYOUTS["python archive"](tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: part if part > 1 else int(part * len(whole))])
    with pytest.raises(tfnet.DataError, match="cifar-10-python"):
        cifar10.open_copy(path, rows=ROWS)
