"""How often a warmup makes a network multistable, how many gradient steps it takes and how long, over many seeds.

    python benchmarks/warmup.py --output docs/results/warmup
    python benchmarks/warmup.py --target 0.25 --seeds 10 --algorithms fast --output docs/results/warmup_to_a_quarter

prints a row for each network and algorithm, and writes ``<output>.txt`` and ``<output>.json``. All seeds of a network
are warmed up as one ensemble, each with its own weights and random numbers; the time is that of the ensemble. Two
measures of VAA follow, each with its own random numbers: 10 inputs, 32 states under each, M = 10,000. A warmup is a
success if both are above 0.9, or within 0.1 of a target below the default. A failure is silent if the history calls
the network multistable.
"""

import argparse
import datetime
import json
import math
import platform
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import multistable as ms
from multistable.cells import initial
from multistable.tasks import CopyFirstInput, Denoising, Task

SEQUENCES = 1000
ALGORITHMS = ("paper", "fast", "reliable")
TARGET, SUCCESS, TOLERANCE = 0.95, 0.9, 0.1

Row = dict[str, Any]


class Leaky(ms.Cell[ms.Hidden]):
    """h_t = (h_{t-1} + tanh(W_u u_t + W_h h_{t-1} + b)) / 2, with weights as torch.nn.RNN has them."""

    def __init__(self, input_size: int, hidden_size: int, **factory: Any) -> None:
        super().__init__(input_size, hidden_size)
        bound = 1 / math.sqrt(hidden_size)
        self.input_weight = initial.uniform(input_size, hidden_size, bound=bound, **factory)
        self.recurrent_weight = initial.uniform(hidden_size, hidden_size, bound=bound, **factory)
        self.bias = initial.uniform(hidden_size, bound=bound, **factory)

    def step(self, projected: Tensor, state: ms.Hidden) -> ms.Hidden:
        """One time step; W_u u_t + b comes in as ``projected``."""
        return ms.Hidden((state.h + torch.tanh(projected + state.h @ self.recurrent_weight)) / 2)


@dataclass(frozen=True)
class Network:
    """A network to warm up.

    Args:
        make: the network of a seed.
        task: whose sequences drive it.
        batch_size: n of the warmup by ``paper`` and ``reliable``; ``fast`` has its own default.
    """

    make: Callable[[int], ms.RNN]
    task: Task
    batch_size: int


def of_torch(kind: Callable[..., nn.Module], hidden_size: int) -> Callable[[int], ms.RNN]:
    """A network of ``torch.nn``, as PyTorch initialises it."""

    def make(seed: int) -> ms.RNN:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return ms.from_torch(kind(1, hidden_size))

    return make


def of_cell(cell: str | type[ms.Cell[Any]], *sizes: int, double: bool = False) -> Callable[[int], ms.RNN]:
    """An ``ms.RNN``."""
    return lambda seed: ms.RNN(cell, *sizes, double=double, generator=generator(seed))


SHORT = CopyFirstInput(40)
NETWORKS = {
    "torch.nn.GRU(1, 128)": Network(of_torch(nn.GRU, 128), CopyFirstInput(50), 200),
    "torch.nn.LSTM(1, 128)": Network(of_torch(nn.LSTM, 128), CopyFirstInput(50), 200),
    "torch.nn.GRU(1, 32)": Network(of_torch(nn.GRU, 32), SHORT, 64),
    "torch.nn.LSTM(1, 32)": Network(of_torch(nn.LSTM, 32), SHORT, 64),
    "torch.nn.RNN(1, 48)": Network(of_torch(nn.RNN, 48), SHORT, 64),
    "leaky tanh(1, 48)": Network(of_cell(Leaky, 1, 48), SHORT, 64),
    "MGU(1, 32)": Network(of_cell("mgu", 1, 32), SHORT, 64),
    "BRC(1, 32)": Network(of_cell("brc", 1, 32), SHORT, 64),
    "NBRC(1, 32)": Network(of_cell("nbrc", 1, 32), SHORT, 64),
    "GRU(2, 64, 2)": Network(of_cell("gru", 2, 64, 2), Denoising(40, 5), 64),
    "double LSTM(1, 64)": Network(of_cell("lstm", 1, 64, double=True), SHORT, 64),
    "chrono LSTM(1, 32)": Network(of_cell("chrono", 1, 32), SHORT, 64),
}


def generator(seed: int) -> torch.Generator:
    """A generator of random numbers on the CPU."""
    return torch.Generator().manual_seed(seed)


def warm_up(name: str, algorithm: str, seeds: Sequence[int], target: float, device: torch.device) -> Row:
    """Warm up a network with each of the seeds, and measure its VAA."""
    network = NETWORKS[name]
    ensemble = ms.Ensemble([network.make(seed) for seed in seeds]).to(device)
    sequences = network.task.training(SEQUENCES, generator=generator(1)).inputs.to(device)
    began = time.perf_counter()
    # A failure is in the history too.
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        history = ms.warmup(
            ensemble,
            sequences,
            algorithm=algorithm,
            target=target,
            tolerance=TOLERANCE,
            batch_size=None if algorithm == "fast" and target >= TARGET else network.batch_size,
            generator=[generator(100 + seed) for seed in seeds],
        )
    seconds = time.perf_counter() - began
    checks = [ms.measure(ensemble, sequences, generator=generator(10_000 + check)).vaa for check in range(2)]
    return {
        "network": name,
        "algorithm": algorithm,
        "target": target,
        "seeds": list(seeds),
        "seconds": round(seconds, 2),
        "gradient_steps": history.gradient_steps.tolist(),
        "restarts": history.restarts.tolist(),
        "outcome": history.outcome,
        "vaa": history.vaa,
        "checks": [list(values) for values in zip(*checks, strict=True)],
    }


def is_success(vaa: float, target: float) -> bool:
    """Whether a measure after the warmup is as it should be."""
    return vaa > SUCCESS if target >= TARGET else abs(vaa - target) <= TOLERANCE


def line(row: Row) -> str:
    """A row of the table."""
    steps, total = row["gradient_steps"], len(row["seeds"])
    succeeded = [all(is_success(value, row["target"]) for value in values) for values in row["checks"]]
    claimed = [outcome == "multistable" for outcome in row["outcome"]]
    silent = sum(claim and not success for claim, success in zip(claimed, succeeded, strict=True))
    lowest, highest = min(map(min, row["checks"])), max(map(max, row["checks"]))
    cells = [
        f"{sum(succeeded)}/{total}",
        f"{lowest:.2f}",
        f"{highest:.2f}",
        silent,
        f"{sum(steps) / total:.0f}",
        max(steps),
    ]
    cells += [sum(row["restarts"]), f"{row['seconds']:.1f}"]
    return f"{row['network']:24}{row['algorithm']:10}" + "".join(f"{cell!s:>9}" for cell in cells)


def heading() -> str:
    """Above the rows."""
    columns = ("success", "lowest", "highest", "silent", "steps", "most", "again", "seconds")
    return f"{'network':24}{'algorithm':10}" + "".join(f"{column:>9}" for column in columns)


def among(known: Sequence[str]) -> Callable[[str], str]:
    """The type of an option that takes one of these names."""

    def one_of(name: str) -> str:
        if name not in known:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(known)}, got {name!r}")
        return name

    return one_of


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(NETWORKS)
    parser.add_argument("--seeds", type=int, default=20, help="how many: 0, 1, 2 and so on")
    parser.add_argument("--first", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--networks", nargs="+", type=among(names), default=names, metavar="NAME")
    parser.add_argument("--algorithms", nargs="+", type=among(ALGORITHMS), default=("paper", "fast"), metavar="NAME")
    parser.add_argument("--target", type=float, default=TARGET, help="of the warmup; lower ones are a wanted VAA")
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, help="where to write, without a suffix")
    return parser.parse_args()


def main() -> None:
    """Print the table, and write it as it grows."""
    asked = options()
    cuda = asked.device.type == "cuda"
    machine = torch.cuda.get_device_name() if cuda else f"{platform.machine()}, {torch.get_num_threads()} threads"
    about = f"{machine}, torch {torch.__version__}, {datetime.date.today()}"
    lines = [f"$ python {shlex.join(sys.argv)}", about, "", heading()]
    print("\n".join(lines))
    rows: list[Row] = []
    seeds = range(asked.first, asked.first + asked.seeds)
    for name in asked.networks:
        for algorithm in asked.algorithms:
            rows.append(warm_up(name, algorithm, seeds, asked.target, asked.device))
            lines.append(line(rows[-1]))
            print(lines[-1], flush=True)
            if asked.output:
                asked.output.parent.mkdir(parents=True, exist_ok=True)
                Path(f"{asked.output}.txt").write_text("\n".join(lines) + "\n")
                Path(f"{asked.output}.json").write_text(json.dumps({"about": about, "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
