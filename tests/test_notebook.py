"""The notebook: what is committed, and what it does in a kernel."""

import ast
import copy
import json
import os
import re
import signal
from pathlib import Path

import ipykernel.kernelspec
import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "notebooks" / "walkthrough.ipynb"
# Of every question, what is printed is the same whenever it is asked.
STEADY = ("layers", "count", "settings", "train-on-several", "evaluate")


@pytest.fixture(scope="module")
def committed():
    return nbformat.read(NOTEBOOK, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell):
    """Returns what is on standard output below a cell."""
    outputs = [one for one in cell.outputs if one.output_type == "stream"]
    return "".join(one.text for one in outputs if one.name == "stdout")


def is_without_complaint(cell):
    """Says whether nothing went wrong, and nobody was warned."""
    return not any(
        one.output_type == "error" or one.get("name") == "stderr"
        for one in cell.outputs
    )


def holds_promises(text):
    """Checks the numbers that the notebook promises, by what its cells print.

    Args:
      text: What is printed below each cell, by its id.
    """
    assert text["count"].endswith("in all  62,006    62,006\n")
    table = re.findall(r"\d\.\de[+-]\d\d", text["differences"])
    # Ten weights on three numbers of devices, and the largest.
    assert len(table) == 31
    assert 0 < max(float(one) for one in table) < 1e-12
    losses = re.findall(r"test loss (\d\.\d{12})", text["train-on-several"])
    assert len(losses) == 4
    assert len(set(losses)) == 1
    logit, difference = re.findall(r"largest .*: (.*)\n", text["saved-model"])
    assert float(difference) < 1e-5 * float(logit)
    assert float(text["keras"].split()[-1]) < 1e-5 * float(logit)
    assert text["from-pytorch"] == (
        "10 of 10 arrays are the same to the last bit\n"
    )
    right = float(re.match(r"(.*)%", text["evaluate"])[1])
    assert right > 70
    assert f"test accuracy {right}%" in text["train"]


def test_what_is_committed_can_be_read_without_running_it(committed):
    nbformat.validate(committed)
    assert (committed.nbformat, committed.nbformat_minor) == (4, 5)
    assert committed.metadata.kernelspec.name == "python3"
    cells = code_cells(committed)
    assert [cell.execution_count for cell in cells] == [
        number + 1 for number in range(len(cells))
    ]
    for cell in cells:
        assert is_without_complaint(cell)
        shows = re.search(r"print\(|plt\.show|Image\(|tfnet\.run", cell.source)
        assert bool(shows) == bool(cell.outputs), cell.id
        # When each cell ran is nobody's business.
        assert cell.metadata == {}
        streams = [one.output_type == "stream" for one in cell.outputs]
        assert [True, True] not in [
            streams[i : i + 2] for i in range(len(streams))
        ], "see CONTRIBUTING.md for the command that joins them"
    pictures = [
        one
        for cell in cells
        for one in cell.outputs
        if "image/png" in one.get("data", {})
    ]
    assert len(pictures) == 4
    holds_promises({cell.id: printed(cell) for cell in cells})


def test_what_is_committed_says_nothing_of_a_machine():
    content = NOTEBOOK.read_text(encoding="utf-8")
    assert len(content) < 1_500_000
    content = re.sub(r'"image/png": "[^"]*"', "", content)
    place = r"(?<![\w.~-])/(home|root|tmp|Users|var|private|work|opt|usr|mnt)\b"
    assert re.findall(place, content) == []
    for escape in (r"\u001b", r"\r"):
        assert escape not in content


def test_the_notebook_defines_nothing_but_plots(committed):
    heavy = []
    for cell in code_cells(committed):
        for node in ast.walk(ast.parse(cell.source)):
            assert not isinstance(
                node, ast.ClassDef | ast.AsyncFunctionDef | ast.Lambda
            )
            if isinstance(node, ast.FunctionDef):
                assert node.name.startswith(("plot", "show"))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names]
                heavy += [
                    name.partition(".")[0]
                    for name in (getattr(node, "module", None), *names)
                    if name and re.match(r"(tfnet|tensorflow|keras)\b", name)
                ]
    assert heavy[0] == "tfnet"
    assert "tensorflow" in heavy


class Client(NotebookClient):
    """Executes, remembers what was shown anew, and can press the button."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.shown = {}
        self.interrupts = None

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] == "update_display_data":
            text = msg["content"]["data"]["text/plain"]
            self.shown.setdefault(cell.id, []).append(text)
            if cell.id == self.interrupts and steps_in(text):
                self.interrupts = None
                os.kill(self.km.provisioner.pid, signal.SIGINT)
        return super().process_message(msg, cell, cell_index)

    def ask(self, source, name, **metadata):
        """Executes one more cell, and returns it."""
        cell = nbformat.v4.new_code_cell(source, id=name, metadata=metadata)
        self.nb.cells.append(cell)
        return self.execute_cell(cell, len(self.nb.cells) - 1)


def steps_in(text):
    return int(text.partition("/")[0])


@pytest.fixture
def client(committed, tmp_path, monkeypatch):
    """Returns a client for the notebook with each of its cells twice."""
    for name in ("TF_ENABLE_ONEDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL"):
        # What this process has set for itself.
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # This Python's kernel, whatever else is called python3 here.
    kernels = tmp_path / "jupyter" / "kernels"
    ipykernel.kernelspec.write_kernel_spec(str(kernels / "python3"))
    for name in ("JUPYTER_PATH", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    place = tmp_path / "place"
    place.mkdir()
    twice = copy.deepcopy(committed)
    twice.cells = []
    for cell in copy.deepcopy(code_cells(committed)):
        cell.outputs = []
        again = copy.deepcopy(cell)
        again["id"] = f"{cell.id}-again"
        twice.cells += [cell, again]
    return Client(
        twice, timeout=300, resources={"metadata": {"path": str(place)}}
    )


def test_every_cell_runs_twice_and_a_run_can_be_interrupted(client, tmp_path):
    place = tmp_path / "place"
    with client.setup_kernel():
        for number, cell in enumerate(list(client.nb.cells)):
            client.execute_cell(cell, number)
        cells = {cell.id: cell for cell in client.nb.cells}
        assert all(is_without_complaint(cell) for cell in cells.values())
        text = {name: printed(cell) for name, cell in cells.items()}
        holds_promises(text)
        holds_promises(
            {
                name.removesuffix("-again"): shown
                for name, shown in text.items()
                if name.endswith("-again")
            }
        )
        for name in STEADY:
            assert text[name] == text[f"{name}-again"]
        assert [path.name for path in place.iterdir()] == ["runs"]
        assert len(list((place / "runs").iterdir())) == 2
        check_progress(client.shown["train"], cells["train"])
        check_kernel(client)
        check_interrupt(client, place)


def check_progress(shown, cell):
    """The bar has moved, and what stays of it is its end."""
    steps = [steps_in(one) for one in shown]
    assert steps == sorted(steps)
    assert len({one for one in steps if 0 < one < 4000}) >= 2
    assert steps[-1] == 4000
    (kept,) = [one for one in cell.outputs if one.output_type != "stream"]
    assert kept["data"] == {"text/plain": shown[-1]}
    assert re.match(r"4000/4000 steps ━+ loss 0\.\d+ accuracy", shown[-1])


def check_kernel(client):
    """The runs were what they said, in a process with a kernel's arguments."""
    facts = client.ask(
        "import json, sys\n"
        "print(json.dumps([sys.argv[1], short.record['replicas'],"
        " short.config.precision, run.record['onednn']]))",
        "facts",
    )
    assert json.loads(printed(facts)) == ["-f", 4, "float64", "on"]


def check_interrupt(client, place):
    """A run that is interrupted says how to go on, and goes on."""
    train = (
        "tfnet.run(tfnet.Config.from_flags([*flags, '--run_dir=stopped',"
        " '--noreport', '--noexport', '{}']))"
    )
    client.interrupts = "stop"
    stopped = client.ask(
        train.format("--epochs=1000"), "stop", tags=["raises-exception"]
    )
    error = stopped.outputs[-1]
    assert error.ename == "Interrupted"
    (line,) = error.traceback
    message = re.fullmatch(
        r"Interrupted: SIGINT ended the run after step ([\d,]+);"
        rf" --run_dir={place}/stopped goes on with it\.",
        line,
    )
    step = int(message[1].replace(",", ""))
    more = client.ask(train.format(f"--steps={step + 30}"), "go-on")
    assert is_without_complaint(more)
    assert f"stopped, goes on after step {step:,} of {step + 30:,}" in (
        printed(more)
    )
    assert steps_in(client.shown["go-on"][-1]) == step + 30
    # A wrong flag is one line here too.
    wrong = client.ask(
        "tfnet.Config.from_flags(['--epoch=1'])",
        "wrong",
        tags=["raises-exception"],
    )
    assert wrong.outputs[-1].traceback == [
        "ConfigError: --epoch is not a flag; did you mean --epochs? (--help"
        " lists them all)"
    ]
