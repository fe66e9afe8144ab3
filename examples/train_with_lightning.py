"""A callback warms up a Lightning module when its training starts, and logs its VAA.

pip install ".[lightning]"
python examples/train_with_lightning.py runs/lightning
"""

import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from multistable.integrations.lightning import Multistability


class Recall(lightning.LightningModule):
    """Gives back the first of the numbers that it reads."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(1, hidden_size, batch_first=True)
        self.readout = nn.Linear(hidden_size, 1)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.readout(self.rnn(numbers)[0][:, -1])

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        x, y = batch
        return nn.functional.mse_loss(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def main(out: Path, hidden_size: int = 32, epochs: int = 5, sequences: int = 1000, **warmup: Any) -> lightning.Trainer:
    """Train by the Trainer of Lightning. Further arguments are those of the warmup."""
    numbers = torch.randn(sequences, 30, 1)
    loader = DataLoader(TensorDataset(numbers, numbers[:, 0]), batch_size=50, shuffle=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        default_root_dir=out,
        logger=CSVLogger(out),
        log_every_n_steps=1,
        enable_progress_bar=False,
        callbacks=[Multistability(every=1, warmup=warmup)],
    )
    trainer.fit(Recall(hidden_size), loader)
    print(trainer.callback_metrics)
    return trainer


if __name__ == "__main__":
    main(Path(sys.argv[1]))
