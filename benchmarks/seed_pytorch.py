"""The seed itself: PyTorch's CIFAR-10 tutorial, on a folder of images.

    python -m benchmarks.seed_pytorch ROOT

Run it from the root of the repository with a Python that has PyTorch, NumPy
and Pillow. ROOT holds CIFAR-10 as train/CLASS/*.jpg and test/CLASS/*.jpg, the
layout of torchvision's ImageFolder.

It does what the tutorial does: two epochs of SGD (rate 0.001, momentum 0.9)
on shuffled batches of 4, read by two worker processes, and then the accuracy
on the test images. What the tutorial takes from torchvision is written out
here: its CIFAR10 keeps all images in one uint8 array and makes a Pillow image
of an item when it is asked for, and ToTensor and Normalize follow. To decode a
JPEG for every item would be slower than the tutorial is, and so unfair, so all
files are decoded into such an array first; the time this takes is printed and
is no part of the training's.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Self

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.pytorch_golden import Net

_BATCH = 4
_LOG_EVERY = 2000
_MEAN = _STD = (0.5, 0.5, 0.5)


class Images(Dataset):
    """Images in memory, as torchvision's CIFAR10 gives them."""

    def __init__(self, images: np.ndarray, labels: list[int]) -> None:
        """Takes images, uint8 [n, height, width, 3], and their classes."""
        self._images = images
        self._labels = labels

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        """Decodes every file of `folder`; all must be of one size."""
        classes = sorted(
            path.name for path in folder.iterdir() if path.is_dir()
        )
        files = [
            (path, label)
            for label, name in enumerate(classes)
            for path in sorted((folder / name).glob("*.jpg"))
        ]
        return cls(
            np.stack([_decode(path) for path, _ in files]),
            [label for _, label in files],
        )

    def __len__(self) -> int:
        """Returns the number of images."""
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """Returns an image, scaled float32 [3, 32, 32], and its label."""
        image = Image.fromarray(self._images[index])
        return _normalize(_to_tensor(image)), self._labels[index]


def _decode(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.array(image.convert("RGB"))


def _to_tensor(image: Image.Image) -> torch.Tensor:
    # Operation by operation as torchvision's ToTensor, for its cost.
    pixels = torch.from_numpy(np.array(image, np.uint8, copy=True))
    pixels = pixels.view(image.size[1], image.size[0], 3)
    pixels = pixels.permute((2, 0, 1)).contiguous()
    return pixels.to(torch.float32).div(255)


def _normalize(pixels: torch.Tensor) -> torch.Tensor:
    # As torchvision's Normalize, which makes its constants for every image.
    mean = torch.as_tensor(_MEAN, dtype=pixels.dtype).view(-1, 1, 1)
    std = torch.as_tensor(_STD, dtype=pixels.dtype).view(-1, 1, 1)
    return pixels.clone().sub_(mean).div_(std)


def train(
    net: nn.Module,
    loader: DataLoader,
    epochs: int,
    limit: int,
    rate: float = 0.001,
) -> tuple[int, float]:
    """Trains as the tutorial does.

    Returns:
      How many images were seen, and the mean loss of the last epoch.
    """
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    seen = 0
    for epoch in range(epochs):
        running_loss = total = 0.0
        for batch, (inputs, labels) in enumerate(loader, start=1):
            optimizer.zero_grad()
            loss = criterion(net(inputs), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            total += loss.item()
            seen += len(labels)
            if batch % _LOG_EVERY == 0:
                mean = running_loss / _LOG_EVERY
                print(f"[{epoch + 1}, {batch:5d}] loss: {mean:.3f}", flush=True)
                running_loss = 0.0
            if batch == limit:
                break
    print("Finished Training")
    return seen, total / batch


def accuracy(net: nn.Module, loader: DataLoader) -> float:
    """Returns the share of the images that the network classifies right."""
    correct = total = 0
    with torch.no_grad():
        for inputs, labels in loader:
            guesses = net(inputs).argmax(dim=1)
            correct += int((guesses == labels).sum())
            total += len(labels)
    return correct / total


def main() -> None:
    """Trains, saves, loads and tests, as the tutorial does."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("root", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument(
        "--limit",
        type=int,
        default=0,
        help="batches in an epoch, for a quick try; 0: all",
    )
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)

    begin = time.monotonic()
    trainset = Images.of_folder(arguments.root / "train")
    testset = Images.of_folder(arguments.root / "test")
    print(
        f"Decoded {len(trainset):,} + {len(testset):,} images in"
        f" {time.monotonic() - begin:.1f} s"
    )
    trainloader = DataLoader(
        trainset, batch_size=_BATCH, shuffle=True, num_workers=2
    )
    testloader = DataLoader(
        testset, batch_size=_BATCH, shuffle=False, num_workers=2
    )

    net = Net()
    begin = time.monotonic()
    seen, _ = train(net, trainloader, arguments.epochs, arguments.limit)
    seconds = time.monotonic() - begin
    print(f"Trained in {seconds:.1f} s, {seen / seconds:,.0f} images/s")

    path = Path(tempfile.gettempdir()) / "cifar_net.pth"
    torch.save(net.state_dict(), path)
    print(f"Saved {path}")

    net = Net()
    net.load_state_dict(torch.load(path, weights_only=True))
    share = accuracy(net, testloader)
    print(
        f"Accuracy of the network on the {len(testset):,} test images:"
        f" {100 * share:.1f} %"
    )


if __name__ == "__main__":
    main()
