"""From a name to a data set, without a network."""

import hashlib
import http.server
import os
import socket
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import tfnet
from tfnet.data import cifar10, open_dataset, sample, tfds


@pytest.fixture(autouse=True)
def empty_home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    for name in ("KERAS_HOME", "TFDS_DATA_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tfds, "can_reach", lambda url, **limit: False)


def opened(name, lines=None, **keywords):
    settings = {
        "data_dir": None,
        "cache_dir": None,
        "image_size": 32,
        "dry_run": False,
        "tell": (lines if lines is not None else []).append,
        **keywords,
    }
    return open_dataset(name, **settings)


@pytest.fixture
def small_cifar10(monkeypatch):
    """Lets copies of seven images a file count as whole ones."""
    from test_cifar10 import ROWS

    real = cifar10.open_copy
    monkeypatch.setattr(
        cifar10, "open_copy", lambda path: real(path, rows=ROWS)
    )


def test_the_sample_is_the_published_test_set():
    data = opened("fashion_mnist_10k")
    assert (len(data.train), len(data.test)) == (8000, 2000)
    assert data.image_shape == (32, 32, 3)
    labels = np.concatenate([data.train.labels, data.test.labels])
    # The publishers: 1,000 of each class among the 10,000.
    assert np.bincount(labels).tolist() == [1000] * 10
    assert len(data.class_names) == 10
    images, _ = data.train.take(np.arange(50))
    # Grey, in three channels.
    np.testing.assert_array_equal(images[..., 0], images[..., 2])


def test_the_unset_default_falls_back_and_says_so():
    data = opened(None)
    assert data.name == sample.NAME
    (note,) = data.notes
    assert "this run uses fashion_mnist_10k" in note
    assert "~/.keras/datasets" in note
    assert "server does not answer" in note


def test_a_name_does_not_fall_back():
    with pytest.raises(tfnet.DataError) as caught:
        opened("cifar10")
    for text in ("--dataset=cifar10", "./data", "~/Downloads", "--data_dir"):
        assert text in str(caught.value)


def test_a_copy_is_taken_and_a_damaged_one_told(small_cifar10, tmp_path):
    from test_cifar10 import LAYOUTS

    bad = LAYOUTS["python"](tmp_path / "work" / "data")
    (bad / "test_batch").unlink()
    good = LAYOUTS["binary archive"](tmp_path / "home" / "data")
    for name in (None, "cifar10"):
        lines = []
        data = opened(name, lines)
        assert data.origin == str(good)
        assert (data.name, data.notes) == ("cifar10", ())
        (line,) = lines
        assert "Passed over" in line
        assert "cifar-10-batches-py is damaged" in line


def test_data_dir_is_the_only_place_then(small_cifar10, tmp_path):
    from test_cifar10 import LAYOUTS

    LAYOUTS["python"](tmp_path / "home" / "data")
    with pytest.raises(tfnet.DataError, match="no copy in /nowhere"):
        opened("cifar10", data_dir="/nowhere")


def test_the_same_data_has_the_same_fingerprint_in_any_layout(
    small_cifar10, tmp_path
):
    from test_cifar10 import LAYOUTS

    prints = set()
    for number, layout in enumerate(LAYOUTS.values()):
        place = tmp_path / str(number)
        layout(place)
        prints.add(opened("cifar10", data_dir=str(place)).fingerprint())
    assert len(prints) == 1


def test_an_existing_folder_comes_before_a_name(tmp_path):
    from test_folder import make

    make(tmp_path / "work" / "mnist", "train/a/1.png", "train/b/1.png",
         "test/a/1.png")  # fmt: skip
    assert opened("mnist", image_size=4).class_names == ("a", "b")


def test_a_dry_run_takes_a_few_of_the_sample():
    data = opened(None, dry_run=True)
    assert (len(data.train), len(data.test)) == (64, 64)


@pytest.fixture(scope="module")
def made_sets(tmp_path_factory):
    """Small sets of TensorFlow Datasets, prepared offline."""
    import tensorflow_datasets as package

    place = tmp_path_factory.mktemp("tfds")
    pixels = np.arange(11 * 16, dtype=np.uint8).reshape(11, 4, 4, 1)

    def examples(count):
        for number in range(count):
            image = np.full((4, 4, 1), number, np.uint8)
            if count <= len(pixels):
                image = pixels[number]
            yield number, {"image": image, "label": number % 2}

    def prepare(name, splits, features=None, shards=1):
        features = features or {
            "image": package.features.Image(shape=(4, 4, 1)),
            "label": package.features.ClassLabel(names=["even", "odd"]),
        }
        builder = type(
            name,
            (package.core.GeneratorBasedBuilder,),
            {
                "VERSION": package.core.Version("1.0.0"),
                "MANUAL_DOWNLOAD_INSTRUCTIONS": "",
                "_info": lambda self: self.dataset_info_from_configs(
                    features=package.features.FeaturesDict(features),
                    supervised_keys=tuple(features),
                ),
                "_split_generators": lambda self, manager: {
                    split: examples(count) for split, count in splits.items()
                },
                "_generate_examples": lambda self: iter(()),
                "pkg_dir_path": place,
            },
        )
        made = builder(data_dir=str(place))
        made.download_and_prepare(
            download_config=package.download.DownloadConfig(num_shards=shards)
        )
        return made

    prepare("MadeWhole", {"train": 11, "test": 3})
    prepare("MadeSingle", {"train": 11})
    prepare("MadeInShards", {"train": 61}, shards=3)
    prepare("MadeTiny", {"train": 3})
    prepare("MadeValidation", {"validation": 2, "train": 4})
    prepare("MadeAll", {"train": 3, "validation": 4, "test": 5})
    prepare("MadeWithoutTrain", {"everything": 4})
    label = package.features.ClassLabel(names=["even", "odd"])
    prepare(
        "MadeOfVectors",
        {"train": 4},
        {"image": package.features.Tensor(shape=(4, 4, 1), dtype=np.uint8),
         "label": label},
    )  # fmt: skip
    prepare(
        "MadeOfNumbers",
        {"train": 4},
        {"image": package.features.Image(shape=(4, 4, 1)),
         "label": np.int64},
    )  # fmt: skip
    return place


def test_a_set_of_tensorflow_datasets_is_read(made_sets, tmp_path):
    data = opened(
        "made_whole",
        data_dir=str(made_sets),
        image_size=4,
        cache_dir=str(tmp_path / "cache"),
    )
    assert data.class_names == ("even", "odd")
    assert (len(data.train), len(data.test)) == (11, 3)
    images, labels = data.train.take(np.arange(11))
    # 16 pixels an image, counted through; TFDS keeps its own shuffled order.
    first = images[:, 0, 0, 0] // 16
    assert sorted(first.tolist()) == list(range(11))
    assert labels.tolist() == (first % 2).tolist()
    np.testing.assert_array_equal(images[..., 0], images[..., 1])


def test_a_damaged_record_is_named(made_sets, tmp_path):
    import shutil

    place = tmp_path / "tfds"
    shutil.copytree(made_sets, place)
    for path in place.rglob("*train*record*"):
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(tfnet.DataError, match=r"made_whole.*damaged"):
        opened(
            "made_whole",
            data_dir=str(place),
            image_size=4,
            cache_dir=str(tmp_path / "cache"),
        )


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(tfnet.DataError) as caught:
        opened("fashion_mnst")
    assert "--dataset (fashion_mnst)" in str(caught.value)
    assert "(near: fashion_mnist" in str(caught.value)
    with pytest.raises(tfnet.DataError, match="near: imdb_reviews"):
        opened("imdb_review")


def test_what_is_no_image_classification_is_refused():
    with pytest.raises(tfnet.DataError, match="not a set of labelled images"):
        opened("imdb_reviews")


def test_a_set_that_cannot_be_downloaded_is_told_soon(monkeypatch):
    begin = time.monotonic()
    with pytest.raises(tfnet.DataError) as caught:
        opened("mnist")
    assert "--dataset (mnist) is not on this machine" in str(caught.value)
    assert "tfds build mnist" in str(caught.value)
    # Far below the minutes that a download would try for.
    assert time.monotonic() - begin < 60


def test_a_file_in_the_place_of_the_data_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(tfnet.DataError) as caught:
        opened("mnist", data_dir=str(file))
    assert str(caught.value).startswith(f"--data_dir ({file}) must be a direct")
    assert f"{file} is no directory" in str(caught.value)


def test_reaching_a_server_has_a_limit(monkeypatch):
    monkeypatch.undo()
    waiting = threading.Event()

    def stuck(*arguments, **keywords):
        waiting.wait(30)
        raise OSError("no name")

    monkeypatch.setattr(socket, "getaddrinfo", stuck)
    begin = time.monotonic()
    assert not tfds.can_reach("http://nowhere.example/x", seconds=0.2)
    assert time.monotonic() - begin < 10
    waiting.set()


def test_a_server_that_answers_is_reached_whatever_it_says(monkeypatch):
    monkeypatch.undo()
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)

    class Quiet(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(404)

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/nothing"
        reached = tfds.can_reach(url)
        server.shutdown()
        thread.join()
    assert reached
    assert not tfds.can_reach(url, seconds=2)


def test_images_are_there_for_tensorflow(made_sets):
    # The records hold encoded images: what the reader decodes itself.
    (path, *_) = made_sets.rglob("*train*record*")
    record = next(iter(tf.data.TFRecordDataset(str(path)))).numpy()
    assert b"\x89PNG" in record


def read_made(name, made_sets, tmp_path, **keywords):
    settings = {
        "data_dir": str(made_sets),
        "cache_dir": str(tmp_path / "cache"),
        "image_size": 4,
        **keywords,
    }
    return opened(name, **settings)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("made_validation", (4, 2)),
        ("made_all", (3, 5)),
        ("made_whole:1.0.0", (11, 3)),
    ],
)
def test_test_comes_before_validation_for_testing(
    name, counts, made_sets, tmp_path
):
    data = read_made(name, made_sets, tmp_path)
    assert (len(data.train), len(data.test)) == counts
    told = "made_validation has no test split; its validation split takes"
    assert [told in note for note in data.notes] == [True] * ("val" in name)
    # The name goes into the names of files.
    assert data.name == name.replace(":", "_")


def test_a_set_without_a_train_split_is_refused(made_sets, tmp_path):
    with pytest.raises(tfnet.DataError) as caught:
        read_made("made_without_train", made_sets, tmp_path)
    assert "--dataset (made_without_train) must have a split named train" in (
        str(caught.value)
    )
    assert "everything" in str(caught.value)


@pytest.mark.parametrize("name", ["made_of_vectors", "made_of_numbers"])
def test_what_has_no_images_or_no_classes_is_refused(name, made_sets, tmp_path):
    with pytest.raises(tfnet.DataError) as caught:
        read_made(name, made_sets, tmp_path)
    assert f"--dataset ({name}) is not a set of labelled images" in str(
        caught.value
    )


@pytest.mark.parametrize("fraction", [None, 0.3])
def test_a_set_without_a_test_split_is_split_by_class_and_place(
    fraction, made_sets, tmp_path
):
    numbers = []
    for path in sorted(made_sets.glob("made_in_shards/*/*record*")):
        for record in tf.data.TFRecordDataset(str(path)):
            example = tf.train.Example.FromString(record.numpy())
            encoded = example.features.feature["image"].bytes_list.value[0]
            numbers.append(int(tf.io.decode_png(encoded)[0, 0, 0]))
    assert sorted(numbers) == list(range(61))
    # What TFDS would read in turn, 16 of each, stands one after the other.
    assert len(list(made_sets.glob("made_in_shards/*/*-of-00003"))) == 3
    kept = []
    for label in (0, 1):
        places = [i for i, number in enumerate(numbers) if number % 2 == label]
        if fraction is None:
            # Of 31 and 30, six each.
            kept += places[4::5]
        else:
            places.sort(key=lambda i: hashlib.sha256(b"%d" % i).digest())
            # Of 31 and 30, rounded from 9.3 and 9.
            kept += places[:9]
    data = read_made(
        "made_in_shards", made_sets, tmp_path, test_fraction=fraction
    )
    found = [
        examples.take(np.arange(len(examples)))[0][:, 0, 0, 0].tolist()
        for examples in (data.train, data.test)
    ]
    assert found[1] == [numbers[i] for i in sorted(kept)]
    assert found[0] == [n for i, n in enumerate(numbers) if i not in kept]
    assert data.train.labels.tolist() == [n % 2 for n in found[0]]
    told = "0.3 of each class" if fraction else "every fifth image of each"
    assert f"No test images in made_in_shards: {told}" in data.notes[0]


def test_a_fraction_of_a_set_of_tensorflow_datasets_that_can_not_be(
    made_sets, tmp_path
):
    for name, split in (("made_all", "test"), ("made_validation", "valid")):
        with pytest.raises(
            tfnet.DataError, match=rf"--test_fraction \(0.2\).*called {split}"
        ):
            read_made(name, made_sets, tmp_path, test_fraction=0.2)
    with pytest.raises(tfnet.DataError, match="no image to test on; it needs"):
        read_made("made_tiny", made_sets, tmp_path)
    few = read_made("made_tiny", made_sets, tmp_path, test_fraction=0.2)
    assert (len(few.train), len(few.test)) == (2, 1)


def test_a_set_of_tensorflow_datasets_is_decoded_once(
    made_sets, tmp_path, monkeypatch
):
    want = read_made("made_whole", made_sets, tmp_path).fingerprint()

    def no_more(*arguments):
        raise AssertionError("decoded again")

    monkeypatch.setattr(tfds, "_read", no_more)
    again = read_made("made_whole", made_sets, tmp_path)
    assert again.fingerprint() == want


def test_grey_images_of_another_size_are_brought_to_size(made_sets, tmp_path):
    from tfnet.data.images import resize

    small = read_made("made_whole", made_sets, tmp_path)
    large = read_made("made_whole", made_sets, tmp_path, image_size=9)
    everything = np.arange(11)
    np.testing.assert_array_equal(
        large.train.take(everything)[0],
        resize(small.train.take(everything)[0], 9),
    )


def test_a_dry_run_of_a_prepared_set_writes_nothing(made_sets, tmp_path):
    data = read_made("made_whole", made_sets, tmp_path, dry_run=True)
    assert (len(data.train), len(data.test)) == (11, 3)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("kind", ["gone", "empty", "half", "changed"])
@pytest.mark.parametrize("name", ["made_all", "made_single"])
def test_any_damage_to_the_records_is_named_and_nothing_kept(
    kind, name, made_sets, tmp_path
):
    import shutil

    place = tmp_path / "tfds"
    shutil.copytree(made_sets / name, place / name)
    split = "train" if name == "made_single" else "test"
    (path,) = place.rglob(f"*-{split}.tfrecord*")
    content = path.read_bytes()
    if kind == "gone":
        path.unlink()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "half":
        path.write_bytes(content[: len(content) // 2])
    else:
        middle = len(content) // 2
        flipped = bytes([content[middle] ^ 1])
        path.write_bytes(content[:middle] + flipped + content[middle + 1 :])
    with pytest.raises(tfnet.DataError) as caught:
        read_made(name, place, tmp_path)
    assert str(place / name) in str(caught.value)
    assert "is damaged; remove that folder" in str(caught.value)
    assert list((tmp_path / "cache").glob("*")) == []


def test_an_image_in_the_records_that_is_none_is_named(made_sets, tmp_path):
    import shutil

    place = tmp_path / "tfds"
    shutil.copytree(made_sets / "made_whole", place / "made_whole")
    (path,) = place.rglob("*-train.tfrecord*")
    records = [one.numpy() for one in tf.data.TFRecordDataset(str(path))]
    example = tf.train.Example.FromString(records[3])
    example.features.feature["image"].bytes_list.value[0] = b"no image"
    records[3] = example.SerializeToString()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    with pytest.raises(tfnet.DataError, match=r"made_whole.*is damaged"):
        read_made("made_whole", place, tmp_path)


def test_a_dry_run_downloads_nothing(monkeypatch):
    import tensorflow_datasets as package

    def must_not(self, **keywords):
        raise AssertionError("downloads")

    monkeypatch.setattr(tfds, "can_reach", lambda url, **limit: True)
    # So that a test that fails does not download either.
    monkeypatch.setattr(
        package.core.DatasetBuilder, "download_and_prepare", must_not
    )
    with pytest.raises(tfnet.DataError) as caught:
        opened("mnist", dry_run=True)
    assert "a dry run downloads nothing" in str(caught.value)
    assert "tfds build mnist" in str(caught.value)
    with pytest.raises(tfnet.DataError, match="and none is downloaded"):
        opened("cifar10", dry_run=True)


def test_a_download_that_fails_is_told_with_what_to_do(monkeypatch, tmp_path):
    import tensorflow_datasets as package

    def fails(self, **keywords):
        raise ConnectionError("reset\nby peer")

    monkeypatch.setattr(tfds, "can_reach", lambda url, **limit: True)
    monkeypatch.setattr(
        package.core.DatasetBuilder, "download_and_prepare", fails
    )
    lines = []
    place = tmp_path / "place"
    with pytest.raises(tfnet.DataError) as caught:
        opened("mnist", lines, data_dir=str(place))
    text = str(caught.value)
    assert "--dataset (mnist) could not be downloaded" in text
    assert "ConnectionError: reset" in text
    assert str(place) in text
    assert "\n" not in text
    assert lines == [f"Downloading mnist to {place} ..."]


def test_an_unknown_name_is_told_in_one_line():
    for name in ("nosuchset", "a b", "mnist:", "mnist/nosuch", "ж"):
        with pytest.raises(tfnet.DataError) as caught:
            opened(name)
        assert f"--dataset ({name})" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["./gone", "~/gone", "/gone"])
def test_what_looks_like_a_place_is_never_a_name(name):
    with pytest.raises(tfnet.DataError, match="is not a folder"):
        opened(name)


def test_the_home_is_meant_by_a_tilde(tmp_path):
    from test_folder import make

    make(tmp_path / "home" / "pets", "train/a/1.png", "train/b/1.png",
         "test/a/1.png")  # fmt: skip
    data = opened("~/pets", image_size=4, cache_dir="~/kept")
    assert data.class_names == ("a", "b")
    (kept,) = (tmp_path / "home" / "kept").iterdir()
    assert kept.name.startswith("pets-4-")


def test_the_usual_place_of_packed_copies(tmp_path, monkeypatch):
    from test_folder import make

    make(tmp_path / "pets", "train/a/1.png", "train/b/1.png", "test/a/1.png")
    opened(str(tmp_path / "pets"), image_size=4)
    assert len(list((tmp_path / "home/.cache/tfnet").iterdir())) == 1
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    opened(str(tmp_path / "pets"), image_size=4)
    assert len(list((tmp_path / "xdg" / "tfnet").iterdir())) == 1


def test_the_unset_default_looks_in_data_dir_alone(small_cifar10, tmp_path):
    from test_cifar10 import LAYOUTS

    LAYOUTS["python"](tmp_path / "home" / "data")
    elsewhere = tmp_path / "elsewhere"
    assert opened(None, data_dir=str(elsewhere)).name == sample.NAME
    LAYOUTS["binary"](elsewhere)
    data = opened(None, data_dir=str(elsewhere))
    assert data.origin == str(elsewhere / "cifar-10-batches-bin")
    assert data.notes == ()


def test_only_damaged_copies_are_told_each_and_end_in_the_note(
    small_cifar10, tmp_path
):
    from test_cifar10 import LAYOUTS

    first = LAYOUTS["python"](tmp_path / "work" / "data")
    (first / "test_batch").unlink()
    second = LAYOUTS["binary archive"](tmp_path / "home" / "data")
    second.write_bytes(second.read_bytes()[:1000])
    lines = []
    data = opened(None, lines)
    assert data.name == sample.NAME
    assert ["cifar-10-batches-py" in line for line in lines] == [True, False]
    assert str(second) in lines[1]
    lines.clear()
    with pytest.raises(tfnet.DataError, match="--dataset=cifar10"):
        opened("cifar10", lines)
    assert len(lines) == 2


def test_cifar10_is_that_of_tensorflow_datasets_where_one_is_prepared(
    tmp_path, monkeypatch
):
    asked = []

    def open_tfds(name, data_dir, *, download, tell):
        asked.append((name, data_dir))
        return sample.open_sample()

    monkeypatch.setattr(tfds, "open_tfds", open_tfds)
    place = tmp_path / "home" / "tensorflow_datasets" / "cifar10" / "3.0.2"
    place.mkdir(parents=True)
    with pytest.raises(tfnet.DataError, match="no copy in"):
        opened("cifar10")
    assert asked == []
    (place / "dataset_info.json").write_text("{}")
    opened("cifar10", dry_run=True)
    assert asked == [("cifar10", None)]
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(tfnet.DataError, match="elsewhere"):
        opened("cifar10")


def test_cifar10_is_downloaded_where_its_server_answers(monkeypatch):
    asked = []

    def open_tfds(name, data_dir, *, download, tell):
        asked.append(download)
        return sample.open_sample()

    monkeypatch.setattr(tfds, "open_tfds", open_tfds)
    monkeypatch.setattr(
        tfds, "can_reach", lambda url, **limit: url == cifar10.URL
    )
    opened("cifar10")
    opened(None)
    assert asked == [True, True]
    # Not in a dry run, whatever answers.
    assert opened(None, dry_run=True).name == sample.NAME
    assert asked == [True, True]


def test_the_sample_is_what_its_files_hold():
    # IDX: a header of 16 and of 8 bytes, then one byte a value.
    import gzip
    from pathlib import Path

    place = Path(sample.__file__).parent / "sample"
    pixels = gzip.decompress((place / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((place / "t10k-labels-idx1-ubyte.gz").read_bytes())
    assert (len(pixels), len(labels)) == (16 + 10_000 * 784, 8 + 10_000)
    data = opened("fashion_mnist_10k", image_size=28)
    assert data.image_shape == (28, 28, 3)
    for examples, first in ((data.train, 0), (data.test, 8000)):
        images, numbers = examples.take(np.array([0, 1999]))
        for image, number, position in zip(
            images, numbers, (first, first + 1999), strict=True
        ):
            begin = 16 + 784 * position
            assert image[..., 1].tobytes() == pixels[begin : begin + 784]
            assert number == labels[8 + position]


def test_a_server_that_never_answers_has_a_limit(monkeypatch):
    monkeypatch.undo()
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    # It listens and says nothing.
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        begin = time.monotonic()
        assert not tfds.can_reach(url, seconds=0.2)
        assert time.monotonic() - begin < 10


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "x://y"])
def test_what_cannot_be_asked_is_not_reached(url, monkeypatch):
    monkeypatch.undo()
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    assert not tfds.can_reach(url, seconds=5)


@pytest.mark.parametrize("name", ["~nosuchuser/x", "a" * 300])
def test_names_that_break_the_path(name):
    with pytest.raises(tfnet.DataError, match="--dataset"):
        opened(name)


@pytest.mark.parametrize(
    "name", ["mnist:9.9.9", "mnist/a=1", "huggingface:abc"]
)
def test_names_that_break_the_builder(name):
    with pytest.raises(tfnet.DataError, match="--dataset"):
        opened(name)


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xed\xff"])
def test_damaged_info_of_a_prepared_set(content, made_sets, tmp_path):
    import shutil

    place = tmp_path / "tfds"
    shutil.copytree(made_sets / "made_whole", place / "made_whole")
    (path,) = place.rglob("dataset_info.json")
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(tfnet.DataError):
        opened("made_whole", data_dir=str(place), image_size=4)


def test_reach_of_a_server_of_another_kind(monkeypatch, capsys):
    monkeypatch.undo()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"SSH-2.0-x\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        tfds.can_reach(f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()


def test_reach_of_no_url(monkeypatch):
    monkeypatch.undo()
    assert not tfds.can_reach("no url")
