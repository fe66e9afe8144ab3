"""Keep the attractors of a warmup while an LSTM of your own learns, in a plain training loop.

python examples/keep_attractors.py
"""

from typing import Any

import torch
from torch import nn

import multistable as ms

BATCH = 32


def main(hidden_size: int = 64, T: int = 50, train_steps: int = 300, sequences: int = 1000, **warmup: Any) -> ms.Keep:
    """Learn to give back the first number of a sequence. Further arguments are those of the warmup."""
    torch.manual_seed(0)
    rnn, readout = nn.LSTM(1, hidden_size), nn.Linear(hidden_size, 1)
    numbers = torch.randn(T, sequences, 1)

    ms.warmup(rnn, numbers, **warmup)
    keep = ms.Keep(rnn, numbers)
    optimiser = torch.optim.Adam([*rnn.parameters(), *readout.parameters()])
    for step in range(1, train_steps + 1):
        x = numbers[:, torch.randint(sequences, (BATCH,))]
        task_loss = nn.functional.mse_loss(readout(rnn(x)[0][-1]), x[0])
        loss = task_loss + keep()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 0:
            print(f"step {step}: loss {task_loss.item():.3f}; {keep}")
    print(ms.measure(rnn, numbers))
    return keep


if __name__ == "__main__":
    main()
