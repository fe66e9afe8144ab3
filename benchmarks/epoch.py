"""What an epoch of training takes at the paper's scale: gradient steps, validation, and the measure of VAA.

    python benchmarks/epoch.py --output docs/results/epoch
    python benchmarks/epoch.py --device cpu --hidden 16 --T 20 --training-sequences 400

prints a row for each cell, and writes ``<output>.txt``. The networks of two layers learn denoising together, as
``multistable train`` trains them. The epoch before the timed one compiles kernels and records graphs.
"""

import argparse
import datetime
import shlex
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from multistable.cells import CELLS
from multistable.scan.fused import PRECISIONS
from multistable.tasks import Denoising
from multistable.training import RunConfig
from multistable.training.supervised import SupervisedGroup


def seconds(work: Callable[[], Any], device: torch.device) -> float:
    """How long ``work`` takes, what it starts on a GPU included."""
    wait = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - began


def row(cell: str, asked: argparse.Namespace) -> str:
    """A line of the table: classic networks of one cell."""
    sizes = {"hidden_size": asked.hidden, "num_layers": 2, "training_sequences": asked.training_sequences}
    task = Denoising(asked.T, 5)
    configs = [RunConfig(task, cell, seed=seed, precision=asked.precision, **sizes) for seed in range(asked.networks)]
    group = SupervisedGroup(configs, asked.device)
    group.initialise(lambda *_: None)
    for _ in range(2):
        trained = seconds(partial(group.advance, lambda *_: None), asked.device)
        validated = seconds(group.validate, asked.device)
        measured = seconds(partial(group.measured.vaa, list(range(len(configs))), group.ensemble), asked.device)
    step = trained / group.steps * 1e3
    return f"{cell:8}{step:12.2f}{trained:12.2f}{validated:12.2f}{measured:12.2f}"


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS), metavar="NAME")
    parser.add_argument("--networks", type=int, default=10, help="trained together")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--T", type=int, default=200)
    parser.add_argument("--training-sequences", type=int, default=RunConfig.training_sequences)
    parser.add_argument("--precision", choices=PRECISIONS, default="tf32", help="of products in training on a GPU")
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, help="where to write, without a suffix")
    return parser.parse_args()


def main() -> None:
    """Print the table, and write it as it grows."""
    asked = options()
    cuda, threads = asked.device.type == "cuda", torch.get_num_threads()
    machine = torch.cuda.get_device_name(asked.device) if cuda else f"CPU, threads: {threads}"
    lines = [
        f"$ python {shlex.join(sys.argv)}",
        f"{machine}, torch {torch.__version__}, {datetime.date.today()}",
        "",
        f"{asked.networks} networks of 2 x {asked.hidden} on denoising, T = {asked.T}, training in {asked.precision}",
        f"{'cell':8}{'ms a step':>12}{'s an epoch':>12}{'validation':>12}{'VAA':>12}",
    ]
    print("\n".join(lines))
    for cell in asked.cells:
        lines.append(row(cell, asked))
        print(lines[-1], flush=True)
        if asked.output:
            asked.output.parent.mkdir(parents=True, exist_ok=True)
            Path(f"{asked.output}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
