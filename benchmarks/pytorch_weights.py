"""Makes tests/golden/weights.pt: weights as PyTorch itself saves them.

    python -m benchmarks.pytorch_weights

Run it from the root of the repository with a Python that has PyTorch and NumPy
(`pip install torch numpy`). `tests/test_weights.py` reads the file without
PyTorch, and holds it against `weights.npz`, made beside it.

The file is what `torch.save` makes of a state_dict whose tensors are as odd as
it keeps them: one of each type of number, a view that is transposed and one
that starts inside a storage which another shares, an empty one, a scalar, and
a parameter. `weights.npz` holds the same numbers, bfloat16 as float32.
"""

import argparse
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

_GOLDEN = Path(__file__).parent.parent / "tests" / "golden"

_TYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)


def make() -> "OrderedDict[str, torch.Tensor]":
    """Returns the tensors, by name."""
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6) / 7
    found = OrderedDict(
        (str(one).removeprefix("torch."), (whole * 5).to(one)) for one in _TYPES
    )
    found["whole"] = whole
    found["transposed"] = whole.T
    found["inside"] = whole[1:3, 2:5]
    found["empty"] = torch.zeros(0, 3)
    found["scalar"] = torch.tensor(1 / 3)
    found["parameter"] = torch.nn.Parameter(whole[0].clone())
    return found


def main() -> None:
    """Writes both files."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--output", type=Path, default=_GOLDEN)
    place = parser.parse_args().output
    found = make()
    torch.save(found, place / "weights.pt")
    arrays = {
        name: (one.float() if one.dtype is torch.bfloat16 else one)
        .detach()
        .numpy()
        for name, one in found.items()
    }
    np.savez_compressed(place / "weights.npz", **arrays)
    size = (place / "weights.pt").stat().st_size
    print(
        f"{place / 'weights.pt'}: {size:,} bytes, PyTorch {torch.__version__}"
    )


if __name__ == "__main__":
    main()
