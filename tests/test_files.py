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


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("old", ["old", None])
@pytest.mark.parametrize(
    "error", [OSError(5, "I/O error"), KeyboardInterrupt()]
)
def test_a_text_is_old_or_new_whatever_fails(
    call, old, error, tmp_path, monkeypatch
):
    path = tmp_path / "a.txt"
    if old is not None:
        path.write_text(old)

    def fail(*arguments, **keywords):
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(error)):
        files.write_text(path, "new")
    monkeypatch.undo()
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == (
        {} if old is None else {"a.txt": "old"}
    )


def test_a_text_is_never_seen_in_part(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("old")
    seen = []
    real = os.fsync

    def look(handle):
        seen.append(path.read_text())
        real(handle)

    monkeypatch.setattr(os, "fsync", look)
    files.write_text(path, "new" * 100_000)
    # Flushed aside before it takes the place, and then the directory.
    assert seen == ["old", "new" * 100_000]


def test_a_text_needs_its_directory(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.write_text(tmp_path / "gone" / "a.txt", "x")
    assert list(tmp_path.iterdir()) == []


def test_a_text_takes_the_place_of_a_link_not_of_what_it_leads_to(tmp_path):
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "a.txt").symlink_to(tmp_path / "kept")
    files.write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "kept").read_text() == "kept"
    assert (tmp_path / "a.txt").read_text() == "new"


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_permissions_are_those_of_any_new_file(mask, tmp_path):
    before = os.umask(mask)
    try:
        files.write_text(tmp_path / "a.txt", "")
        with files.new_directory(tmp_path / "made") as aside:
            (aside / "file").write_text("")
        # Left as it was.
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o777 & ~mask
    inside = tmp_path / "made" / "file"
    assert inside.stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize(
    "error", [OSError(5, "I/O error"), KeyboardInterrupt()]
)
@pytest.mark.parametrize("there", [True, False])
def test_a_directory_is_old_or_new_when_the_first_call_fails(
    call, error, there, tmp_path, monkeypatch
):
    path = tmp_path / "made"
    if there:
        path.mkdir()
        (path / "old").write_text("old")

    def fail(*arguments, **keywords):
        raise error

    with pytest.raises(type(error)), files.new_directory(path) as aside:
        (aside / "new").write_text("")
        monkeypatch.setattr(os, call, fail)
    monkeypatch.undo()
    visible = [one.name for one in tmp_path.iterdir()
               if not one.name.startswith(".old-")]  # fmt: skip
    assert visible == (["made"] if there else [])
    if there:
        assert (path / "old").read_text() == "old"
        assert [one.name for one in path.iterdir()] == ["old"]


def test_every_file_is_flushed_before_the_directory_appears(
    tmp_path, monkeypatch
):
    path = tmp_path / "made"
    flushed = []
    real = os.fsync

    def look(handle):
        name = os.readlink(f"/proc/self/fd/{handle}")
        flushed.append((os.path.basename(name), path.exists()))
        real(handle)

    monkeypatch.setattr(os, "fsync", look)
    with files.new_directory(path) as aside:
        (aside / "sub").mkdir()
        (aside / "sub" / "a").write_text("")
        (aside / "b").write_text("")
    assert {("a", False), ("sub", False), ("b", False)} <= set(flushed)
    # Last the parent, with the new name in it.
    assert flushed[-1] == (tmp_path.name, True)


def test_a_failure_removes_all_that_was_filled_in(tmp_path):
    path = tmp_path / "deep" / "made"
    with pytest.raises(KeyboardInterrupt), files.new_directory(path) as aside:
        (aside / "sub" / "sub").mkdir(parents=True)
        (aside / "sub" / "sub" / "file").write_text("x")
        raise KeyboardInterrupt
    assert list((tmp_path / "deep").iterdir()) == []


def test_a_directory_below_a_file_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("kept")
    path = tmp_path / "file" / "made"
    with pytest.raises(OSError, match="file"), files.new_directory(path):
        pass
    assert (tmp_path / "file").read_text() == "kept"


def test_old_directory_comes_back_when_the_new_cannot_take_its_place(
    tmp_path, monkeypatch
):
    path = tmp_path / "place" / "made"
    path.mkdir(parents=True)
    (path / "old").write_text("")
    real = os.rename
    calls = []

    def second_fails(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(5, "I/O error")
        real(*arguments)

    monkeypatch.setattr(os, "rename", second_fails)
    with (
        pytest.raises(OSError, match="I/O error"),
        files.new_directory(path) as aside,
    ):
        (aside / "new").write_text("")
    assert [one.name for one in path.parent.iterdir()] == ["made"]
    assert [one.name for one in path.iterdir()] == ["old"]


def test_nothing_left_when_the_first_rename_fails(tmp_path, monkeypatch):
    path = tmp_path / "place" / "made"
    path.mkdir(parents=True)

    def fails(*arguments):
        raise OSError(5, "I/O error")

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(OSError, match="I/O error"), files.new_directory(path):
        pass
    assert [one.name for one in path.parent.iterdir()] == ["made"]


def test_what_a_killed_process_left_goes_at_the_next_writing(tmp_path):
    path = tmp_path / "made[1]"
    with files.new_directory(path) as aside:
        (aside / "file").write_text("old")
    left = [".made[1]-0a1b2c3d.aside", ".other-0a1b2c3d.aside"]
    for name in left:
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_text("x")
    (tmp_path / ".note.txt").write_text("mine")
    (tmp_path / ".mine-aside").write_text("mine")
    files.write_text(tmp_path / "b.txt", "x")
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        ".mine-aside", ".note.txt", "b.txt", "made[1]"
    ]  # fmt: skip


def test_a_place_is_named_as_it_is_seen_from_here(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    seen = files.seen_from_here
    assert seen(here / "runs" / "first") == os.path.join("runs", "first")
    for elsewhere in (here, tmp_path / "here2" / "runs", "arrays given"):
        assert seen(elsewhere) == str(elsewhere)
    here.rmdir()
    assert seen(tmp_path / "runs") == str(tmp_path / "runs")


def test_what_is_being_written_is_no_leftover(tmp_path):
    with files.new_directory(tmp_path / "slow") as aside:
        (aside / "part").write_text("x")
        files.write_text(tmp_path / "b.txt", "x")
        with files.new_directory(tmp_path / "quick"):
            pass
        assert (aside / "part").exists()
    assert (tmp_path / "slow" / "part").exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_replacement_that_was_killed_half_way_is_mended(is_there, tmp_path):
    path = tmp_path / "made"
    replaced = tmp_path / ".made-0a1b2c3d.replaced"
    replaced.mkdir()
    (replaced / "old").write_text("old")
    if is_there:
        path.mkdir()
        (path / "new").write_text("new")
    with pytest.raises(KeyError), files.new_directory(path):
        raise KeyError
    assert [one.name for one in tmp_path.iterdir()] == ["made"]
    assert [one.name for one in path.iterdir()] == [
        "new" if is_there else "old"
    ]


def test_a_file_of_any_library_appears_whole(tmp_path, umask):
    path = tmp_path / "deep" / "model.ending"
    with files.new_file(path) as aside:
        assert aside.name == "model.ending"
        aside.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(KeyError), files.new_file(path) as aside:
        aside.write_text("half")
        raise KeyError
    assert path.read_text() == "new"
    assert [one.name for one in path.parent.iterdir()] == ["model.ending"]


def test_a_directory_that_holds_more_than_is_known_is_not_replaced(tmp_path):
    path = tmp_path / "made"
    path.mkdir()
    (path / "one.png").write_text("old")
    with files.new_directory(path, replaces=("page.html", "*.png")) as aside:
        (aside / "two.png").write_text("new")
    assert [one.name for one in path.iterdir()] == ["two.png"]
    (path / "notes.txt").write_text("mine")
    with (
        pytest.raises(FileExistsError, match=r"holds notes\.txt, and would"),
        files.new_directory(path, replaces=("page.html", "*.png")),
    ):
        pass
    assert (path / "notes.txt").read_text() == "mine"
    assert (path / "two.png").read_text() == "new"
