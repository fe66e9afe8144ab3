"""Whether LSTMs keep the attractors of a warmup in their first steps of training: one layer of 128, copy, T = 300.

Each network is warmed up, measured, trained for 400 steps of Adam (1e-3, batch 32), and measured after 100 and 400 of
them. Without a memory the loss is 1.

Run: python benchmarks/kept_attractors.py [--algorithm fast] [--seeds 12] [--T 300]
"""

import argparse
import time
import warnings

import torch
from torch import nn

import multistable as ms

HIDDEN, SEQUENCES, BATCH, STEPS, LOOKS, LAST = 128, 2000, 32, 400, (100, 400), 50


def row_of(algorithm: str, seed: int, T: int) -> str:
    """A line of the table: outcome and processor time of the warmup, VAA before and on the way, the last loss."""
    generator = torch.Generator().manual_seed(seed)
    rnn, readout = ms.RNN("lstm", 1, HIDDEN, generator=generator), nn.Linear(HIDDEN, 1)
    with torch.no_grad():
        readout.weight.uniform_(-(HIDDEN**-0.5), HIDDEN**-0.5, generator=generator)
        readout.bias.zero_()
    sequences = torch.randn(T, SEQUENCES, 1, generator=generator)
    began = time.process_time()
    history = ms.warmup(rnn, sequences, algorithm=algorithm, generator=torch.Generator().manual_seed(seed))
    seconds = time.process_time() - began

    def vaa() -> float:
        return float(ms.measure(rnn, sequences, generator=torch.Generator().manual_seed(1000 + seed), batches=5).vaa)

    values, losses = [vaa()], []
    adam = torch.optim.Adam([*rnn.parameters(), *readout.parameters()], lr=1e-3)
    for step in range(1, STEPS + 1):
        u = torch.randn(T, BATCH, 1, generator=generator)
        loss = (readout(rnn(u)[0][-1]) - u[0]).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
        if step in LOOKS:
            values.append(vaa())
    told = f"{values[0]:8.3f}" + "".join(f"{value:10.3f}" for value in values[1:])
    return f"{algorithm:9}{seed:5}  {history.outcome:13}{seconds:8.1f}{told}{sum(losses[-LAST:]) / LAST:9.4f}"


def main() -> None:
    """Print a line for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="fast", choices=("fast", "reliable", "paper"))
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--T", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ms.WarmupWarning)
    looks = "".join(f"{f'{step} steps':>10}" for step in LOOKS)
    print(f"{'':9}{'seed':>5}  {'warmup':13}{'seconds':>8}{'VAA':>8}{looks}{'loss':>9}")
    for seed in range(options.seeds):
        print(row_of(options.algorithm, seed, options.T), flush=True)


if __name__ == "__main__":
    main()
