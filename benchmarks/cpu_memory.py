"""What a gradient step on the CPU costs when freed memory goes back to the system, and when the process keeps it.

    python benchmarks/cpu_memory.py

Six networks of two layers of 64 units on batches of 32, on one thread. Each row is measured in its own process.
"""

import argparse
import resource
import subprocess
import sys

import torch

import multistable as ms
from multistable.memory import keep_freed_memory

LENGTHS = {"copy": (50, 1), "line MNIST": (100, 28), "sequential MNIST": (784, 1)}


def main() -> None:
    """Print the table, or one line of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=list(ms.CELLS), default=["lstm", "gru"])
    parser.add_argument("--steps", type=int, default=5, help="gradient steps, of which the mean (default: 5)")
    parser.add_argument("--one", nargs=3, metavar=("TASK", "CELL", "KEEP"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(arguments.steps, *arguments.one)
        return
    print(f"PyTorch {torch.__version__}, one thread; of a gradient step, processor seconds and page faults")
    print(f"\n{'task':<18}{'T':>5}  {'cell':<6}{'freed is':<10}{'user':>8}{'system':>8}{'faults':>9}{'peak, MB':>10}")
    for task in LENGTHS:
        for cell in arguments.cells:
            for way in ("returned", "kept"):
                one = [sys.executable, __file__, "--steps", str(arguments.steps), "--one", task, cell, way]
                subprocess.run(one, check=True)


def measure(steps: int, task: str, cell: str, way: str) -> None:
    """Measure one row, and print it."""
    if way == "kept":
        keep_freed_memory()
    torch.set_num_threads(1)
    time, inputs = LENGTHS[task]
    network = ms.Ensemble([ms.RNN(cell, inputs, 64, num_layers=2) for _ in range(6)])
    optimiser = torch.optim.Adam(network.parameters())
    batch = torch.randn(time, 6, 32, inputs)

    def step() -> None:
        output, _ = network(batch)
        output[-1].square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()

    step()
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(steps):
        step()
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    faults = (after.ru_minflt - before.ru_minflt) // steps
    taken = f"{user / steps:>8.3f}{system / steps:>8.3f}{faults:>9,}{after.ru_maxrss // 1024:>10,}"
    print(f"{task:<18}{time:>5}  {cell:<6}{way:<10}{taken}", flush=True)


if __name__ == "__main__":
    main()
