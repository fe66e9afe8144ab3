"""What a measure on a GPU gains by three products of half precision ("tf32x3") in place of one in float32 ("ieee").

    python benchmarks/measure.py --output docs/results/measure
    python benchmarks/measure.py --device cpu

prints three tables, and writes them to ``<output>.txt``. The first has the time of a step of one layer under a constant
input, and the larger of the relative errors of h and c after 60 steps, against float64. Weights, inputs and states are
drawn from normal distributions. The second has the time of ``ms.measure`` of an ensemble, part of which was warmed up,
and the largest difference between the VAA of a network in the two precisions. Most of these VAA are 1 or that of a
single attractor. The third therefore has the VAA of networks on the way from untouched to warmed-up weights. Times
leave out what a first call compiles. On a CPU sizes are tiny, and both precisions run the same code.
"""

import argparse
import copy
import datetime
import platform
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import multistable as ms
from multistable.cells import CELLS
from multistable.dynamics.measure.algorithm_1_measure import Measure, estimate, measuring
from multistable.dynamics.system.draws import Draws
from multistable.scan import scan

CELL_NAMES, MEASURED = ("gru", "lstm", "mgu", "nbrc"), ("gru", "lstm")
PRECISIONS = ("ieee", "tf32x3")
CHECKED_STEPS, REPEATS = 60, 3
ON_THE_WAY = (0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares of the way from untouched to warmed-up weights."""
MOVED = 2
"""How many networks are taken part of it."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How much is computed.

    Attributes:
        networks: how many at once; the first ``warmed`` are warmed up where they are measured.
        hidden: units of a layer.
        batches: of a measure.
        batch_size: states of a batch; all batches together are the rows of a step.
        steps: that are timed at once.
        warmup: gradient steps.
        stabilisation: M.
    """

    networks: int
    warmed: int
    hidden: int
    batches: int
    batch_size: int
    steps: int
    warmup: int
    stabilisation: int


ON_GPU = Sizes(networks=10, warmed=6, hidden=256, batches=10, batch_size=32, steps=480, warmup=60, stabilisation=10_000)
ON_CPU = Sizes(networks=3, warmed=2, hidden=8, batches=2, batch_size=8, steps=60, warmup=2, stabilisation=600)


def generator(seed: int) -> torch.Generator:
    """A generator of random numbers on the CPU."""
    return torch.Generator().manual_seed(seed)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What ``work`` returns, and the seconds until it is there."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    began = time.perf_counter()
    result = work()
    wait()
    return result, time.perf_counter() - began


def random_layer(name: str, sizes: Sizes, dtype: torch.dtype, device: torch.device) -> Callable[[int], Any]:
    """The state of a layer of each network after so many steps; the same layers in every ``dtype``."""
    source = generator(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(sizes.networks, *shape, generator=source, dtype=torch.float64).to(device, dtype)

    rows, hidden = sizes.batches * sizes.batch_size, sizes.hidden
    cell = CELLS[name](hidden, hidden)
    weights = {key: draw(*p.shape) * (hidden**-0.5 if p.dim() > 1 else 1.0) for key, p in cell.named_parameters()}
    cell, u = cell.bind(weights), draw(rows, hidden)
    state = cell.State(*(draw(rows, hidden) for _ in cell.State._fields))
    return lambda steps: scan(cell, u.expand(steps, *u.shape), state, only_last=True)


def step(name: str, sizes: Sizes, device: torch.device) -> Row:
    """A row of the first table."""
    row: Row = {"cell": name}
    exact = random_layer(name, sizes, torch.float64, device)(CHECKED_STEPS)
    last = random_layer(name, sizes, torch.float32, device)
    for precision in PRECISIONS:
        with ms.engine(precision=precision):
            errors = [(a - b).norm() / b.norm() for a, b in zip(last(CHECKED_STEPS), exact, strict=True)]
            times = [timed(partial(last, sizes.steps))[1] for _ in range(REPEATS)]
        row[f"{precision} error"] = max(errors).item()
        row[f"{precision} us"] = sorted(times)[REPEATS // 2] / sizes.steps * 1e6
    return row


def ensembles(name: str, sequences: Tensor, sizes: Sizes, device: torch.device) -> tuple[ms.Ensemble, ms.Ensemble]:
    """Networks of two layers, the first of them warmed up; and some on the way there, from the first of these."""
    networks = [ms.RNN(name, 1, sizes.hidden, 2, generator=generator(seed)) for seed in range(sizes.networks)]
    warm = ms.Ensemble(networks[: sizes.warmed]).to(device)
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        ms.warmup(warm, sequences, algorithm="paper", steps=sizes.warmup, batch_size=100, generator=generator(2))
    warmed = warm.cpu().unstack()
    between = [
        on_the_way(a, b, share) for a, b in zip(networks[:MOVED], warmed[:MOVED], strict=True) for share in ON_THE_WAY
    ]
    return ms.Ensemble([*warmed, *networks[sizes.warmed :]]).to(device), ms.Ensemble(between).to(device)


def on_the_way(a: ms.RNN, b: ms.RNN, share: float) -> ms.RNN:
    """A network with the weights of ``a``, moved by a share of the way towards those of ``b``."""
    between, target = copy.deepcopy(a), b.state_dict()
    between.load_state_dict({key: value.lerp(target[key], share) for key, value in a.state_dict().items()})
    return between


def measured(rnn: nn.Module, sequences: Tensor, sizes: Sizes, precision: str) -> Measure:
    """``ms.measure`` in a precision of our choice: the innermost ``ms.engine`` holds."""
    with measuring(rnn, sequences, sizes.batch_size) as (system, data), ms.engine(precision=precision):
        draws = Draws(generator(3), system.members)
        return estimate(system, data, draws, (sizes.batches, sizes.batch_size), sizes.stabilisation, eps=1e-4)


def measure(name: str, sizes: Sizes, device: torch.device) -> Row:
    """A row of the second table."""
    row: Row = {"cell": name}
    sequences = torch.randn(30, 200, 1, generator=generator(0)).to(device)
    rnn, between = ensembles(name, sequences, sizes, device)
    for precision in PRECISIONS:
        measured(rnn, sequences, replace(sizes, stabilisation=1), precision)
        found, row[f"{precision} s"] = timed(partial(measured, rnn, sequences, sizes, precision))
        row[f"{precision} vaa"] = found.vaa
        row[f"{precision} vaa on the way"] = measured(between, sequences, sizes, precision).vaa
    for which in ("", " on the way"):
        pairs = zip(row[f"ieee vaa{which}"], row[f"tf32x3 vaa{which}"], strict=True)
        row[f"difference{which}"] = max(abs(a - b) for a, b in pairs)
    return row


def compile_kernels(name: str, device: torch.device) -> None:
    """Do everything once and briefly, in a process of its own: Triton keeps on disk what it compiles."""
    briefly = replace(ON_GPU, steps=1, warmup=1, stabilisation=1)
    step(name, briefly, device)
    if name in MEASURED:
        measure(name, briefly, device)


def tables(sizes: Sizes, steps: list[Row], measures: list[Row]) -> list[str]:
    """The rows as lines of text."""
    s = sizes
    lines = [
        f"microseconds per step, {s.networks} networks x {s.batches * s.batch_size} rows x {s.hidden} units; "
        f"relative error after {CHECKED_STEPS} steps",
        f"{'cell':6}{'ieee':>10}{'tf32x3':>10}{'ratio':>8}{'ieee error':>14}{'tf32x3 error':>14}",
    ]
    for row in steps:
        a, b = row["ieee us"], row["tf32x3 us"]
        lines.append(
            f"{row['cell']:6}{a:10.1f}{b:10.1f}{a / b:8.2f}{row['ieee error']:14.1e}{row['tf32x3 error']:14.1e}"
        )
    lines += [
        "",
        f"seconds of a measure, M = {s.stabilisation:,}, {s.batches} x {s.batch_size} states, {s.networks} networks of "
        f"2 x {s.hidden}, {s.warmed} warmed up; VAA in tf32x3",
        f"{'cell':6}{'ieee':>10}{'tf32x3':>10}{'ratio':>8}{'warmed up':>14}{'untouched':>14}{'largest difference':>20}",
    ]
    for row in measures:
        a, b, vaa = row["ieee s"], row["tf32x3 s"], row["tf32x3 vaa"]
        groups = [f"{min(part):.2f} to {max(part):.2f}" for part in (vaa[: s.warmed], vaa[s.warmed :])]
        lines.append(
            f"{row['cell']:6}{a:10.2f}{b:10.2f}{a / b:8.2f}{groups[0]:>14}{groups[1]:>14}{row['difference']:20.4g}"
        )
    lines += [
        "",
        "VAA in ieee, tf32x3 of networks on the way from untouched to warmed-up weights, by the share of it",
        f"{'cell':6}{'network':8}" + "".join(f"{share:>16}" for share in ON_THE_WAY),
    ]
    for row in measures:
        both = zip(row["ieee vaa on the way"], row["tf32x3 vaa on the way"], strict=True)
        pairs = [f"{a:.4f}, {b:.4f}" for a, b in both]
        for network in range(MOVED):
            own = pairs[network * len(ON_THE_WAY) :][: len(ON_THE_WAY)]
            lines.append(f"{row['cell']:6}{network:<8}" + "".join(f"{pair:>16}" for pair in own))
        lines.append(f"largest difference: {row['difference on the way']:.4g}")
    return lines


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, help="where to write, without a suffix")
    asked = parser.parse_args()
    cuda = asked.device.type == "cuda"
    if cuda:
        with ProcessPoolExecutor(len(CELL_NAMES), get_context("spawn")) as pool:
            list(pool.map(partial(compile_kernels, device=asked.device), CELL_NAMES))
    sizes = ON_GPU if cuda else ON_CPU
    steps = [step(name, sizes, asked.device) for name in CELL_NAMES]
    measures = [measure(name, sizes, asked.device) for name in MEASURED]

    command = f"$ python {shlex.join(sys.argv)}"
    machine = torch.cuda.get_device_name() if cuda else f"{platform.machine()}, {torch.get_num_threads()} threads"
    about = f"{machine}, torch {torch.__version__}, {datetime.date.today()}"
    text = "\n".join([command, about, "", *tables(sizes, steps, measures)])
    print(text)
    if asked.output:
        asked.output.parent.mkdir(parents=True, exist_ok=True)
        Path(f"{asked.output}.txt").write_text(text + "\n")


if __name__ == "__main__":
    main()
