"""Microseconds per time step on the CPU: the plain loop, the fused ones, and the ratios to the plain one, in one run.

    python benchmarks/cpu_scan.py
    python benchmarks/cpu_scan.py --alone

The second is for a machine that is busy with other work: it measures processor time, on one thread.
"""

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from multistable.cells import CELLS, Cell
from multistable.networks import from_torch
from multistable.scan import cpu, reference
from multistable.scan.cpu import passes

SIZES = [(32, 64), (32, 128), (32, 256), (200, 128)]
# The last two are as a user writes them: with one product and with two that depend on each other.
sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
OTHERS = importlib.import_module("cells_of_others")
KINDS: dict[str, Any] = {name: CELLS[name] for name in CELLS.names() if name != "chrono"}
KINDS |= {"leaky": OTHERS.LeakyTanh, "lem": OTHERS.LEM}
TARGETS = {"leaky": 2.0, "lem": 2.0, "mgu": 2.0, "nbrc": 2.0, "brc": 5.0}
HEADER = """| cell | n | H | plain | torch | ratio | compiled | ratio | target | |
|---|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--time", type=int, default=50, help="time steps of a sequence (default: 50)")
    parser.add_argument("--rounds", type=int, default=15, help="repetitions, of which the median (default: 15)")
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch (default: 2)")
    parser.add_argument("--alone", action="store_true", help="one thread, and processor time instead of the clock's")
    arguments = parser.parse_args()
    threads, clock = (1, time.process_time) if arguments.alone else (arguments.threads, time.perf_counter)
    torch.set_num_threads(threads)
    kind = "microseconds of processor time" if arguments.alone else "microseconds"
    print(f"PyTorch {torch.__version__}, threads: {threads}, {arguments.time} steps, {kind} per step")
    print("plain: the reference; torch: the fused loop in operations of PyTorch; compiled: with compiled passes")
    if not cpu.compiler_of_passes():
        print("llvmlite is not installed: both fused loops are the same")
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
    print("\na module call, 16 input features, torch.nn over ours (above 1: ours is faster)\n")
    beside_torch(steps, rounds, clock)


def beside_torch(steps: int, rounds: int, clock: Callable[[], float]) -> None:
    """Print how long ``torch.nn`` takes for each unit of time that the same weights take here."""
    print("| | n | H | forward | forward and backward |\n|---|---|---|---|---|")
    for kind in (nn.GRU, nn.LSTM, nn.RNN):
        for n, hidden in (*SIZES[:3], (200, 256)):
            theirs: Any = kind(16, hidden)
            ours, x = from_torch(theirs), torch.randn(steps, n, 16)
            ratios = []
            for run in (call, call_and_back):
                theirs_takes, ours_takes = medians([partial(run, theirs, x), partial(run, ours, x)], rounds, clock)
                ratios.append(f"{theirs_takes / ours_takes:.2f}")
            print(f"| {kind.__name__} | {n} | {hidden} | {' | '.join(ratios)} |", flush=True)


def call(module: nn.Module, x: Tensor) -> None:
    """Outputs, without gradient."""
    with torch.no_grad():
        module(x)


def call_and_back(module: nn.Module, x: Tensor) -> None:
    """Outputs and the gradients of all weights."""
    outputs = module(x)[0]
    torch.autograd.grad(outputs, list(module.parameters()), torch.ones_like(outputs))


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
    plain, of_torch, compiled = times
    return (
        f"| {name} | {n} | {hidden} | {plain:.1f} | {of_torch:.1f} | {plain / of_torch:.2f} | {compiled:.1f} "
        f"| {plain / compiled:.2f} | {target:g} | {'met' if plain >= target * compiled else 'not met'} |"
    )


def torch_path(scan: Callable[..., Any]) -> Callable[..., Any]:
    """The fused loop as it runs where llvmlite is not installed."""

    def interpreted(*arguments: Any) -> Any:
        with mock.patch.object(passes, "compiler_of_passes", return_value=None):
            return scan(*arguments)

    return interpreted


def problem(name: str, n: int, hidden: int, steps: int) -> tuple[Cell[Any], Tensor]:
    """A cell and projected inputs ``(steps, n, gates * hidden)``."""
    generator = torch.Generator().manual_seed(0)
    cell = KINDS[name](1, hidden, generator=generator)
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
    weights = [weight for key, weight in cell.named_parameters() if key not in ("input_weight", "bias")]
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
