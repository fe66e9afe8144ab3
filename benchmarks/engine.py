"""Microseconds per layer and time step of the fused time loop, the plain loop and cuDNN, in one run on one GPU.

    python benchmarks/engine.py --output docs/results/engine

prints the table and the targets, and writes both to ``<output>.txt`` and a picture to ``<output>.png``. A layer has
one input feature, so that the product with its input, which all three compute, hardly counts. Times are medians of a
few calls, host work included, divided by the number of steps (1000, fewer with many networks). The plain loop takes
the same time at every step, so few are measured. One network is also timed as a recorded CUDA graph, forward and
backward together, which leaves the host a single launch; the plain loop is not recorded.
"""

import argparse
import datetime
import platform
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor, nn

from multistable.cells import CELLS
from multistable.cells.base import Cell
from multistable.scan import engine, fused, scan
from multistable.scan.graphs import Graphed
from multistable.scan.kernels.form import form_of
from multistable.scan.kernels.gpu import capacity
from multistable.scan.kernels.plan import plan
from multistable.scan.program import program_of

BATCH = 32
CELL_NAMES = ("gru", "lstm", "mgu", "nbrc", "brc")
SIZES = (64, 128, 256, 512)
NETWORKS = (1, 8, 32, 64, 128)
PLAIN_STEPS = 10
MEMORY_STEPS = 200  # the fewest that any row is timed with: weights weigh more the shorter a sequence is

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000")  # Okabe-Ito: colour-blind readers can tell them apart
LABELS = {"ieee both": "{}, float32", "tf32 both": "{}, TF32", "plain both": "{}, plain loop"}

Row = dict[str, Any]
PLAIN = {"backend": "reference"}


def make(name: str, hidden: int, networks: int) -> tuple[Cell[Any], list[Tensor]]:
    """A cell of so many networks, and its weights."""
    cell = CELLS[name](1, hidden)
    lead = () if networks == 1 else (networks,)
    weights = {
        key: p.detach().expand(*lead, *p.shape).clone().cuda().requires_grad_() for key, p in cell.named_parameters()
    }
    return cell.bind(weights), list(weights.values())


def layer(settings: dict[str, str], name: str, hidden: int, networks: int, steps: int) -> Callable[[bool], None]:
    """A function that runs a layer forward and, when asked, backward, under these settings of the engine."""
    cell, weights = make(name, hidden, networks)
    lead = () if networks == 1 else (networks,)
    u = torch.randn(steps, *lead, BATCH, 1, device="cuda")
    upstream = torch.randn(steps, *lead, BATCH, hidden, device="cuda")

    def run(backward: bool) -> None:
        with engine(**settings):
            states = scan(cell, u)
        if backward:
            torch.autograd.grad(states.h, weights, upstream)

    return run


def recorded(name: str, hidden: int, steps: int) -> Callable[[bool], None]:
    """One network forward and backward, recorded once and replayed by the function."""
    cell, weights = make(name, hidden, 1)
    u = torch.randn(steps, BATCH, 1, device="cuda")
    upstream = torch.randn(steps, BATCH, hidden, device="cuda")

    def both(u: Tensor) -> tuple[Tensor, ...]:
        with engine(backend="fused"):
            states = scan(cell, u)
        return torch.autograd.grad(states.h, weights, upstream)

    eager_calls = 3
    graphed = Graphed(both, eager_calls)
    for _ in range(eager_calls + 1):
        graphed(u)

    def run(backward: bool) -> None:
        graphed(u)

    return run


def cudnn(name: str, hidden: int, steps: int) -> Callable[[bool], None]:
    """The same for ``torch.nn.GRU`` or ``torch.nn.LSTM``."""
    module = {"gru": nn.GRU, "lstm": nn.LSTM}[name](1, hidden).cuda()
    u = torch.randn(steps, BATCH, 1, device="cuda")
    upstream = torch.randn(steps, BATCH, hidden, device="cuda")

    def run(backward: bool) -> None:
        output, _ = module(u)
        if backward:
            torch.autograd.grad(output, list(module.parameters()), upstream)

    return run


def microseconds(run: Callable[[bool], None], backward: bool, steps: int, repeats: int = 3) -> float:
    """The median time of a step."""
    run(backward)
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        run(backward)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / steps)
    return sorted(times)[repeats // 2]


def peak_megabytes(run: Callable[[bool], None]) -> float:
    """The most memory that a forward and backward pass takes beyond what it is given."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run(True)
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def uses_matrix_units(name: str, hidden: int, networks: int) -> bool:
    """Whether TF32 makes a difference: where it does not, the engine computes in float32 whatever is asked."""
    gates = form_of(program_of(CELLS[name](1, hidden))).blocks
    if gates == 0:
        return False
    device = capacity(torch.device("cuda", torch.cuda.current_device()))
    return plan(hidden=hidden, gates=gates, members=networks, rows=BATCH, precision="tf32", **device).matrix


def measure(name: str, hidden: int, networks: int, quick: bool) -> Row:
    """One line of the table."""
    steps = 20 if quick else 1000 if networks <= 8 else 400 if networks * hidden <= 64 * 256 else 200
    row: Row = {"cell": name, "hidden": hidden, "networks": networks}
    for precision in ("ieee", "tf32"):
        if precision == "tf32" and not uses_matrix_units(name, hidden, networks):
            row |= {key.replace("ieee", "tf32"): value for key, value in row.items() if "ieee" in key}
            continue
        run = layer({"backend": "fused", "precision": precision}, name, hidden, networks, steps)
        row[f"{precision} forward"] = microseconds(run, False, steps)
        row[f"{precision} both"] = microseconds(run, True, steps)
    plain = layer(PLAIN, name, hidden, networks, PLAIN_STEPS)
    row["plain forward"] = microseconds(plain, False, PLAIN_STEPS)
    row["plain both"] = microseconds(plain, True, PLAIN_STEPS)
    for key, settings in (("engine MB", {"backend": "fused"}), ("plain MB", PLAIN)):
        row[key] = peak_megabytes(layer(settings, name, hidden, networks, MEMORY_STEPS))
    if networks == 1:
        row["recorded both"] = microseconds(recorded(name, hidden, steps), True, steps)
    if networks == 1 and name in ("gru", "lstm"):
        allowed = torch.backends.cudnn.allow_tf32
        for key, allow in (("cudnn tf32", True), ("cudnn ieee", False)):
            torch.backends.cudnn.allow_tf32 = allow
            run = cudnn(name, hidden, steps)
            row[f"{key} forward"] = microseconds(run, False, steps)
            row[f"{key} both"] = microseconds(run, True, steps)
        torch.backends.cudnn.allow_tf32 = allowed
    torch.cuda.empty_cache()
    return row


def stabilisation_seconds(steps: int = 10_000, states: int = 200, layers: int = 2, hidden: int = 256) -> float:
    """The time of all steps of a stabilisation, none saved by an early end."""
    cell, _ = make("gru", hidden, 1)
    projected = torch.randn(states, 3 * hidden, device="cuda").expand(steps, -1, -1)
    state = cell.State(torch.randn(states, hidden, device="cuda"))

    def run(backward: bool) -> None:
        for _ in range(layers):
            fused.scan(cell, projected, state, only_last=True)

    return microseconds(run, False, 1) / 1e6


def targets(rows: list[Row]) -> list[tuple[str, str, float, float]]:
    """Each target: what, of which run, the ratio or time measured, and the most it may be."""
    at = {(row["cell"], row["hidden"], row["networks"]): row for row in rows}
    found: list[tuple[str, str, float, float]] = []
    for name in ("gru", "lstm"):
        for hidden in (128, 256):
            if (row := at.get((name, hidden, 1))) is not None:
                for precision in ("tf32", "ieee"):
                    ratio = row[f"{precision} both"] / row[f"cudnn {precision} both"]
                    found.append((f"one {name}, H={hidden}: time / cuDNN", precision, ratio, 1.0))
    for name, factor in (("mgu", 100), ("nbrc", 100), ("brc", 1000)):
        for hidden in (128, 256):
            if (row := at.get((name, hidden, 1))) is not None:
                ratio = row["ieee both"] / row["plain both"]
                found.append((f"one {name}, H={hidden}: time / plain loop", "ieee", ratio, 1 / factor))
                if name == "brc":
                    ratio = row["recorded both"] / row["plain both"]
                    found.append((f"one {name}, H={hidden}: recorded / plain loop", "ieee", ratio, 1 / factor))
    for hidden, networks, most in ((128, 64, 3.0), (256, 32, 4.0)):
        for name in CELL_NAMES:
            one, many = at.get((name, hidden, 1)), at.get((name, hidden, networks))
            if one is not None and many is not None:
                for precision in ("tf32", "ieee"):
                    ratio = many[f"{precision} both"] / one[f"{precision} both"]
                    found.append((f"{networks} {name}, H={hidden}: time / one", precision, ratio, most))
    worst = max(row["engine MB"] / row["plain MB"] for row in rows)
    found.append(("peak memory / plain loop, the worst", "ieee", worst, 0.5))
    return found


def table(rows: list[Row]) -> str:
    """The measurements as text."""
    head = (
        f"{'cell':5}{'H':>5}{'N':>5} |{'ieee fwd':>9}{'fwd+bwd':>9} |{'tf32 fwd':>9}{'fwd+bwd':>9} |"
        f"{'plain fwd':>10}{'fwd+bwd':>9}{'ratio':>8} |{'cuDNN tf32':>11}{'ieee':>7}{'ratio':>7} |{'MB':>8}{'plain':>8}"
    )
    lines = [head, "-" * len(head)]
    for row in rows:
        line = (
            f"{row['cell']:5}{row['hidden']:5}{row['networks']:5} |{row['ieee forward']:9.2f}{row['ieee both']:9.2f} |"
            f"{row['tf32 forward']:9.2f}{row['tf32 both']:9.2f} |"
            f"{row['plain forward']:10.0f}{row['plain both']:9.0f}{row['plain both'] / row['ieee both']:8.0f} |"
        )
        if "cudnn tf32 both" in row:
            ratio = row["cudnn tf32 both"] / row["tf32 both"]
            line += f"{row['cudnn tf32 both']:11.2f}{row['cudnn ieee both']:7.2f}{ratio:7.2f} |"
        else:
            line += f"{'':25} |"
        lines.append(line + f"{row['engine MB']:8.1f}{row['plain MB']:8.1f}")
    return "\n".join(lines)


def plot(rows: list[Row], path: Path) -> None:
    """Time of a step for each network, over the number of networks that advance together."""
    from matplotlib import pyplot

    from multistable.experiments.figures import png

    figure, axes = pyplot.subplots(1, len(SIZES), figsize=(14, 4.5), sharey=True, squeeze=False, layout="constrained")
    for axis, hidden in zip(axes[0], SIZES, strict=True):
        for name, colour in zip(CELL_NAMES, COLOURS, strict=True):
            of_cell = [row for row in rows if row["cell"] == name and row["hidden"] == hidden]
            networks = [row["networks"] for row in of_cell]
            for key, style in (("ieee both", "-o"), ("tf32 both", "--"), ("plain both", ":")):
                values = [row[key] / row["networks"] for row in of_cell]
                axis.loglog(networks, values, style, color=colour, label=LABELS[key].format(name))
        axis.set(title=f"H = {hidden}", xlabel="networks together")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("µs per network, layer and step, forward + backward")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=9)
    png(figure, path)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("engine"), help="where to write, without a suffix")
    parser.add_argument("--quick", action="store_true", help="one small size, to see that everything runs")
    options = parser.parse_args()

    rows = []
    for name in CELL_NAMES:
        for hidden in SIZES[:1] if options.quick else SIZES:
            for networks in NETWORKS[:2] if options.quick else NETWORKS:
                rows.append(measure(name, hidden, networks, options.quick))
    found = targets(rows)
    seconds = stabilisation_seconds(100 if options.quick else 10_000)
    found.append(("10,000 steps, 200 states, 2 x 256, seconds", "ieee", seconds, 0.1))

    versions = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    versions += f", cuDNN {torch.backends.cudnn.version()}, Python {platform.python_version()}"
    lines = [
        f"{datetime.date.today().isoformat()}, {versions}",
        shlex.join(["python", *sys.argv]),
        f"\nmicroseconds per layer and time step, batch {BATCH}\n",
        table(rows),
        f"\nplain loop: {PLAIN_STEPS} steps measured; memory: {MEMORY_STEPS} steps, forward + backward\n",
    ]
    for what, precision, value, most in found:
        lines.append(
            f"{what:45} {precision:5}{value:9.4f}, at most{most:8.4f}: {'met' if value <= most else 'NOT MET'}"
        )
    text = "\n".join(lines)
    print(text)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.with_suffix(".txt").write_text(text + "\n")
    plot(rows, options.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
