"""The environment of the peers: a virtual environment of their own."""

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# What each peer's own pages say to install for a CPU.
_TORCH = ["torch", "--index-url", "https://download.pytorch.org/whl/cpu"]
_OTHERS = ["jax", "optax", "lightning", "numpy", "pillow"]


def peers_python(place: Path, tell: Callable[[str], None]) -> str:
    """Returns a Python that has the peers; installs them where need be.

    Args:
      place: The virtual environment.
      tell: Is given a line before what takes long.

    Raises:
      RuntimeError: They can't be installed.
    """
    python = place / "bin" / "python"
    done = place / "installed"
    wanted = hashlib.sha256(repr((_TORCH, _OTHERS)).encode()).hexdigest()
    if done.is_file() and done.read_text() == wanted:
        return str(python)
    tell(f"Installing the peers into {place}")
    _call([sys.executable, "-m", "venv", str(place)])
    for packages in (_TORCH, _OTHERS):
        _call([str(python), "-m", "pip", "install", "--quiet", *packages])
    done.write_text(wanted)
    return str(python)


def versions(python: str, packages: list[str]) -> dict[str, str]:
    """Returns the version of each package that `python` has."""
    script = (
        "import importlib.metadata as m, sys\n"
        "for name in sys.argv[1:]: print(name, m.version(name))"
    )
    done = subprocess.run(
        [python, "-c", script, *packages],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return dict(
        line.split(maxsplit=1) for line in done.stdout.strip().splitlines()
    )


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise RuntimeError(f"{' '.join(command)} failed: {' '.join(said)}")
