"""PyTorch with all images in memory, as a plain loop over batches.

The forms that its own tuning guide names for a CPU are options: threads,
channels last, torch.compile. The optimizer is the fused one, gradients are set
to None, and the losses are added up without a look at them.
"""

import time

import torch
from torch import nn

from benchmarks.peers import common
from benchmarks.pytorch_golden import Net


def main() -> None:
    """Trains, and prints what was measured."""
    parser = common.parser(__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--channels_last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    work = common.read(arguments)

    net = Net()
    net.load_state_dict(
        {name: torch.from_numpy(one) for name, one in work.weights.items()}
    )
    images = torch.from_numpy(work.scaled()).permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(work.labels)
    if arguments.channels_last:
        net = net.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=work.rate, momentum=common.MOMENTUM, fused=True
    )
    criterion = nn.CrossEntropyLoss()

    def loss_of(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return criterion(net(inputs), targets)

    if arguments.compile:
        # A smaller last batch would compile once more in the timed epoch.
        loss_of = torch.compile(loss_of)

    seconds = []
    for order in work.orders:
        begin = time.perf_counter()
        total = torch.zeros(())
        for rows in torch.from_numpy(order).split(work.batch_size):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(images[rows], labels[rows])
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(rows)
        mean = float(total) / len(order)
        seconds.append(time.perf_counter() - begin)
    common.show(len(labels), seconds, mean, "torch")


if __name__ == "__main__":
    main()
