"""A callback warms up a model when the Trainer of Hugging Face starts, and logs its VAA.

pip install ".[transformers]"
python examples/train_with_transformers.py runs/transformers
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from multistable.integrations.transformers import Multistability


class FirstToken(Dataset[dict[str, Tensor]]):
    """Texts of random tokens, of which the first is the label."""

    def __init__(self, size: int) -> None:
        self.texts = torch.randint(4, (size, 20))

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.texts[index], "labels": self.texts[index, 0]}


class Classifier(nn.Module):
    """An embedding, an LSTM and a readout."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, 8)
        self.rnn = nn.LSTM(8, hidden_size, batch_first=True)
        self.readout = nn.Linear(hidden_size, 4)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Any]:
        logits = self.readout(self.rnn(self.embedding(input_ids))[0][:, -1])
        loss = {} if labels is None else {"loss": nn.functional.cross_entropy(logits, labels)}
        return {**loss, "logits": logits}


def main(out: Path, hidden_size: int = 32, epochs: int = 3, sequences: int = 1000, **warmup: Any) -> Trainer:
    """Train by the Trainer of Hugging Face. Further arguments are those of the warmup."""
    arguments = TrainingArguments(
        output_dir=str(out), num_train_epochs=epochs, use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no"
    )
    trainer = Trainer(model=Classifier(hidden_size), args=arguments, train_dataset=FirstToken(sequences))
    trainer.add_callback(Multistability(trainer, warmup=warmup))
    trainer.train()
    return trainer


if __name__ == "__main__":
    main(Path(sys.argv[1]))
