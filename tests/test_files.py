import os

import pytest

from tfnet import files


@pytest.fixture
def umask():
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_a_text_is_written_whole(tmp_path, umask):
    path = tmp_path / "a.txt"
    files.write_text(path, "first\n")
    files.write_text(path, "ж\r\n\udcff")
    assert path.read_bytes() == "ж\r\n\\udcff".encode()
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_text_that_cannot_be_written_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_a_directory_appears_whole(tmp_path, umask):
    path = tmp_path / "deep" / "made"
    with files.new_directory(path) as aside:
        (aside / "sub").mkdir()
        (aside / "sub" / "file").write_text("x")
        assert not path.exists()
    assert (path / "sub" / "file").read_text() == "x"
    assert [one.name for one in path.parent.iterdir()] == ["made"]
    assert path.stat().st_mode & 0o777 == 0o750


def test_a_directory_takes_the_place_of_an_old_one(tmp_path):
    path = tmp_path / "made"
    path.mkdir()
    (path / "old").write_text("")
    with files.new_directory(path) as aside:
        (aside / "new").write_text("")
    assert [one.name for one in path.iterdir()] == ["new"]
    assert [one.name for one in tmp_path.iterdir()] == ["made"]


def test_a_directory_that_fails_changes_nothing(tmp_path):
    path = tmp_path / "made"
    path.mkdir()
    (path / "old").write_text("")
    with pytest.raises(KeyError), files.new_directory(path) as aside:
        (aside / "new").write_text("")
        raise KeyError
    assert [one.name for one in path.iterdir()] == ["old"]
    assert [one.name for one in tmp_path.iterdir()] == ["made"]
