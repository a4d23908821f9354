"""A CSV file of images, against what was written into it."""

import os

import numpy as np
import pytest
from test_folder import make, values

import tfnet
from tfnet.data import open_dataset
from tfnet.data.table import open_table


def table_of(tmp_path, text, *images):
    make(tmp_path, *images)
    path = tmp_path / "my labels.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def error_of(tmp_path, text, *images, **keywords):
    with pytest.raises(tfnet.DataError) as caught:
        open_table(table_of(tmp_path, text, *images), **keywords)
    message = str(caught.value)
    assert "\n" not in message
    assert "--dataset" in message or "--test_fraction" in message
    return message


TEN = [f"{i}.png" for i in range(10)]


def ten():
    return "".join(f"{i}.png,{('even', 'odd')[i % 2]}\n" for i in range(10))


def test_split_header_and_names_of_any_kind(tmp_path):
    names = ["a b.png", "c,d.png", 'e"f.png', "g\nh.png", "é/ж.png", "x.png"]
    text = (
        "Path, Label ,split\r\n"
        "a b.png,10,train\r\n"
        '"c,d.png",2, Test\r\n'
        "\r\n"
        '"e""f.png"," 2 ",train\r\n'
        '"g\nh.png",10,test\r\n'
        'é/ж.png,"Zwölf, \'n",train\r\n'
        f"{tmp_path}/x.png,2,train\r\n"
    )
    source = open_table(table_of(tmp_path, text, *names))
    assert source.class_names == ("2", "10", "Zwölf, 'n")
    assert values(source, "train") == ([0, 2, 4, 5], [1, 0, 2, 0])
    assert values(source, "test") == ([1, 3], [0, 1])
    assert source.notes == ()
    assert source.name == "my_labels"


def test_without_split_every_fifth_of_each_label(tmp_path):
    # A byte order mark, as spreadsheets write it.
    source = open_table(table_of(tmp_path, "\ufeff" + ten(), *TEN))
    assert source.class_names == ("even", "odd")
    assert values(source, "test") == ([8, 9], [0, 1])
    assert "every fifth" in source.notes[0]


def test_a_file_that_is_called_path_is_no_header(tmp_path):
    text = "path,label,split\na.png,b,test\n"
    message = error_of(tmp_path, text, "path", "a.png")
    assert "row 1:" in message
    assert "'split'" in message


def test_a_name_that_is_no_utf_8(tmp_path):
    make(tmp_path, "a.png", "b.png")
    os.rename(tmp_path / "a.png", os.fsencode(tmp_path) + b"/\xff.png")
    text = b"\xff.png,caf\xe9,train\nb.png,b,test\n"
    source = open_table(table_of(tmp_path, text))
    assert source.class_names == ("b", "caf\\xe9")
    assert values(source, "train") == ([0], [1])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["no row"]),
        ("path,label\n", ["no row"]),
        ("0.png\n", ["row 1:", "path,label", "1 field."]),
        ("0.png,a,train,x\n", ["row 1:", "4 fields"]),
        ("path,label\n0.png,a\nb,c.png,b\n", ["row 3:", "2 fields", "quotes"]),
        ("0.png,a\n1.png,b\ngone.png,b\n", ["row 3:", "'gone.png'", "No such"]),
        ("file,class\n0.png,a\n", ["row 1:", "header", "path,label"]),
        ("0.png,a\n1.png, \n", ["row 2:", "must have a label"]),
        ("0.png,a\n,b\n", ["row 2:", "''"]),
        ("0.png,a\n.,b\n", ["row 2:", "'.'", "must be a file"]),
        ("0.png,a\n1.png,a\n", ["two labels", "only a"]),
        ("0.png,a,train\n1.png,b,val\n", ["row 2:", "train or test", "'val'"]),
        (
            "0.png,a\n1.png,b\n./0.png,b\n",
            ["row 3:", "row 1", "'a' and 'b'", "once"],
        ),
        ("0.png,a\n1.png,b\n0.png,a\n", ["row 3:", "the same label"]),
        ("0.png,a\n1.png,b\n", ["no image to test on", "--test_fraction"]),
        ("0.png,a,train\n1.png,b,train\n", ["no image to test on"]),
        ("0.png,a,test\n1.png,b,test\n", ["no image to train on"]),
        ('0.png,a\n"1.png,b\n', ["no CSV file"]),
        ('0.png,a\n"1"x.png,b\n', ["no CSV file"]),
        ("0.png,a\n".encode("utf-16"), ["UTF-8", "row 1"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_row(text, parts, tmp_path):
    message = error_of(tmp_path, text, "0.png", "1.png")
    for part in parts:
        assert part in message


def test_a_table_that_is_not_there_or_a_folder(tmp_path):
    with pytest.raises(tfnet.DataError, match="No such file"):
        open_table(tmp_path / "no.csv")
    with pytest.raises(tfnet.DataError, match="directory"):
        open_table(tmp_path)


def test_links_are_followed_and_loops_named(tmp_path):
    make(tmp_path / "real", "x.png")
    (tmp_path / "0.png").symlink_to(tmp_path / "real" / "x.png")
    text = "0.png,a,train\n1.png,b,test\n"
    source = open_table(table_of(tmp_path, text, "1.png"))
    assert source.counts == {"train": 1, "test": 1}
    (tmp_path / "1.png").unlink()
    (tmp_path / "1.png").symlink_to(tmp_path / "1.png")
    assert "row 2" in error_of(tmp_path, text)


def opened(name, tmp_path, **keywords):
    return open_dataset(
        str(name),
        data_dir=None,
        cache_dir=str(tmp_path / "cache"),
        image_size=4,
        dry_run=False,
        tell=keywords.pop("tell", lambda line: None),
        **keywords,
    )


def test_a_table_is_found_by_its_ending_and_packed(tmp_path):
    table = table_of(tmp_path, ten(), *TEN)
    data = opened(table, tmp_path)
    assert (len(data.train), len(data.test)) == (8, 2)
    assert data.origin == str(table)
    images, labels = data.test.take(np.arange(2))
    assert images[:, 0, 0, 0].tolist() == [8, 9]
    assert labels.tolist() == [0, 1]


def test_a_label_with_a_line_break_can_be_packed(tmp_path):
    text = '0.png,"a\n\nb",train\n1.png,"a",test\n'
    table = table_of(tmp_path, text, "0.png", "1.png")
    assert opened(table, tmp_path).class_names == ("a", "a\n\nb")


def test_each_fraction_has_a_packed_copy_of_its_own(tmp_path):
    table = table_of(tmp_path, ten(), *TEN)
    lines = []
    for fraction in (None, 0.2, 0.4, 0.2, None):
        data = opened(
            table, tmp_path, test_fraction=fraction, tell=lines.append
        )
        assert len(data.test) == (4 if fraction == 0.4 else 2)
    # Three are read, none is outdated.
    assert len(lines) == 3
    assert not any("anew" in line for line in lines)
