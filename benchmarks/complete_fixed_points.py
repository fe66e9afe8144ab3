"""How many of all fixed points a search finds, where it is known how many there are.

    python benchmarks/complete_fixed_points.py --output docs/results/complete_fixed_points

m independent units, each with two stable points and one between them, have 3^m fixed points. Each search begins from
300 random states, and once from the stable points alone. Processor time of one thread, for a search from random states.
"""

import argparse
import datetime
import math
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import multistable as ms

SLOPE = 1.8
BIASES = [0.0, 0.1, -0.25, 0.2, -0.05, 0.15]


def units(m: int) -> ms.RNN:
    """Independent units h -> (h + tanh(SLOPE h + b)) / 2."""
    rnn = ms.RNN("nbrc", 1, m).double()
    cell: Any = rnn.layers[0].cell
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.zero_()
        cell.bias[m : 2 * m] = math.atanh(SLOPE - 1)
        cell.bias[2 * m : 3 * m] = torch.tensor(BIASES[:m], dtype=torch.float64)
    return rnn


def states(m: int, seed: int) -> Tensor:
    """Where a search begins."""
    return 2 * torch.rand(300, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


def told(name: str, rnn: ms.RNN, m: int, expected: int, seeds: int) -> str:
    """A line: the numbers found from each seed, and from the stable points, and the seconds of a search."""
    began = time.process_time()
    found = [len(ms.fixed_points(rnn, "zero", states(m, seed))) for seed in range(seeds)]
    seconds = (time.process_time() - began) / seeds
    stable = ms.attractors(rnn, states=states(m, 0), inputs="zero", stabilisation=5000).points
    from_stable = len(ms.fixed_points(rnn, "zero", stable)) if len(stable) else 0
    return f"{name:<34}{expected:>9}  {', '.join(map(str, found)):<26}{from_stable:>13}{seconds:>10.2f}"


def main() -> None:
    """Search, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=6, help="the largest number of independent units")
    parser.add_argument("--output", type=Path, help="where to write, without a suffix")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        f"$ python {shlex.join(sys.argv)}",
        f"{platform.machine()}, 1 thread, torch {torch.__version__}, {datetime.date.today()}",
        "",
        f"{'network':<34}{'there are':>9}  {'found, a number a seed':<26}{'from stable':>13}{'seconds':>10}",
    ]
    print("\n".join(lines))
    for m in range(2, asked.most + 1):
        lines.append(told(f"{m} independent units", units(m), m, 3**m, asked.seeds))
        print(lines[-1], flush=True)
    if asked.output:
        asked.output.with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
