"""Microseconds per time step on the CPU: the plain loop, the fused ones, and the ratios to the plain one, in one run.

    python benchmarks/cpu_scan.py
    python benchmarks/cpu_scan.py --alone

The second is for a machine that is busy with other work: it measures processor time, on one thread.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from multistable.cells import CELLS, Cell
from multistable.scan import cpu, reference

SIZES = [(32, 64), (32, 128), (32, 256), (200, 128)]
TARGETS = {"mgu": 2.0, "nbrc": 2.0, "brc": 5.0}
HEADER = """| cell | n | H | plain | torch | ratio | numba | ratio | target | |
|---|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=[name for name in CELLS if name != "chrono"])
    parser.add_argument("--time", type=int, default=50, help="time steps of a sequence (default: 50)")
    parser.add_argument("--rounds", type=int, default=15, help="repetitions, of which the median (default: 15)")
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch (default: 2)")
    parser.add_argument("--alone", action="store_true", help="one thread, and processor time instead of the clock's")
    arguments = parser.parse_args()
    threads, clock = (1, time.process_time) if arguments.alone else (arguments.threads, time.perf_counter)
    torch.set_num_threads(threads)
    kind = "microseconds of processor time" if arguments.alone else "microseconds"
    print(f"PyTorch {torch.__version__}, threads: {threads}, {arguments.time} steps, {kind} per step")
    print("plain: the reference; torch: the fused loop in operations of PyTorch; numba: with compiled formulas")
    if not cpu.compiled_equations():
        print("numba is not installed: both fused loops are the same")
    steps, rounds = arguments.time, arguments.rounds
    print("\nforward, without gradient\n")
    missed = table(arguments.cells, SIZES, steps, rounds, forward, clock)
    print("\nforward and backward, with the gradients of input, initial state and weights\n")
    missed += table(arguments.cells, SIZES, steps, rounds, forward_and_backward, clock)
    print(f"\ntargets: {'all met' if not missed else 'not met by ' + ', '.join(missed)}")
    print("\na single step: forward, then forward and backward\n")
    for run in (forward, forward_and_backward):
        table(arguments.cells, [(32, 128)], 1, 20 * rounds, run, clock, {})
    print("\nconstant input, no gradient, last state alone (n = 320, H = 128, 1000 steps)\n")
    print(HEADER)
    for name in arguments.cells:
        cell, projected = problem(name, 320, 128, 1)
        constant = projected.detach().expand(1000, -1, -1)
        scans = (plain_last, torch_path(cpu.last), cpu.last)
        runs = [partial(forward, scan, cell, constant) for scan in scans]
        times = [seconds / len(constant) * 1e6 for seconds in medians(runs, 3, clock)]
        print(line(name, 320, 128, times, TARGETS.get(name, 1.0)), flush=True)


def table(
    cells: Sequence[str],
    sizes: Sequence[tuple[int, int]],
    steps: int,
    rounds: int,
    run: Callable[..., None],
    clock: Callable[[], float],
    targets: dict[str, float] = TARGETS,
) -> list[str]:
    """Print a line for each cell and size; returns those that miss their target."""
    missed = []
    print(HEADER)
    for name in cells:
        for n, hidden in sizes:
            cell, projected = problem(name, n, hidden, steps)
            scans = (reference.scan, torch_path(cpu.scan), cpu.scan)
            runs = [partial(run, scan, cell, projected) for scan in scans]
            times = [seconds / steps * 1e6 for seconds in medians(runs, rounds, clock)]
            target = targets.get(name, 1.0)
            print(line(name, n, hidden, times, target), flush=True)
            if times[0] < target * times[2]:
                missed.append(f"{name} {n}x{hidden} ({times[0] / times[2]:.2f})")
    return missed


def line(name: str, n: int, hidden: int, times: Sequence[float], target: float) -> str:
    """A line of the table; the target is for the last of the times."""
    plain, of_torch, of_numba = times
    return (
        f"| {name} | {n} | {hidden} | {plain:.1f} | {of_torch:.1f} | {plain / of_torch:.2f} | {of_numba:.1f} "
        f"| {plain / of_numba:.2f} | {target:g} | {'met' if plain >= target * of_numba else 'not met'} |"
    )


def torch_path(scan: Callable[..., Any]) -> Callable[..., Any]:
    """The fused loop as it runs where numba is not installed."""

    def without_numba(*arguments: Any) -> Any:
        with mock.patch.object(cpu, "compiled_equations", dict):
            return scan(*arguments)

    return without_numba


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


def medians(runs: Sequence[Callable[[], None]], rounds: int, clock: Callable[[], float]) -> list[float]:
    """The median seconds of each function. They take turns, so that other work on the machine slows all of them."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds + 1):
        for run, own in zip(runs, times, strict=True):
            start = clock()
            run()
            own.append(clock() - start)
    return [statistics.median(own[1:]) for own in times]


if __name__ == "__main__":
    main()
