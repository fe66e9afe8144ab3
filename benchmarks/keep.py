"""What ms.Keep costs: its share of the time of a training step, averaged over steps, at the paper's sizes.

A step is forward pass, backward pass and Adam on copy first input with batches of 32. Processor time on a CPU, on a GPU
the time on the clock.

Run: python benchmarks/keep.py [--device cuda] [--rounds 5]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import multistable as ms

SIZES = {"1 x 128, T = 300": (128, 1, 300), "2 x 256, T = 200": (256, 2, 200)}
NETWORKS = {
    "torch.nn.LSTM": lambda hidden, layers: nn.LSTM(1, hidden, layers),
    "ms.RNN lstm": lambda hidden, layers: ms.RNN("lstm", 1, hidden, layers),
    "ms.RNN double lstm": lambda hidden, layers: ms.RNN("lstm", 1, hidden, layers, double=True),
}
BATCH, SEQUENCES = 32, 500


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """How long a call takes."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return time.perf_counter() - began
    began = time.process_time()
    call()
    return time.process_time() - began


def row_of(name: str, sizes: str, device: torch.device, rounds: int) -> str:
    """A line of the table: a step, a look, a look with its gradient, and their shares of a step over all steps."""
    hidden, layers, T = SIZES[sizes]
    torch.manual_seed(0)
    rnn, readout = NETWORKS[name](hidden, layers).to(device), nn.Linear(hidden, 1).to(device)
    u = torch.randn(T, SEQUENCES, 1, device=device)
    adam = torch.optim.Adam([*rnn.parameters(), *readout.parameters()])
    # A target of 0 is always reached, so that the term is never on. One of 1 never is.
    off, on = (ms.Keep(rnn, u, target=target, every=1) for target in (0.0, 1.0))

    def step() -> None:
        adam.zero_grad()
        (readout(rnn(u[:, :BATCH])[0][-1]) - u[0, :BATCH]).square().mean().backward()
        adam.step()

    def look() -> None:
        off()

    def push() -> None:
        on().backward()

    for call in (step, look, push):
        call()
    times = {call: [seconds(call, device) for _ in range(rounds)] for call in (step, look, push)}
    taken, looked, pushed = (statistics.median(times[call]) for call in (step, look, push))
    every = ms.Keep(rnn, u).every
    shares = f"{looked / taken / every:11.1%}{pushed / taken / every:11.1%}"
    return f"{name:20}{sizes:18}{1e3 * taken:10.1f}{1e3 * looked:10.1f}{1e3 * pushed:10.1f}{shares}"


def main() -> None:
    """Print a line for each network and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{'':38}{'step':>10}{'look':>10}{'and push':>10}{'off':>11}{'on':>11}\n{'':38}{'ms':>10}{'ms':>10}{'ms':>10}"
    )
    for name in NETWORKS:
        for sizes in SIZES:
            print(row_of(name, sizes, torch.device(options.device), options.rounds), flush=True)


if __name__ == "__main__":
    main()
