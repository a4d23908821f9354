"""tfnet beside its peers, in one run.

    python -m benchmarks --quick|--full [--only KEY...] [--dataset NAME]

Installs the peers (PyTorch for the CPU, JAX, Lightning) into an environment of
their own, and measures tfnet and them in turns. Writes RESULTS.md, results.png
and results.json beside itself; --only measures some comparisons anew and keeps
the others. --quick takes some 40 minutes on two cores, --full some hours.
"""

import argparse
import datetime
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import environment, inputs, machine, process, results
from benchmarks.comparison import measure
from benchmarks.sides import ENVIRONMENT, REPOSITORY
from benchmarks.suite import Suite

_HERE = Path(__file__).parent
_OWN = ("tfnet", "tensorflow", "keras", "numpy")
_PEERS = ("torch", "jax", "lightning")
_PROFILED = (4, 256)


def main() -> None:
    """Measures, and writes what was found."""
    arguments = _arguments()
    python = environment.peers_python(
        arguments.peers.expanduser().absolute(), _tell
    )
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        source = _source(Path(folder, "source"), arguments.dataset)
        suite = Suite(source, Path(folder), python, arguments.full)
        made = suite.comparisons()
        keys = arguments.only or list(made)
        unknown = ", ".join(key for key in keys if key not in made)
        if unknown:
            sys.exit(f"--only ({unknown}) must be some of {', '.join(made)}.")
        found = {
            "comparisons": results.read(arguments.output),
            **_facts(suite, python),
        }
        for key in keys:
            found["comparisons"][key] = {
                **measure(made[key](), arguments.rounds, _tell),
                "date": datetime.date.today().isoformat(),
                "rounds": arguments.rounds,
                "data": source.name,
            }
            # An hour's work is not lost where the next one fails.
            results.write(arguments.output, found)
    _tell(f"Written to {arguments.output / 'RESULTS.md'}")


def _source(place: Path, dataset: str | None) -> inputs.Source:
    command = [sys.executable, "-m", "benchmarks.inputs", str(place)]
    if dataset is not None:
        command.append(f"--dataset={dataset}")
    about = process.run(
        command, directory=REPOSITORY, environment=ENVIRONMENT
    ).json()
    return inputs.Source(about["name"], place / "arrays", place / "files")


def _facts(suite: Suite, python: str) -> dict[str, Any]:
    """Returns what belongs to the results besides the comparisons."""
    _tell("Measuring the machine, and where a step's time goes")
    return {
        "machine": machine.description(),
        "versions": {
            **environment.versions(sys.executable, list(_OWN)),
            **environment.versions(python, list(_PEERS)),
        },
        "matrix_rate": {
            str(threads): machine.matrix_rate(threads) for threads in (1, 2)
        },
        "profiles": {str(size): suite.profile_of(size) for size in _PROFILED},
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=(__doc__ or "").split("\n", maxsplit=1)[0],
    )
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--quick", action="store_true", help="some 40 minutes")
    size.add_argument(
        "--full",
        action="store_true",
        help="every form of each peer, on more images: some hours",
    )
    parser.add_argument("--only", nargs="+", metavar="KEY")
    parser.add_argument("--dataset", help="what --dataset of tfnet.train takes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path("~/.cache/tfnet/peers"),
        help="the environment of the peers",
    )
    parser.add_argument("--output", type=Path, default=_HERE)
    parser.add_argument(
        "--scratch", type=Path, help="where some GB may lie meanwhile"
    )
    return parser.parse_args()


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
