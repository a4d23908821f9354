"""The program that measures tfnet beside its peers: how it counts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import machine, process, results, sides
from benchmarks.comparison import Comparison, Rival, measure
from benchmarks.process import Memory, Outcome
from benchmarks.sides import Figures, Side


class Fake(Side):
    """A side with given figures; writes its name down when it runs."""

    def __init__(self, name, values, losses=None, runs=None):
        super().__init__(name, command=list, read=list)
        object.__setattr__(
            self,
            "figures",
            [*zip(values, losses or [None] * len(values), strict=True)],
        )
        object.__setattr__(self, "runs", [] if runs is None else runs)

    def run(self, place):
        self.runs.append(self.name)
        return Figures(*self.figures[self.runs.count(self.name) - 1])


def compare(ours, *rivals, **more):
    return Comparison("key", "work", "images/s", ours, rivals, **more)


def test_the_ratio_is_that_of_each_turn_to_the_best_of_a_rival():
    comparison = compare(
        Fake("tfnet", [10, 30, 50]),
        Rival("peer", [Fake("slow", [1, 1, 9]), Fake("quick", [4, 5, 5])], 6.5),
    )
    (rival,) = measure(comparison, 3, lambda text: None)["rivals"]
    assert rival["best"] == "quick"
    assert rival["ratios"] == [2.5, 6, 10]
    assert rival["ratio"] == 6
    assert rival["target"] == 6.5


def test_of_times_less_is_better():
    comparison = compare(
        Fake("tfnet", [2, 4]),
        Rival("peer", [Fake("slow", [9, 9]), Fake("quick", [4, 6])]),
        more_is_better=False,
    )
    (rival,) = measure(comparison, 2, lambda text: None)["rivals"]
    assert rival["best"] == "quick"
    assert rival["ratios"] == [2, 1.5]


def test_the_sides_take_turns():
    runs = []
    ours, theirs = (Fake(name, [1] * 3, runs=runs) for name in "AB")
    measure(compare(ours, Rival("peer", [theirs])), 3, lambda text: None)
    assert "".join(runs) == "ABBAAB"


@pytest.mark.parametrize(
    ("theirs", "same"),
    [(1.019, True), (0.981, True), (1.021, False), (float("nan"), False)],
)
def test_a_side_that_has_learnt_something_else_is_no_side(theirs, same):
    comparison = compare(
        Fake("tfnet", [1], [1.0]), Rival("peer", [Fake("other", [1], [theirs])])
    )
    if same:
        assert measure(comparison, 1, print)["losses"]["other"] == [theirs]
        return
    with pytest.raises(ValueError, match="something else: other"):
        measure(comparison, 1, print)


def run(code, **more):
    return process.run(
        [sys.executable, "-c", code],
        directory=Path.cwd(),
        environment={"SIDE": "a"},
        **more,
    )


def test_a_process_and_when_it_said_what():
    outcome = run(
        "import os, time; print(os.environ['SIDE'], flush=True);"
        "time.sleep(0.5); print('{\"x\": 2}')"
    )
    assert [line for _, line in outcome.lines] == ["a", '{"x": 2}']
    assert outcome.json() == {"x": 2}
    assert outcome.time_of("x") - outcome.time_of("a") >= 0.4
    assert outcome.seconds >= outcome.time_of("x")
    assert outcome.peak == Memory()
    with pytest.raises(process.SideError, match="no line"):
        outcome.time_of("b")


def test_a_process_that_fails_is_told_with_its_last_words():
    with pytest.raises(process.SideError, match=r"code 3(.|\n)*the reason"):
        run("import sys; print('the reason', file=sys.stderr); sys.exit(3)")


def test_what_is_shown_on_a_terminal_alone():
    outcome = run("import sys; print(sys.stdout.isatty())", on_terminal=True)
    assert outcome.lines[0][1] == "True"


def test_memory_is_that_of_all_processes():
    size = 200 * 2**20
    code = (
        "import os, time; held = bytearray({size}); child = os.fork();"
        "own = bytearray({size} // 2 if child == 0 else 1); time.sleep(1);"
        "child and os.wait()"
    )
    peak = run(code.format(size=size), measure_memory=True).peak
    few = 60 * 2**20
    # What both share is there twice, or once.
    assert 2.5 * size <= peak.resident < 2.5 * size + few
    assert 1.5 * size <= peak.proportional < 1.5 * size + few


def test_the_last_epoch_of_a_run(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.csv").write_text(
        "split,epoch,step,loss,images_per_second\n"
        "train,1,20,9,1\n"
        "test,1,20,9,1\n"
        # 10 steps of 4 at 20/s are 2 s, 30 at 40/s are 3 s.
        "train,2,30,1,20\n"
        "train,2,60,2,40\n"
        "test,2,60,9,1\n"
    )
    figures = sides.last_epoch(4)(Outcome(0, (), Memory()), tmp_path)
    assert figures == Figures(160 / 5, 1.75)


def test_the_operations_of_an_image():
    first, second = 784 * 6 * 75, 100 * 16 * 150
    dense = 400 * 120 + 120 * 84 + 84 * 10
    forward, to_weights, to_inputs = (
        first + second + dense, first + second + dense, second + dense
    )  # fmt: skip
    assert 2 * (forward + to_weights + to_inputs) == machine.OPERATIONS


def test_what_is_written(tmp_path):
    found = {
        "work": "training at batch 4",
        "unit": "images/s",
        "ours": "tfnet",
        "values": {"tfnet": [100.0, 300.0, 200.0], "other": [50.0] * 3},
        "losses": {"tfnet": [1.5] * 3},
        "rivals": [
            {"name": name, "best": "other", "target": target,
             "ratios": [2.0, 6.0, 4.0], "ratio": 4.0}
            for name, target in (("A", 4.0), ("B", 4.1), ("C", None))
        ],
        "date": "2026-01-02",
        "rounds": 3,
    }  # fmt: skip
    results.write(
        tmp_path / "made",
        {
            "machine": dict.fromkeys(
                ("processor", "cores", "memory", "system", "python"), "x"
            ),
            "versions": {"tfnet": "1"},
            "matrix_rate": {"1": 10.0 * machine.OPERATIONS * 200},
            "comparisons": {"batch-4": found},
            "profiles": {
                "4": {"seconds_per_step": 1e-3, "operations": {"Op": 5e-4}}
            },
        },
    )
    text = (tmp_path / "made" / "RESULTS.md").read_text()
    for line in (
        "| training at batch 4 | A | other | 4.00 (2.00 to 6.00) | 4 | met |",
        "| training at batch 4 | B | other | 4.00 (2.00 to 6.00) | 4.1 |"
        " missed |",
        "| training at batch 4 | C | other | 4.00 (2.00 to 6.00) |  |  |",
        "| 4 | 200 | 10% |",
        "| Op | 500 | 50% |",
    ):
        assert line in text
    picture = (tmp_path / "made" / "results.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert results.read(tmp_path / "made") == json.loads(
        json.dumps({"batch-4": found})
    )
    assert results.read(tmp_path / "other") == {}


def test_the_starter_holds_no_tensorflow():
    """What it shares with a side would count by halves."""
    code = "import benchmarks.__main__, sys; print('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    assert done.stdout.strip() == "False"
