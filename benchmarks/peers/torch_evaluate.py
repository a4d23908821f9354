"""PyTorch's evaluation of images in memory, at the best of some batches."""

import json
import statistics
import time

import numpy as np
import torch

from benchmarks.peers import common
from benchmarks.pytorch_golden import Net

_BATCHES = (100, 250, 500, 1_000, 2_500, 10_000)
_TIMES = 7


def main() -> None:
    """Evaluates at every batch, and prints the best."""
    arguments = common.parser(__doc__).parse_args()
    work = common.read(arguments)
    net = Net()
    net.load_state_dict(
        {name: torch.from_numpy(one) for name, one in work.weights.items()}
    )
    net.eval()
    pixels = np.load(arguments.data / "test_images.npy")
    labels = torch.from_numpy(np.load(arguments.data / "test_labels.npy"))
    images = (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
    images = images.contiguous()
    found = {}
    for size in _BATCHES:
        seconds = []
        for _ in range(_TIMES + 1):
            begin = time.perf_counter()
            loss, accuracy = _evaluate(net, images, labels, size)
            seconds.append(time.perf_counter() - begin)
        found[size] = len(labels) / statistics.median(seconds[1:])
    best = max(found, key=lambda size: found[size])
    print(
        json.dumps(
            {
                "images_per_second": found[best],
                "batch_size": best,
                "loss": loss,
                "accuracy": accuracy,
            }
        )
    )


@torch.inference_mode()
def _evaluate(
    net: Net, images: torch.Tensor, labels: torch.Tensor, size: int
) -> tuple[float, float]:
    loss, right = torch.zeros(()), torch.zeros((), dtype=torch.int64)
    for some, truth in zip(images.split(size), labels.split(size), strict=True):
        logits = net(some)
        loss += torch.nn.functional.cross_entropy(
            logits, truth, reduction="sum"
        )
        right += (logits.argmax(dim=1) == truth).sum()
    return float(loss) / len(labels), float(right) / len(labels)


if __name__ == "__main__":
    main()
