"""Microseconds per time step on the CPU: the plain loop, the fused one, and their ratio, in one run.

python benchmarks/cpu_scan.py
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from multistable.cells import CELLS, Cell
from multistable.scan import cpu, reference

SIZES = [(32, 64), (32, 128), (32, 256), (200, 128)]
TARGETS = {"mgu": 2.0, "nbrc": 2.0, "brc": 5.0}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=[name for name in CELLS if name != "chrono"])
    parser.add_argument("--time", type=int, default=50, help="time steps of a sequence (default: 50)")
    parser.add_argument("--rounds", type=int, default=15, help="repetitions, of which the median (default: 15)")
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch (default: 2)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"PyTorch {torch.__version__}, {arguments.threads} threads, {arguments.time} steps, microseconds per step")
    print("\nforward, and forward+backward with the gradients of input, initial state and weights\n")
    print("| cell | n | H | plain fw | fused fw | ratio | plain fw+bw | fused fw+bw | ratio | target | |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in arguments.cells:
        for n, hidden in SIZES:
            cell, projected = problem(name, n, hidden, arguments.time)
            runs = [
                partial(run, scan, cell, projected)
                for run in (forward, forward_and_backward)
                for scan in (reference.scan, cpu.scan)
            ]
            plain, fused, plain_both, fused_both = (
                seconds / arguments.time * 1e6 for seconds in medians(runs, arguments.rounds)
            )
            ratio, target = plain_both / fused_both, TARGETS.get(name, 1.0)
            print(
                f"| {name} | {n} | {hidden} | {plain:.1f} | {fused:.1f} | {plain / fused:.2f} | {plain_both:.1f} "
                f"| {fused_both:.1f} | {ratio:.2f} | {target:g} | {'met' if ratio >= target else 'not met'} |",
                flush=True,
            )
    print("\nconstant input, no gradient, last state alone (n = 320, H = 128, 1000 steps)\n")
    print("| cell | plain | fused | ratio |")
    print("|---|---|---|---|")
    for name in arguments.cells:
        cell, projected = problem(name, 320, 128, 1)
        constant = projected.detach().expand(1000, -1, -1)
        runs = [partial(forward, scan, cell, constant) for scan in (plain_last, cpu.last)]
        plain, fused = (seconds / len(constant) * 1e6 for seconds in medians(runs, 3))
        print(f"| {name} | {plain:.1f} | {fused:.1f} | {plain / fused:.2f} |", flush=True)


def problem(name: str, n: int, hidden: int, steps: int) -> tuple[Cell[Any], Tensor]:
    """A cell and projected inputs ``(steps, n, gates * hidden)``."""
    generator = torch.Generator().manual_seed(0)
    cell = CELLS[name](1, hidden, generator=generator)  # type: ignore[call-arg]
    projected = cell.project(torch.randn(steps, n, 1, generator=generator)).detach().requires_grad_()
    return cell, projected


def plain_last(cell: Cell[Any], projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The last state by the plain loop, without storing the others."""
    for projected_t in projected:
        state = cell.step(projected_t, state)
    return state


def forward(scan: Callable[..., Any], cell: Cell[Any], projected: Tensor) -> None:
    """States, without gradient."""
    with torch.no_grad():
        scan(cell, projected, cell.zero_state(projected[0]))


def forward_and_backward(scan: Callable[..., Any], cell: Cell[Any], projected: Tensor) -> None:
    """States and all gradients."""
    state = cell.State(*(field.requires_grad_() for field in cell.zero_state(projected[0].detach())))
    states = scan(cell, projected, state)
    weights = [weight for key, weight in cell.named_parameters() if key.startswith("recurrent")]
    torch.autograd.grad(states[0], [projected, *state, *weights], torch.ones_like(states[0]))


def medians(runs: Sequence[Callable[[], None]], rounds: int) -> list[float]:
    """The median seconds of each, taken in turns, so that a busy machine is busy for all."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds + 1):
        for run, own in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            own.append(time.perf_counter() - start)
    return [statistics.median(own[1:]) for own in times]


if __name__ == "__main__":
    main()
