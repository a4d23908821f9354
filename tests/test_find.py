"""From a name to a data set, without a network."""

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
    """Three small sets of TensorFlow Datasets, prepared offline."""
    import tensorflow_datasets as package

    place = tmp_path_factory.mktemp("tfds")
    pixels = np.arange(11 * 16, dtype=np.uint8).reshape(11, 4, 4, 1)

    def examples(count):
        for number in range(count):
            yield number, {"image": pixels[number], "label": number % 2}

    def prepare(name, splits, features=None):
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
        made.download_and_prepare()
        return made

    prepare("MadeWhole", {"train": 11, "test": 3})
    prepare("MadeSingle", {"train": 11})
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


def test_a_set_without_a_test_split_keeps_every_fifth(made_sets, tmp_path):
    data = opened(
        "made_single",
        data_dir=str(made_sets),
        image_size=4,
        cache_dir=str(tmp_path / "cache"),
    )
    assert (len(data.train), len(data.test)) == (9, 2)
    found = [
        examples.take(np.arange(len(examples)))[0][:, 0, 0, 0] // 16
        for examples in (data.train, data.test)
    ]
    assert sorted(np.concatenate(found).tolist()) == list(range(11))
    assert "no test split" in data.notes[0]


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
    assert "fashion_mnist" in str(caught.value)


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
