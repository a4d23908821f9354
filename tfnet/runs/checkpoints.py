"""Checkpoints: all or nothing, and never taken for good unread.

A checkpoint is a directory of three files. `arrays.npz` holds what training
changes, bit for bit; `progress.json` how far the run had come; and
`manifest.json` the size and SHA-256 of both, and of itself. It is written
aside, read back, flushed to disk, and renamed into place.
"""

import dataclasses
import hashlib
import io
import json
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tfnet import files
from tfnet.errors import reason_of

FORMAT = 1
_ARRAYS, _PROGRESS, _MANIFEST = "arrays.npz", "progress.json", "manifest.json"
_NAME = re.compile(r"step-(\d{8,})(-evaluated)?")


class DamagedError(Exception):
    """A checkpoint can't be used; the text says why, in a few words."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on.

    Attributes:
      arrays: What training changes, by name.
      progress: How far the run had come: what JSON can hold.
    """

    arrays: Mapping[str, np.ndarray]
    progress: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search for a checkpoint found.

    Attributes:
      name: Of the newest good one; None: there is none.
      checkpoint: That one.
      passed_over: For each newer one that can't be used, its name and why.
    """

    name: str | None
    checkpoint: Checkpoint | None
    passed_over: tuple[str, ...]


def name_of(step: int, *, evaluated: bool) -> str:
    """Returns the name of the checkpoint after a step of the run.

    Args:
      step: Steps done.
      evaluated: Whether what is due after that step (the epoch's line, the
        evaluation) is done too.
    """
    return f"step-{step:08d}{'-evaluated' if evaluated else ''}"


def write(folder: Path, name: str, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint, and reads it back before it gets its name.

    Args:
      folder: The directory of checkpoints. It is made, but not its parent: a
        run directory that was removed stays removed.
      name: As `name_of` gives it.
      checkpoint: What to write.

    Raises:
      OSError: It could not be written, or was not there when read back; the
        others are as they were.
    """
    folder.mkdir(exist_ok=True)
    contents = _contents(checkpoint)
    with files.new_directory(folder / name) as aside:
        for file, data in contents.items():
            (aside / file).write_bytes(data)
        for file, data in contents.items():
            if (aside / file).read_bytes() != data:
                raise OSError(f"{file}, read back, is not what was written")


def read(path: Path) -> Checkpoint:
    """Reads a checkpoint.

    Raises:
      DamagedError: It is not whole, not what was written, or no checkpoint that
        this version of tfnet reads.
    """
    if not _NAME.fullmatch(path.name) and not path.name.startswith("."):
        raise DamagedError("it is no checkpoint of tfnet")
    try:
        for file, kept in _manifest(path)["files"].items():
            _check(path / file, kept)
        progress = json.loads(files.read_bytes(path / _PROGRESS))
        with np.load(path / _ARRAYS, allow_pickle=False) as arrays:
            return Checkpoint(dict(arrays), progress)
    except OSError as error:
        raise DamagedError(f"it can't be read: {reason_of(error)}") from error
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        # The sums are right, so it was written like that.
        raise DamagedError("it holds no checkpoint") from error


def newest(folder: Path, run_id: str | None = None) -> Found:
    """Finds the newest good checkpoint.

    Args:
      folder: The directory of checkpoints; it need not be there.
      run_id: Whose checkpoint it must be; None: any run's.
    """
    passed_over = []
    for path in _newest_first(folder):
        try:
            checkpoint = read(path)
            if run_id not in (None, checkpoint.progress["run_id"]):
                raise DamagedError("it is of another run")
        except DamagedError as error:
            passed_over.append(f"{path.name}: {error}")
        else:
            return Found(path.name, checkpoint, tuple(passed_over))
    return Found(None, None, tuple(passed_over))


def prune(folder: Path, *, newest: str, keep: int, best: str | None) -> None:
    """Removes all checkpoints but the newest ones, and the best.

    Args:
      folder: The directory of checkpoints.
      newest: The newest good one. What is newer is damaged, and stays.
      keep: How many to keep, that one included.
      best: The name of one to keep whatever its age.
    """
    ours = [path.name for path in _newest_first(folder)]
    ours = [name for name in ours if _NAME.fullmatch(name)]
    for name in ours[ours.index(newest) + keep :]:
        if name != best:
            # What can't be removed now is tried again at the next save.
            shutil.rmtree(folder / name, ignore_errors=True)


def _newest_first(folder: Path) -> list[Path]:
    """Returns what the directory holds; strangers come last."""
    if not folder.is_dir():
        return []

    def age(path: Path) -> tuple[int, str]:
        match = _NAME.fullmatch(path.name)
        return (int(match[1]) if match else -1, path.name)

    visible = [one for one in folder.iterdir() if not one.name.startswith(".")]
    return sorted(visible, key=age, reverse=True)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        data = files.read_bytes(path / _MANIFEST)
    except FileNotFoundError:
        raise DamagedError(f"{_MANIFEST} is missing") from None
    except NotADirectoryError:
        raise DamagedError("it is no checkpoint of tfnet") from None
    try:
        manifest = json.loads(data)
        del manifest["sha256"]
        version = manifest["format"]
        is_whole = _manifest_text(manifest).encode() == data
    except (ValueError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise DamagedError(f"{_MANIFEST} is damaged")
    if version != FORMAT:
        raise DamagedError(
            f"it is of format {version}; this tfnet reads {FORMAT}"
        )
    return manifest


def _contents(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Returns what is to be in each file of a checkpoint."""
    arrays = io.BytesIO()
    np.savez(arrays, **dict(checkpoint.arrays))  # type: ignore[arg-type]
    contents = {
        _ARRAYS: arrays.getvalue(),
        _PROGRESS: json.dumps(checkpoint.progress, indent=1).encode(),
    }
    kept = {
        file: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for file, data in contents.items()
    }
    manifest = _manifest_text({"format": FORMAT, "files": kept})
    return {**contents, _MANIFEST: manifest.encode()}


def _manifest_text(manifest: dict[str, Any]) -> str:
    body = json.dumps(manifest, sort_keys=True)
    signed = {**manifest, "sha256": hashlib.sha256(body.encode()).hexdigest()}
    return json.dumps(signed, sort_keys=True, indent=1)


def _check(path: Path, kept: Mapping[str, Any]) -> None:
    if not path.exists():
        raise DamagedError(f"{path.name} is missing")
    if not path.is_file():
        raise DamagedError(f"{path.name} is no file")
    size = path.stat().st_size
    if size != kept["bytes"]:
        raise DamagedError(
            f"{path.name} has {size:,} bytes instead of {kept['bytes']:,}"
        )
    if _digest(path) != kept["sha256"]:
        raise DamagedError(f"the SHA-256 of {path.name} is not what it was")


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
