import base64
import html.parser
import itertools
import re
import subprocess
import sys

import matplotlib
import matplotlib.image
import numpy as np
import pytest
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

from tfnet.errors import DataError
from tfnet.report import (
    classes,
    confusion,
    curves,
    examples,
    figures,
    filters,
    names,
    style,
)
from tfnet.report.facts import Facts
from tfnet.report.write import write_report

ODD_NAMES = (
    "W" * 60,
    "猫と犬",
    "🦊",
    "$x$ and $y$",
    '<b>bold</b> & "q"',
    "a\nb\tc",
    "",
    "\udcff",
    "Donaudampfschifffahrtsgesellschaftskapitänsmütze 1",
    "Donaudampfschifffahrtsgesellschaftskapitänsmütze 2",
)
RECORD = {
    "dataset": {
        "name": "<i>set</i>",
        "origin": "a place",
        "train": 1000,
        "test": 60,
    },
    "devices": ["CPU:0"],
    "replicas": 1,
    "batch_size": 10,
    "parameters": 62006,
    "notes": ["one & two"],
    "settings": {"model": "net", "precision": "float32", "seed": 7},
    "versions": {"tfnet": "0.1.0"},
    "exit_reason": "finished",
    "steps": 1000,
    "total_steps": 1000,
    "seconds": 12.5,
    "test_accuracy": 0.5,
}


def history(rows, evaluated=True):
    found = []
    for i in range(1, rows + 1):
        row = {
            "epoch": i,
            "step": i * 100,
            "loss": 2 / i,
            "accuracy": 1 - 1 / i,
            "learning_rate": None,
            "images_per_second": None,
            "seconds": i * 1.5,
        }
        trained = {"learning_rate": 0.1**i, "images_per_second": 4000.5}
        found.append({**row, **trained, "split": "train"})
        if evaluated:
            found.append({**row, "split": "test"})
    return found


def make_facts(
    class_names=("cat", "dog", "frog"),
    count=60,
    size=8,
    absent=(),
    never=(),
    right=1.0,
    **changed,
):
    random = np.random.default_rng(0)
    kinds = len(class_names)
    present = [i for i in range(kinds) if i not in absent]
    labels = random.choice(present, count).astype(np.int32)
    logits = random.normal(size=(count, kinds))
    logits[np.arange(count), labels] += right
    logits[:, list(never)] -= 1000
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    images = random.integers(0, 256, (count, size, size, 3), np.uint8)
    given = {
        "record": RECORD,
        "history": history(3),
        "class_names": class_names,
        "labels": labels,
        "probabilities": np.float32(odds / odds.sum(axis=1, keepdims=True)),
        "images": lambda indices: images[indices],
        "filters": random.normal(size=(3, 3, 3, 4)).astype(np.float32),
        "augmented": (images[:2], np.stack([images[:2]] * 3, axis=1)),
    }
    return Facts(**{**given, **changed})


class Page(html.parser.HTMLParser):
    """Reads a page; fails where tags don't match."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read_page(directory):
    return Page((directory / "report.html").read_text(encoding="utf-8"))


# Figures.


def test_scores_by_hand():
    first, second, third = figures.class_scores(
        np.array([[3, 1, 0], [2, 4, 0], [0, 0, 0]])
    )
    # Of five guesses of the first three are right, of its four examples too.
    assert first == figures.ClassScores(3 / 5, 3 / 4, 2 * 3 / (5 + 4), 4)
    assert second == figures.ClassScores(4 / 5, 4 / 6, 2 * 4 / (5 + 6), 6)
    assert third == figures.ClassScores(None, None, None, 0)


def test_a_class_never_guessed_and_one_only_guessed():
    first, second, third = figures.class_scores(
        np.array([[0, 2, 1], [0, 3, 0], [0, 0, 0]])
    )
    assert first == figures.ClassScores(None, 0.0, 0.0, 3)
    assert second.precision == 3 / 5
    assert third == figures.ClassScores(0.0, None, 0.0, 0)


def test_calibration_error_by_hand():
    probabilities = np.array(
        [[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]], np.float32
    )
    # At 0.9 half is right: 0.4 too many. At 0.6 all: 0.4 too few.
    labels = np.array([0, 1, 1, 1], np.int32)
    error = figures.calibration_error(labels, probabilities)
    assert error == pytest.approx(0.4, abs=1e-7)
    # One bin: three of four right, said with 0.75 on average.
    error = figures.calibration_error(labels, probabilities, bins=1)
    assert error == pytest.approx(0, abs=1e-7)


def test_the_upper_edge_belongs_to_a_bin():
    probabilities = np.array([[0.5, 0.5], [0.75, 0.25], [1, 0]], np.float32)
    bins = figures.calibration_bins(np.zeros(3, np.int32), probabilities, 4)
    assert bins.counts.tolist() == [0, 1, 1, 1]
    assert bins.confidence.tolist() == [0, 0.5, 0.75, 1]


def test_calibration_error_is_the_sum_over_bins():
    facts = make_facts(count=500)
    confidence = facts.probabilities.max(axis=1)
    right = facts.probabilities.argmax(axis=1) == facts.labels
    expected = 0.0
    for i in range(15):
        inside = (confidence > i / 15) & (confidence <= (i + 1) / 15)
        if inside.any():
            gap = abs(right[inside].mean() - confidence[inside].mean())
            expected += inside.sum() / 500 * gap
    error = figures.calibration_error(facts.labels, facts.probabilities)
    assert error == pytest.approx(expected, abs=1e-6)


def test_top_k_accuracy_by_hand():
    probabilities = np.array(
        [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.4, 0.4, 0.2]], np.float32
    )
    labels = np.array([0, 0, 1], np.int32)
    # The second is last. The third is as likely as the first class.
    assert figures.top_k_accuracy(labels, probabilities, 1) == 2 / 3
    assert figures.top_k_accuracy(labels, probabilities, 2) == 2 / 3
    assert figures.top_k_accuracy(labels, probabilities, 3) == 1


def test_mean_loss_by_hand():
    half = np.array([[0.5, 0.5], [0.5, 0.5]], np.float32)
    labels = np.array([0, 1], np.int32)
    assert figures.mean_loss(labels, half) == pytest.approx(np.log(2))
    assert str(figures.mean_loss(labels, np.eye(2, dtype=np.float32))) == "0.0"
    never = figures.mean_loss(labels, np.eye(2, dtype=np.float32)[::-1])
    assert never == pytest.approx(-np.log(np.finfo(np.float32).tiny))


def test_confusion_and_pairs_by_hand():
    guesses = np.array([0, 1, 1, 1, 2, 2, 0])
    labels = np.array([0, 0, 0, 1, 1, 1, 2], np.int32)
    counts = figures.count_confusion(labels, np.eye(3)[guesses])
    assert counts.tolist() == [[1, 2, 0], [0, 1, 2], [1, 0, 0]]
    pairs = figures.confused_pairs(counts, 9)
    assert pairs == [(0, 1, 2), (1, 2, 2), (2, 0, 1)]
    assert figures.confused_pairs(counts, 1) == pairs[:1]
    assert figures.confused_pairs(np.diag([1, 2, 3]), 9) == []


def test_worst_and_most_certain_mistakes_by_hand():
    probabilities = np.array(
        [[0.2, 0.5, 0.3], [0.1, 0.45, 0.45], [0.9, 0.1, 0], [0.3, 0.6, 0.1]],
        np.float32,
    )
    labels = np.zeros(4, np.int32)
    worst = figures.worst_mistakes(labels, probabilities, 5)
    assert worst.tolist() == [1, 0, 3]
    certain = figures.most_certain_mistakes(labels, probabilities, 2)
    assert certain.tolist() == [3, 0]


def test_figures_need_numpy_alone():
    code = (
        "import sys; import tfnet.report.figures, tfnet.report.facts;"
        "print({'matplotlib', 'tensorflow', 'keras'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


# Facts.


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": np.zeros(0, np.int32)}, "at least one"),
        ({"labels": np.zeros(59, np.int32)}, "examples, classes"),
        ({"labels": np.full(60, 3, np.int32)}, "from 0 to 2"),
        ({"probabilities": np.full((60, 3), np.nan, np.float32)}, "numbers"),
        ({"probabilities": np.full((60, 3), -1, np.float32)}, "numbers"),
    ],
)
def test_facts_that_do_not_fit_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        make_facts(**changed)


# Names.


def width_of(text, points):
    font = FT2Font(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf")
    font.set_size(points, style.DPI)
    font.set_text(text)
    return font.get_width_height()[0] / 64


@pytest.mark.parametrize("pixels", [60, 100, 300])
def test_names_fit_and_differ(pixels):
    fitted = names.fit_names(ODD_NAMES, pixels, 9.0)
    assert len(set(fitted)) == len(ODD_NAMES)
    assert all(width_of(name, 9.0) <= pixels for name in fitted)
    assert (fitted[1], fitted[6]) == ("class 1", "class 6")
    if pixels == 300:
        assert (fitted[5], fitted[7]) == (r"a\nb\tc", r"\udcff")


def test_a_name_loses_its_middle_only_if_it_must():
    assert names.fit_names(["Ankle boot"], 200, 9.0) == ("Ankle boot",)
    (short,) = names.fit_names(["Ankle boot"], 50, 9.0)
    assert re.fullmatch(r"Ank?l?…\w*t", short)


# Pictures.


def boxes_of(figure, texts):
    renderer = figure.canvas.get_renderer()
    return [
        text.get_window_extent(renderer) for text in texts if text.get_text()
    ]


def visible_texts(figure):
    return [one for one in figure.findobj(Text) if one.get_visible()]


@pytest.mark.parametrize(
    "class_names",
    [("cat", "dog"), ODD_NAMES, ["x" * 60 + str(i) for i in range(100)]],
    ids=["2", "odd", "100"],
)
@pytest.mark.parametrize("kind", ["confusion", "scores"])
def test_labels_are_whole_literal_and_apart(class_names, kind):
    counts = np.eye(len(class_names), dtype=np.int64) * 7 + 1
    with style.drawing():
        if kind == "confusion":
            figure = confusion.draw_confusion(counts, class_names)
        else:
            scores = figures.class_scores(counts)
            figure = classes.draw_class_scores(scores, class_names)
        figure.canvas.draw()
        texts = visible_texts(figure)
        assert not any(text.get_parse_math() for text in texts)
        axes = figure.axes[0]
        for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
            boxes = boxes_of(figure, labels)
            for one, other in itertools.pairwise(boxes):
                # A line is somewhat higher than its letters.
                assert one.shrunk(0.8, 0.8).count_overlaps([other]) == 0
        for box in boxes_of(figure, texts):
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= figure.bbox.x1
            assert box.y1 <= figure.bbox.y1


def test_the_rows_of_the_confusion_matrix_are_shares():
    with style.drawing():
        figure = confusion.draw_confusion(
            np.array([[3, 1, 0], [0, 0, 0], [1000, 0, 1]]), ["a", "b", "c"]
        )
    shown = figure.axes[0].images[0].get_array()
    assert shown[0].tolist() == [0.75, 0.25, 0]
    assert shown.mask[1].all()
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["75\n(3)", "25\n(1)", ">99\n(1,000)", "<1\n(1)"]


def test_curves_have_the_numbers_of_the_history():
    rows = history(3)
    rows[0]["loss"] = float("inf")
    rows[2]["loss"] = None
    with style.drawing():
        figure = curves.draw_learning_curves(rows, steps_per_epoch=100)
    upper, lower = figure.axes[:2]
    train, test = upper.lines[:2]
    assert train.get_xydata().tolist() == [[300, 2 / 3]]
    assert test.get_xydata().tolist() == [[100, 2], [200, 1], [300, 2 / 3]]
    assert lower.lines[1].get_ydata() == pytest.approx([0, 50, 100 * 2 / 3])


def test_filters_are_grey_where_they_are_zero():
    kernel = np.zeros((1, 2, 3, 2), np.float32)
    kernel[0, 1, :, 1] = [2, -2, 1]
    colours = filters.filter_colours(kernel)
    assert colours.shape == (2, 1, 2, 3)
    assert colours[0].tolist() == [[[128] * 3] * 2]
    assert colours[1, 0].tolist() == [[128] * 3, [255, 0, 191]]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0.0%"),
        (1e-5, "<0.1%"),
        (0.791, "79.1%"),
        (0.99999, ">99.9%"),
        (1, "100.0%"),
    ],
)
def test_only_all_is_100_percent(share, text):
    assert examples.percent(share) == text


def points_of(axes):
    return [line for line in axes.lines if line.get_label()[0] != "_"]


@pytest.mark.parametrize("steps", [1, 3, 2000])
def test_one_point_is_whole_and_in_the_middle(steps):
    rows = [{**row, "step": steps} for row in history(1)]
    with style.drawing():
        figure = curves.draw_learning_curves(rows, steps_per_epoch=2000)
    upper, lower = figure.axes[:2]
    for axes in (upper, lower):
        assert axes.get_xlim() == (0, 2 * steps)
        assert len(points_of(axes)) == 2
        for line in points_of(axes):
            # An accuracy of 0 lies on the edge.
            assert not line.get_clip_on()
            assert line.get_markersize() >= 8
            assert line.get_markerfacecolor() == "none"
    # No axis of epochs with nothing on it but its 0.
    assert len(upper.child_axes) == (steps == 2000)


def scores_of(f1):
    return [figures.ClassScores(one or None, one, one, 5) for one in f1]


def test_of_many_classes_the_lowest_and_the_highest_are_drawn():
    few = scores_of([0.0] * 50 + [0.5] * 10)
    assert len(classes.choose_classes(few)) == 60
    # No lines without a bar.
    many = scores_of([0.0] * 100 + [0.5] * 20)
    assert classes.choose_classes(many) == list(range(100, 120))
    assert classes.choose_classes(scores_of([0.0] * 100)) == []
    rising = scores_of([i / 200 for i in range(120)])
    assert classes.choose_classes(rising) == [*range(1, 31), *range(90, 120)]
    with style.drawing():
        figure = classes.draw_class_scores(rising, list(map(str, range(120))))
        figure.canvas.draw()
        texts = visible_texts(figure)
        assert max(box.x1 for box in boxes_of(figure, texts)) < style.HALF
    titles = [text.get_text() for text in texts]
    assert (
        "The 30 classes of lowest and 30 of highest F1, of 120 (and test"
        " images)" in titles
    )


def test_names_of_many_classes_can_be_read():
    many = [f"class name {i}" for i in range(120)]
    with style.drawing():
        figure = confusion.draw_confusion(np.eye(120, dtype=int), many)
        axes = figure.axes[0]
        assert axes.get_ylabel() == "true class (one in 2 is named)"
        for label in axes.get_yticklabels() + axes.get_xticklabels():
            assert label.get_fontsize() >= style.SMALL


# The report.

ALL = {
    "augmented",
    "calibration",
    "certain_mistakes",
    "class_scores",
    "confused_pairs",
    "confusion",
    "filters",
    "learning_curves",
    "learning_rate",
    "right_guesses",
    "speed",
    "worst_mistakes",
}
CURVES = {"learning_curves", "learning_rate", "speed"}
MISTAKES = {"certain_mistakes", "confused_pairs", "worst_mistakes"}
HUNDRED = tuple(f"class name {i}" for i in range(100))
GREY = np.zeros((1, 1, 1, 200), np.float32)
DEEP = np.ones((3, 3, 6, 2), np.float32)


@pytest.mark.parametrize(
    ("case", "missing"),
    [
        ({"history": history(50)}, set()),
        (
            {"class_names": ("cat", "dog"), "record": {}, "filters": None},
            {"certain_mistakes", "filters"},
        ),
        ({"class_names": HUNDRED, "size": 96}, set()),
        ({"class_names": ODD_NAMES, "absent": [2], "never": [3]}, set()),
        (
            {"size": 1, "absent": [1], "never": [1], "filters": GREY},
            {"certain_mistakes"},
        ),
        (
            {"count": 3, "right": 1000, "history": [], "augmented": None},
            {*CURVES, *MISTAKES, "augmented"},
        ),
        (
            {
                "right": -1000,
                "size": 200,
                "filters": DEEP,
                "history": history(1, evaluated=False),
            },
            {"right_guesses", "filters"},
        ),
    ],
    ids=[
        "usual",
        "2 classes, no record",
        "100 classes",
        "odd names",
        "1 pixel, a class apart",
        "3 images, no mistakes",
        "all wrong",
    ],
)
def test_what_is_not_drawn_is_told(tmp_path, case, missing):
    facts = make_facts(**case)
    write_report(tmp_path / "report", facts)
    drawn = {path.stem for path in tmp_path.glob("report/*.png")}
    assert ALL - drawn == missing
    page = read_page(tmp_path / "report")
    assert page.text.count("Not drawn: ") == len(ALL - drawn)
    for path in tmp_path.glob("report/*.png"):
        height, width = matplotlib.image.imread(path).shape[:2]
        assert width >= style.HALF
        assert height > 50
    assert not re.search(r"\bnan\b|\binf\b|None", page.text)


@pytest.fixture(scope="module")
def odd_report(tmp_path_factory):
    """Returns the directory of a report, and what it was made from."""
    place = tmp_path_factory.mktemp("odd") / "report"
    record = {
        **RECORD,
        "exit_reason": "Ctrl-C",
        "test_accuracy": 0.1234,
        "settings": {**RECORD["settings"], "normalize": "dataset"},
        "scaling": {"mean": [0.25, 0.5, 1 / 3], "std": [0.1, 0.2, 0.3]},
    }
    defaults = {"seed": 0, "model": "net"}
    facts = make_facts(ODD_NAMES, record=record, defaults=defaults)
    write_report(place, facts)
    return place, facts


def test_the_page_asks_for_nothing(odd_report):
    text = (odd_report[0] / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    links = [
        attributes[name]
        for _, attributes in page.tags
        for name in ("src", "href", "srcset", "action", "data")
        if name in attributes
    ]
    assert links
    assert all(link.startswith(("data:", "#")) for link in links)
    assert "url(" not in text
    assert "@import" not in text
    assert "script" not in {tag for tag, _ in page.tags}
    anchors = {one.get("id") for _, one in page.tags}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors


def test_the_pictures_of_the_page_are_the_files(odd_report):
    images = [one for tag, one in read_page(odd_report[0]).tags if tag == "img"]
    assert all(len(image["alt"]) > 20 for image in images)
    shown = sorted(
        base64.b64decode(image["src"].removeprefix("data:image/png;base64,"))
        for image in images
    )
    assert shown == sorted(
        path.read_bytes() for path in odd_report[0].glob("*.png")
    )


def test_the_page_says_the_figures_and_escapes_every_name(odd_report):
    page, facts = read_page(odd_report[0]), odd_report[1]
    right = facts.probabilities.argmax(axis=1) == facts.labels
    assert f"Test accuracy{right.mean():.1%}" in page.text
    assert "net on <i>set</i>" in page.text
    assert "one & two" in page.text
    assert "class 1 is 猫と犬" in page.text
    assert "class 7" not in page.text
    assert "--seed7" in page.text
    assert "--model" not in page.text
    assert "Mean of the training images0.2500, 0.5000, 0.3333" in page.text
    assert "Deviation of the training images0.1000, 0.2000, 0.3" in page.text
    assert {"i", "b"}.isdisjoint(tag for tag, _ in page.tags)
    assert ("meta", {"charset": "utf-8"}) in page.tags
    assert "run.json has a test accuracy of 12.3%" in page.text
    assert "the run did not finish: Ctrl-C" in page.text


def test_what_the_scores_leave_out_is_told(tmp_path):
    names_ = tuple(f"class name {i}" for i in range(120))
    facts = make_few_facts(
        class_names=names_, count=2000, right=4, never=range(50)
    )
    write_report(tmp_path / "report", facts)
    page = read_page(tmp_path / "report")
    found = re.search(
        r"Left out: (\d+) between the lowest and the highest F1; (\d+) without"
        r" an F1 above 0: class name 0, ",
        page.text,
    )
    assert found
    assert int(found[1]) + int(found[2]) == 60


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_the_same_facts_give_the_same_bytes_for_everyone(tmp_path):
    write_report(tmp_path / "one", make_facts())
    with matplotlib.rc_context({"font.size": 20, "text.usetex": True}):
        before = dict(matplotlib.rcParams)
        write_report(tmp_path / "two", make_facts())
        assert dict(matplotlib.rcParams) == before
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def make_few_facts(**changed):
    """Returns facts that draw little, to test the writing."""
    nothing = {"history": [], "filters": None, "augmented": None}
    return make_facts(**{**nothing, "count": 3, **changed})


def test_a_report_that_fails_leaves_what_was(tmp_path, monkeypatch):
    place = tmp_path / "report"
    write_report(place, make_few_facts())
    before = contents(place)

    def unreadable(indices):
        raise DataError("the images can't be read")

    with pytest.raises(DataError):
        write_report(place, make_few_facts(images=unreadable))

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_report(place, make_few_facts(right=1000))
    assert contents(place) == before
    assert [one.name for one in tmp_path.iterdir()] == ["report"]


def test_an_earlier_report_is_replaced(tmp_path):
    kernel = np.ones((1, 1, 3, 1), np.float32)
    write_report(tmp_path / "report", make_few_facts(filters=kernel))
    assert (tmp_path / "report" / "filters.png").exists()
    write_report(tmp_path / "report", make_few_facts())
    assert not (tmp_path / "report" / "filters.png").exists()


def test_what_is_no_report_is_not_replaced(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(FileExistsError, match=r"holds run\.json"):
        write_report(tmp_path, make_few_facts())
    with pytest.raises(FileExistsError, match="no directory"):
        write_report(tmp_path / "run.json", make_few_facts())
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "photo.png").write_text("")
    with pytest.raises(FileExistsError, match=r"holds photo\.png"):
        write_report(photos, make_few_facts())
    assert (tmp_path / "run.json").read_text() == "{}"
