"""Copies of CIFAR-10 as others leave them, seven images a file."""

import io
import os
import pickle
import random
import struct
import sys
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


def test_keras_home_moves_the_copy_of_keras(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    LAYOUTS["keras"](tmp_path / "elsewhere" / "datasets")
    LAYOUTS["keras"](tmp_path / "home" / ".keras" / "datasets")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "elsewhere"))
    (found,) = cifar10.find_copies(None)
    assert found.is_relative_to(tmp_path / "elsewhere")


def test_folders_come_before_archives_in_one_place(tmp_path):
    for layout in ("binary archive", "python archive", "binary", "keras"):
        LAYOUTS[layout](tmp_path)
    found = [str(path.relative_to(tmp_path))
             for path in cifar10.find_copies(str(tmp_path))]  # fmt: skip
    assert found == [
        "cifar-10-batches-bin",
        "cifar-10-batches-py-target/cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        "cifar-10-binary.tar.gz",
    ]


def test_a_folder_of_that_name_without_a_batch_is_no_copy(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(b"")
    assert list(cifar10.find_copies(str(tmp_path))) == []


def test_an_archive_may_be_named_itself(tmp_path):
    path = LAYOUTS["python archive"](tmp_path)
    assert list(cifar10.find_copies(str(path))) == [path]


def python2_pickle(pixels, labels):
    """A batch as Python 2 and NumPy 1 wrote the published files."""

    def short(text):
        return b"U" + bytes([len(text)]) + text

    rows, columns = pixels.shape
    shape = b"K" + bytes([rows]) + b"M" + struct.pack("<H", columns) + b"\x86"
    # Opcodes in order: _reconstruct(ndarray, (0,), b"b"), then its state: 1,
    # the shape, dtype("u1", 0, 1) with its state, False, the bytes.
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + b"K\x00\x85" + short(b"b") + b"\x87R"
        + b"(K\x01" + shape
        + b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R"
        + b"(K\x03" + short(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2
        + b"K\x00tb"
        + b"\x89T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    )  # fmt: skip
    numbers = b"".join(b"K" + bytes([label]) for label in labels)
    return (
        b"\x80\x02}(" + short(b"labels") + b"](" + numbers + b"e"
        + short(b"data") + array + b"u."
    )  # fmt: skip


def test_the_pickles_of_python_2_are_read(tmp_path):
    files = {
        name: python2_pickle(pixels, labels.tolist())
        for name, (pixels, labels) in contents().items()
    }
    place = write_folder(tmp_path / "copy", files)
    other = write_folder(tmp_path / "other", binary_files())
    for split in ("train", "test"):
        ((images, labels),) = cifar10.open_copy(place, rows=ROWS).read(
            split, 32, None
        )
        ((want, numbers),) = cifar10.open_copy(other, rows=ROWS).read(
            split, 32, None
        )
        np.testing.assert_array_equal(images, want)
        assert labels.tolist() == numbers.tolist()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_attack_is_refused_in_every_protocol(
    protocol, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    files = python_files()
    good = pickle.loads(files["test_batch"])
    good[b"more"] = Attack()
    files["test_batch"] = pickle.dumps(good, protocol=protocol)
    place = write_folder(tmp_path / "copy", files)
    with pytest.raises(tfnet.DataError, match="asks for") as caught:
        cifar10.open_copy(place, rows=ROWS)
    assert str(place) in str(caught.value)
    assert not (tmp_path / "attacked").exists()


@pytest.mark.parametrize(
    "asked",
    [
        b"cbuiltins\neval\n",
        b"cnumpy\nload\n",
        b"cnumpy.lib.npyio\nNpzFile\n",
        b"cnumpyro\ndtype\n",
        b"cos\ndtype\n",
        b"c_codecs\ndecode\n",
        b"ccodecs\nencode\n",
        # Dots in a name lead on to attributes in protocol 4.
        b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93",
    ],
)
def test_a_pickle_may_ask_for_arrays_only(asked, tmp_path):
    files = {**python_files(), "test_batch": asked + b"."}
    place = write_folder(tmp_path / "copy", files)
    with pytest.raises(tfnet.DataError, match="asks for"):
        cifar10.open_copy(place, rows=ROWS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", ["python", "binary"])
def test_each_file_that_is_missing_is_named(name, layout, tmp_path):
    place = LAYOUTS[layout](tmp_path)
    for path in place.glob(f"{name}*"):
        path.unlink()
    with pytest.raises(tfnet.DataError) as caught:
        cifar10.open_copy(place, rows=ROWS)
    assert f"{name} is missing" in str(caught.value)
    assert str(place) in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 3073 * ROWS - 1, 3073 * ROWS + 1,
                                  3073 * (ROWS + 1)])  # fmt: skip
def test_a_binary_file_of_any_other_size_is_named(size, tmp_path):
    files = {**binary_files(), "test_batch.bin": bytes(size)}
    place = write_folder(tmp_path / "copy", files)
    with pytest.raises(tfnet.DataError) as caught:
        cifar10.open_copy(place, rows=ROWS)
    assert f"test_batch.bin has {size} bytes" in str(caught.value)
    assert str(place) in str(caught.value)


@pytest.mark.parametrize("name", ["python", "binary"])
def test_random_bytes_in_a_folder_are_named(name, tmp_path):
    random = np.random.default_rng(0)
    place = LAYOUTS[name](tmp_path)
    path = next(place.glob("data_batch_2*"))
    for count in (1, 10, 1000, 30000):
        for _ in range(25):
            path.write_bytes(random.bytes(count))
            with pytest.raises(tfnet.DataError) as caught:
                cifar10.open_copy(place, rows=ROWS)
            assert str(place) in str(caught.value)


def test_random_bytes_for_an_archive_are_named(tmp_path):
    random = np.random.default_rng(0)
    path = tmp_path / "cifar-10-python.tar.gz"
    # The second begins as gzip does.
    for start in (b"", b"\x1f\x8b\x08\0"):
        for count in (0, 1, 511, 5000):
            path.write_bytes(start + random.bytes(count))
            with pytest.raises(tfnet.DataError) as caught:
                cifar10.open_copy(path, rows=ROWS)
            assert str(path) in str(caught.value)


def test_labels_are_told_when_they_are_no_numbers_of_classes(tmp_path):
    files = python_files()
    for labels in ([0.5] * ROWS, ["a"] * ROWS, [2**70] * ROWS):
        files["test_batch"] = pickle.dumps(
            {b"data": np.zeros((ROWS, 3072), np.uint8), b"labels": labels}
        )
        place = tmp_path / str(labels[0])
        with pytest.raises(tfnet.DataError, match="no pixels and labels"):
            cifar10.open_copy(write_folder(place, files), rows=ROWS)


def test_another_copy_in_the_same_place_has_another_key(tmp_path):
    path = LAYOUTS["binary archive"](tmp_path)
    before = cifar10.open_copy(path, rows=ROWS).key
    os.utime(path, ns=(1, 1))
    assert cifar10.open_copy(path, rows=ROWS).key != before


def test_archive_damaged_in_the_middle(tmp_path):
    path = LAYOUTS["python archive"](tmp_path)
    whole = path.read_bytes()
    numbers = random.Random(0)
    texts = []
    for _ in range(100):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[numbers.randrange(20, len(whole))] = numbers.randrange(256)
        path.write_bytes(damaged)
        try:
            cifar10.open_copy(path, rows=ROWS)
        except tfnet.DataError as error:
            texts.append(str(error))
    assert len(texts) > 10
    assert all(str(path) in text for text in texts)


def test_pickle_imports_no_module_it_names(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tfnet"])
    files_ = {
        **python_files(),
        "test_batch": b"cnumpy.f2py.__main__\ndtype\n.",
    }
    place = write_folder(tmp_path / "c", files_)
    try:
        with pytest.raises(tfnet.DataError, match="asks for"):
            cifar10.open_copy(place, rows=ROWS)
    except SystemExit as error:
        raise AssertionError("the pickle ran f2py's main") from error


def test_error_is_one_line(tmp_path):
    files_ = {
        **python_files(),
        "test_batch": b"\x80\x04\x8c\x03a\nb\x8c\x01c\x93.",
    }
    place = write_folder(tmp_path / "c", files_)
    with pytest.raises(tfnet.DataError) as caught:
        cifar10.open_copy(place, rows=ROWS)
    assert "\n" not in str(caught.value)


def test_place_that_cannot_be_listed_is_passed_over(tmp_path, monkeypatch):
    (tmp_path / "cifar-10-batches-py").mkdir()

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refused)
    assert list(cifar10.find_copies(str(tmp_path))) == []


def test_folder_rewritten_in_place_has_another_key(tmp_path):
    place = LAYOUTS["binary"](tmp_path)
    before = cifar10.open_copy(place, rows=ROWS).key
    path = place / "test_batch.bin"
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(1, 1))
    assert cifar10.open_copy(place, rows=ROWS).key != before
