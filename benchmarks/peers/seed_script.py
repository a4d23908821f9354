"""The seed's script as written, on arrays instead of torchvision's download.

Two worker processes read, shuffle and scale images one by one; after training
the weights are saved by torch.save. Its order of the data is its own.
"""

import os
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from benchmarks.peers import common
from benchmarks.pytorch_golden import Net
from benchmarks.seed_pytorch import Images, train


def main() -> None:
    """Trains and saves, and prints what was measured."""
    parser = common.parser(__doc__)
    parser.add_argument(
        "--limit", type=int, default=0, help="batches in an epoch; 0: all"
    )
    arguments = parser.parse_args()
    work = common.read(arguments)
    torch.manual_seed(0)
    loader = DataLoader(
        Images(work.images, work.labels.tolist()),
        batch_size=work.batch_size,
        shuffle=True,
        num_workers=2,
    )
    net = Net()
    net.load_state_dict(
        {name: torch.from_numpy(one) for name, one in work.weights.items()}
    )
    begin = time.perf_counter()
    seen, loss = train(
        net, loader, arguments.epochs, arguments.limit, rate=work.rate
    )
    seconds = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cifar_net.pth")
        torch.save(net.state_dict(), path)
        assert os.path.getsize(path) > 0
    common.show(seen, [seconds], loss, "torch")


if __name__ == "__main__":
    main()
