"""What resets inside sequences cost on the CPU: pieces side by side, or a call from each reset to the next.

    python benchmarks/resets.py

Forward and backward, on one thread, processor time as a multiple of the time without resets.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from statistics import median

import torch
from torch import Tensor

import multistable as ms

TIME, N, INPUTS = 200, 32, 8
EPISODES = (1000, 100, 20, 5)
"""Steps of an episode, in the mean."""


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(f"PyTorch {torch.__version__}, one thread; {TIME} steps of {N} sequences, median of 7")
    print(f"\n{'cell':<6}{'units':>6}{'steps of an episode':>21}{'pieces':>9}{'calls in turn':>15}")
    for cell, units in (("gru", 32), ("gru", 128), ("lstm", 128), ("brc", 64)):
        rnn, x = ms.RNN(cell, INPUTS, units), torch.randn(TIME, N, INPUTS)
        for steps in EPISODES:
            resets = torch.rand(TIME, N, generator=torch.Generator().manual_seed(0)) < 1 / steps
            plain, pieces, turns = seconds(
                partial(output_of, rnn, x), partial(output_of, rnn, x, resets), partial(in_turn, rnn, x, resets)
            )
            print(f"{cell:<6}{units:>6}{steps:>21}{pieces / plain:>9.2f}{turns / plain:>15.2f}", flush=True)


def output_of(rnn: ms.RNN, x: Tensor, resets: Tensor | None = None) -> Tensor:
    """The output, with the resets inside the call."""
    return rnn(x, resets=resets)[0]


def in_turn(rnn: ms.RNN, x: Tensor, resets: Tensor) -> Tensor:
    """The output by a call for all sequences up to the next step at which any is reset."""
    starts = [int(step) for step in resets.any(1).nonzero() if step > 0]
    outputs, state = [], None
    for start, stop in pairwise([0, *starts, len(x)]):
        if state is not None:
            kept = ~resets[start].unsqueeze(-1)
            state = state * kept if isinstance(state, Tensor) else tuple(field * kept for field in state)
        output, state = rnn(x[start:stop], state)
        outputs.append(output)
    return torch.cat(outputs)


def seconds(*ways: Callable[[], Tensor]) -> list[float]:
    """Processor time of a pass forward and backward by each of the ways, which take turns."""
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(8):
        for way, times in zip(ways, taken, strict=True):
            begin = time.process_time()
            way().square().sum().backward()
            times.append(time.process_time() - begin)
    return [median(times[1:]) for times in taken]  # the first makes what later ones find made


if __name__ == "__main__":
    main()
