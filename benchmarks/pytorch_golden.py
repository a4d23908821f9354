"""Makes tests/golden/pytorch.npz: the seed's training, done by PyTorch.

    python -m benchmarks.pytorch_golden

Run it from the root of the repository with a Python that has PyTorch and
NumPy (`pip install torch numpy`); nothing else is imported, TensorFlow least
of all, so the file owes nothing to what tests/test_pytorch.py holds against
it. With the same version of PyTorch on the same kind of processor it comes
out the same, byte for byte.

The file holds:

  initial/NAME, final/NAME  the state_dict before and after 200 steps
  batches                   int64 [200, 4]: the training image of each place
                            in each batch, from 0 to 7,999
  losses                    float64 [200]: the loss of each batch
  logits_before,
  logits_after              float32 [16, 10]: on the first 16 test images
  torch_version             what made it

Images are those of the sample that comes with tfnet: the first 8,000 train,
the others test. Libraries differ in how they resize, so 28x28 becomes 32x32
by two pixels of zeros on every side, which all of them can do alike; grey
becomes colour by repetition.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn

_ROOT = Path(__file__).parent.parent
_SAMPLE = _ROOT / "tfnet" / "data" / "sample"
_GOLDEN = _ROOT / "tests" / "golden" / "pytorch.npz"

_TRAIN = 8000
_STEPS = 200
_BATCH = 4
_LOOKED_AT = 16
_SEED = 0


class Net(nn.Module):
    """The network of PyTorch's tutorial "Training a Classifier"."""

    def __init__(self) -> None:
        """Draws the initial weights as PyTorch does by default."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns logits [batch, 10] of images [batch, 3, 32, 32]."""
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


def read_sample() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns images, scaled float32 [n, 3, 32, 32], and labels, int64 [n]."""
    # IDX: a header of 16 bytes for images and of 8 for labels, then bytes.
    content = gzip.decompress(
        (_SAMPLE / "t10k-images-idx3-ubyte.gz").read_bytes()
    )
    images = np.frombuffer(content, np.uint8, offset=16).reshape(-1, 28, 28)
    content = gzip.decompress(
        (_SAMPLE / "t10k-labels-idx1-ubyte.gz").read_bytes()
    )
    labels = np.frombuffer(content, np.uint8, offset=8)
    images = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    images = np.repeat(images[:, np.newaxis], 3, axis=1)
    # In PyTorch, as ToTensor and Normalize of the tutorial do it.
    pixels = torch.from_numpy(images).to(torch.float32).div(255)
    return pixels.sub(0.5).div(0.5), torch.from_numpy(labels.astype(np.int64))


def make() -> dict[str, np.ndarray]:
    """Trains, and returns the arrays of the file."""
    torch.manual_seed(_SEED)
    # Sums that are split over threads depend on their number.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    images, labels = read_sample()
    shown = images[_TRAIN : _TRAIN + _LOOKED_AT]
    net = Net()
    found = _named("initial", net)
    batches = torch.randperm(_TRAIN)[: _STEPS * _BATCH].reshape(_STEPS, _BATCH)
    found["batches"] = batches.numpy()
    with torch.no_grad():
        found["logits_before"] = net(shown).numpy()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = criterion(net(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    found["losses"] = np.array(losses)
    with torch.no_grad():
        found["logits_after"] = net(shown).numpy()
    found["torch_version"] = np.array(str(torch.__version__))
    return found | _named("final", net)


def _named(when: str, net: nn.Module) -> dict[str, np.ndarray]:
    # Copies: the arrays of a state_dict change as training goes on.
    return {
        f"{when}/{name}": tensor.numpy().copy()
        for name, tensor in net.state_dict().items()
    }


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--output", type=Path, default=_GOLDEN)
    arguments = parser.parse_args()
    found = make()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(arguments.output, **found)
    losses = found["losses"]
    print(
        f"{arguments.output}: {arguments.output.stat().st_size:,} bytes,"
        f" PyTorch {found['torch_version']}; mean loss of the first and the"
        f" last 20 batches: {losses[:20].mean():.4f}, {losses[-20:].mean():.4f}"
    )


if __name__ == "__main__":
    main()
