"""Warm up at the start of a loop of your own, and log VAA to TensorBoard and W&B.

pip install ".[tensorboard,wandb]"
python examples/train_in_your_own_loop.py runs/own_loop
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import wandb
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

from multistable.integrations import Watch


class Recall(nn.Module):
    """Gives back the first of the numbers that it reads."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(1, hidden_size, batch_first=True)
        self.readout = nn.Linear(hidden_size, 1)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.readout(self.rnn(numbers)[0][:, -1])


def main(out: Path, hidden_size: int = 32, epochs: int = 5, sequences: int = 1000, **warmup: Any) -> Watch:
    """Train, and log to both. Further arguments are those of the warmup."""
    numbers = torch.randn(sequences, 30, 1)
    loader = DataLoader(TensorDataset(numbers, numbers[:, 0]), batch_size=50, shuffle=True)
    model = Recall(hidden_size)

    os.environ.setdefault("WANDB_MODE", "offline")
    out.mkdir(parents=True, exist_ok=True)
    with SummaryWriter(str(out)) as writer, wandb.init(project="multistable", dir=out) as run:

        def log(values: dict[str, float], epoch: int) -> None:
            run.log({**values, "epoch": epoch})
            for name, value in values.items():
                writer.add_scalar(name, value, epoch)

        watch = Watch(model, loader, every=1, log=log, warmup=warmup)  # one of them alone: log=writer, or log=run
        optimiser = torch.optim.Adam(model.parameters())
        for epoch in range(1, epochs + 1):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            print(epoch, loss.item(), watch(epoch))
    return watch


if __name__ == "__main__":
    main(Path(sys.argv[1]))
