"""TensorFlow Datasets: any image classification set, by its name."""

import contextlib
import http.client
import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfnet.data import holdout, source
from tfnet.errors import DataError, one_line
from tfnet.files import why_no_directory

PROBE_SECONDS = 5.0


def is_prepared(name: str, data_dir: str | None) -> bool:
    """Returns whether a copy is ready to be read; imports nothing heavy."""
    place = Path(usual_dir(data_dir)).expanduser()
    return any(place.glob(f"{name}/*/dataset_info.json"))


def usual_dir(data_dir: str | None) -> str:
    """Returns where TensorFlow Datasets keeps its copies; ~ is the home."""
    usual = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    return data_dir or usual


def can_reach(url: str, *, seconds: float = PROBE_SECONDS) -> bool:
    """Returns whether a server answers at `url` within `seconds`.

    In a thread of its own, because looking up a name has no limit of its own.
    """
    answered = threading.Event()

    def ask() -> None:
        try:
            request = urllib.request.Request(url, method="HEAD")
            with urllib.request.urlopen(request, timeout=seconds):
                answered.set()
        except urllib.error.HTTPError:
            answered.set()
        except (OSError, ValueError, http.client.HTTPException):
            return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return answered.is_set()


def open_tfds(
    name: str,
    data_dir: str | None,
    *,
    download: bool,
    tell: Callable[[str], None],
    test_fraction: float | None = None,
) -> source.Source:
    """Opens a set of TensorFlow Datasets, and downloads it if need be.

    What is called test, else validation, is for testing; where there is
    neither, some examples of each class.

    Args:
      name: Its name there, such as `mnist` or `name/config`.
      data_dir: Where copies are kept; None: the usual place.
      download: Whether it may be downloaded.
      tell: Is given lines for a person who waits.
      test_fraction: How many to keep for testing; see `holdout.held_out`. An
        example is known by its place in the split, from 0.

    Raises:
      DataError: There is no such set, it is not one for image
        classification, it can't be downloaded, its copy is damaged, there is
        nothing to test on, or a fraction is given where there is a split to
        test on.
    """
    import tensorflow_datasets as tfds

    place = Path(usual_dir(data_dir)).expanduser()
    builder = _builder(tfds, name, place)
    image_key, label_key = _keys(tfds, builder, name)
    if not builder.is_prepared():
        _download(tfds, builder, name, place, download, tell)
    test = _test_split(builder, name)
    if test is not None:
        where = f"{name} (with a split called {test})"
        holdout.refuse_fraction(where, test_fraction)
        kept = None
    else:
        labels = _labels(tfds, builder, label_key)
        kept = _held_out(labels, test_fraction, name)

    def read(
        split: source.Split, size: int, limit: int | None
    ) -> source.Chunks:
        part = "train" if split == "train" or test is None else test
        examples = builder.as_dataset(
            split=part,
            shuffle_files=False,
            read_config=_in_order(tfds) if test is None else None,
            decoders={image_key: tfds.decode.SkipDecoding()},
        )
        if kept is not None:
            examples = _only(examples, kept == (split == "test"))
        files = examples.map(lambda one: (one[image_key], one[label_key]))
        if limit is not None:
            files = files.take(limit)
        return _read(builder, files, size)

    return source.Source(
        name=name.replace("/", "_").replace(":", "_"),
        origin=f"TensorFlow Datasets, {builder.data_path}",
        class_names=tuple(builder.info.features[label_key].names),
        counts=_counts(builder, test, kept),
        key=str(builder.info.full_name),
        read=read,
        costly=True,
        notes=_notes(name, test, test_fraction),
        variant=holdout.variant(test_fraction),
    )


def _builder(tfds: Any, name: str, place: Path) -> Any:
    try:
        return tfds.builder(name, data_dir=str(place))
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        import difflib

        known = tfds.list_builders(with_community_datasets=False)
        near = difflib.get_close_matches(name, [*known, "fashion_mnist_10k"])
        hint = f" (near: {', '.join(near)})" if near else ""
        raise DataError(
            f"--dataset ({name}) must be a folder that exists, a .csv"
            " file, cifar10, fashion_mnist_10k or a name of TensorFlow"
            f" Datasets; it is none of them{hint}."
        ) from error
    except Exception as error:
        # A version, a config or a copy that can't be had, each in a class of
        # its own.
        raise DataError(
            f"--dataset ({name}) can't be opened in {place}: {one_line(error)}"
        ) from error


def _keys(tfds: Any, builder: Any, name: str) -> tuple[str, str]:
    """Returns the names of the image and of the label in an example."""
    keys = builder.info.supervised_keys or ("image", "label")
    features = dict(builder.info.features)
    is_classification = (
        len(keys) == 2
        and isinstance(keys[0], str)
        and isinstance(keys[1], str)
        and isinstance(features.get(keys[0]), tfds.features.Image)
        and isinstance(features.get(keys[1]), tfds.features.ClassLabel)
    )
    if not is_classification:
        raise DataError(
            f"--dataset ({name}) is not a set of labelled images; image"
            " classification is what tfnet does."
        )
    return keys


def _download(
    tfds: Any,
    builder: Any,
    name: str,
    place: Path,
    allowed: bool,
    tell: Callable[[str], None],
) -> None:
    why_not = why_no_directory(place)
    if why_not is not None:
        raise DataError(f"--data_dir ({place}) {why_not}. Name another place.")
    ways = (
        f"on a machine with network, run `tfds build {name}` and copy its"
        f" folder to {place}, or name another place with --data_dir"
    )
    if not allowed:
        raise DataError(
            f"--dataset ({name}) is not on this machine, and a dry run"
            f" downloads nothing; {ways}."
        )
    urls = [url for url in builder.url_infos or () if "://" in url]
    if urls and not can_reach(urls[0]):
        host = urllib.parse.urlsplit(urls[0]).hostname
        raise DataError(
            f"--dataset ({name}) is not on this machine, and {host} did not"
            f" answer within {PROBE_SECONDS:.0f} seconds; {ways}."
        )
    tell(f"Downloading {name} to {place} ...")
    tfds.disable_progress_bar()
    try:
        builder.download_and_prepare()
    except Exception as error:
        # Servers, disks and checksums all fail here in classes of their own.
        raise DataError(
            f"--dataset ({name}) could not be downloaded: {one_line(error)};"
            f" {ways}."
        ) from error


def _test_split(builder: Any, name: str) -> str | None:
    """Returns the split to test on; None: some of train."""
    splits = builder.info.splits
    if "train" not in splits:
        raise DataError(
            f"--dataset ({name}) must have a split named train; it has"
            f" {', '.join(splits)}."
        )
    return next((one for one in ("test", "validation") if one in splits), None)


def _notes(
    name: str, test: str | None, fraction: float | None
) -> tuple[str, ...]:
    if test is None:
        return (holdout.note(f"in {name}", fraction),)
    if test == "validation":
        return (
            f"{name} has no test split; its validation split takes the place"
            " of one.",
        )
    return ()


def _in_order(tfds: Any) -> Any:
    """Returns how to read one file after the other, as the split counts."""
    return tfds.ReadConfig(interleave_cycle_length=1)


def _labels(tfds: Any, builder: Any, key: str) -> np.ndarray:
    """Returns the label of each training example; decodes no image."""
    with _named_damage(builder):
        examples = builder.as_dataset(
            split="train",
            shuffle_files=False,
            read_config=_in_order(tfds),
            decoders=tfds.decode.PartialDecoding({key: True}),
        )
        labels = examples.map(lambda one: one[key]).batch(2**16)
        return np.concatenate(
            [np.zeros(0, np.int64), *labels.as_numpy_iterator()]
        )


def _held_out(
    labels: np.ndarray, fraction: float | None, name: str
) -> np.ndarray:
    kept = holdout.held_out(labels, fraction)
    if not kept.any():
        raise holdout.nothing_left(
            f"--dataset ({name})", "it needs a test split"
        )
    return kept


def _only(examples: Any, these: np.ndarray) -> Any:
    """Returns the examples at whose places `these` is true."""
    import tensorflow as tf

    chosen = tf.constant(these)
    return (
        examples.enumerate()
        .filter(lambda place, _: chosen[place])
        .map(lambda _, example: example)
    )


def _counts(
    builder: Any, test: str | None, kept: np.ndarray | None
) -> dict[source.Split, int]:
    if kept is not None:
        return {"train": int((~kept).sum()), "test": int(kept.sum())}
    splits = builder.info.splits
    return {
        "train": splits["train"].num_examples,
        "test": splits[test].num_examples,
    }


@contextlib.contextmanager
def _named_damage(builder: Any) -> Iterator[None]:
    """Turns TensorFlow's errors about records into one that says what to do."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        raise DataError(
            f"the copy of {builder.info.name} in {builder.data_path} is"
            " damaged; remove that folder to have it made anew."
        ) from error


def _read(builder: Any, files: Any, size: int) -> source.Chunks:
    from tfnet.data import images as rule

    with _named_damage(builder):
        yield from rule.decoded_chunks(files, size, source.CHUNK)
