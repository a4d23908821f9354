"""Lightning's Trainer over tensors in memory, with all that it shows off."""

import time

import lightning
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers import common
from benchmarks.pytorch_golden import Net


class _Batches(Dataset):
    """Whole batches, so that nothing is put together image by image."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels
        self.rows: tuple[torch.Tensor, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.rows[index]
        return self.images[rows], self.labels[rows]


class _Module(lightning.LightningModule):
    """The network, its loss and its optimizer."""

    def __init__(self, net: Net, rate: float) -> None:
        super().__init__()
        self.net, self.rate = net, rate
        self.total = torch.zeros(())

    def training_step(self, batch: tuple, number: int) -> torch.Tensor:
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(images), labels)
        self.total += loss.detach() * len(labels)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            self.net.parameters(),
            lr=self.rate,
            momentum=common.MOMENTUM,
            fused=True,
        )


class _Clock(lightning.Callback):
    """Times each epoch, and gives it its order."""

    def __init__(self, data: _Batches, work: common.Work) -> None:
        self.data, self.work = data, work
        self.seconds: list[float] = []

    def on_train_epoch_start(self, trainer: object, module: _Module) -> None:
        order = torch.from_numpy(self.work.orders[len(self.seconds)])
        self.data.rows = order.split(self.work.batch_size)
        module.total = torch.zeros(())
        self.begin = time.perf_counter()

    def on_train_epoch_end(self, trainer: object, module: _Module) -> None:
        self.seconds.append(time.perf_counter() - self.begin)


def main() -> None:
    """Trains, and prints what was measured."""
    arguments = common.parser(__doc__).parse_args()
    work = common.read(arguments)
    net = Net()
    net.load_state_dict(
        {name: torch.from_numpy(one) for name, one in work.weights.items()}
    )
    images = torch.from_numpy(work.scaled()).permute(0, 3, 1, 2).contiguous()
    data = _Batches(images, torch.from_numpy(work.labels))
    data.rows = torch.from_numpy(work.orders[0]).split(work.batch_size)
    module, clock = _Module(net, work.rate), _Clock(data, work)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=arguments.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[clock],
    )
    trainer.fit(module, DataLoader(data, batch_size=None, shuffle=False))
    loss = float(module.total) / len(work.labels)
    common.show(len(work.labels), clock.seconds, loss, "lightning", "torch")


if __name__ == "__main__":
    main()
