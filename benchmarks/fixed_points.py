"""How long it takes to find fixed points with their Jacobians, and how long the plain approach takes.

    python benchmarks/fixed_points.py --output docs/results/fixed_points
    python benchmarks/fixed_points.py --device cuda

A ``torch.nn.GRU(3, 256)`` with weights 1.5 times as large as PyTorch's begins from 1,024 reachable states. The plain
approach takes one start at a time: Newton with a step that is halved until it helps, in float64, each Jacobian row by
row with autograd, and then the eigenvalues of each point; it is timed on some of the starts, and the time scaled to
all. Processor time of one thread on a CPU, wall time on a GPU.
"""

import argparse
import copy
import datetime
import platform
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import multistable as ms

FEATURES, HIDDEN, STARTS, GAIN = 3, 256, 1024, 1.5
HALVINGS, ITERATIONS, REST = 8, 50, 1e-10


def network(device: torch.device) -> tuple[nn.GRU, Tensor]:
    """The network, and where to begin."""
    torch.manual_seed(0)
    rnn = nn.GRU(FEATURES, HIDDEN)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.mul_(GAIN)
    states = ms.reachable_states(rnn, torch.randn(50, STARTS, FEATURES)).detach()
    return rnn.to(device), states.to(device)


def plain(rnn: nn.GRU, u: Tensor, start: Tensor) -> tuple[Tensor, Tensor, bool]:
    """One fixed point, its eigenvalues, and whether the search came to it: ``start (d,)``, ``u (features,)``."""

    def residual(x: Tensor) -> Tensor:
        _, after = rnn(u.expand(1, 1, -1), x.reshape(1, 1, -1))
        return after.reshape(-1) - x

    def jacobian(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        rows = [torch.autograd.grad(unit, x, retain_graph=True)[0] for unit in residual(x)]
        return torch.stack(rows)

    x, r = start, residual(start).detach()
    for _ in range(ITERATIONS):
        if r.norm() <= REST:
            break
        step = torch.linalg.solve(jacobian(x), r)
        for halving in range(HALVINGS):
            trial = x - step / 2**halving
            after = residual(trial).detach()
            if after.norm() < r.norm():
                x, r = trial, after
                break
        else:
            break
    eigenvalues = torch.linalg.eigvals((jacobian(x) + torch.eye(len(x), device=x.device, dtype=x.dtype)).cpu())
    return x, eigenvalues, bool(r.norm() <= REST)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Processor time on a CPU, wall time on a GPU."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    began = clock()
    work()
    wait()
    return clock() - began


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--plain", type=int, default=8, help="starts that the plain approach is timed on")
    parser.add_argument("--output", type=Path, help="where to write, without a suffix")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rnn, states = network(asked.device)
    ms.fixed_points(rnn, "zero", states[:2])  # the first call loads things
    found: list[ms.FixedPoints] = []
    ours = seconds(lambda: found.append(ms.fixed_points(rnn, "zero", states)), asked.device)
    jacobians = seconds(lambda: found[0].jacobians(), asked.device)

    precise, u = copy.deepcopy(rnn).double(), torch.zeros(FEATURES, dtype=torch.float64, device=asked.device)
    some = states[:: STARTS // asked.plain][: asked.plain].double()
    ends: list[tuple[Tensor, Tensor, bool]] = []
    with torch.backends.cudnn.flags(enabled=False):  # its recurrences have gradients in training mode alone
        plain(precise, u, some[0])
        took = seconds(lambda: ends.extend(plain(precise, u, start) for start in some), asked.device)
    theirs = took * STARTS / len(some)
    reached = sum(there for _, _, there in ends)
    known = [float((found[0].points.to(x) - x).norm(dim=-1).min()) < 1e-6 for x, _, there in ends if there]
    machine = torch.cuda.get_device_name() if asked.device.type == "cuda" else f"{platform.machine()}, 1 thread"
    lines = [
        f"$ python {shlex.join(sys.argv)}",
        f"{machine}, torch {torch.__version__}, {datetime.date.today()}",
        "",
        f"fixed points of a GRU({FEATURES}, {HIDDEN}) from {STARTS:,} states, with Jacobians and eigenvalues",
        f"ms.fixed_points: {ours:.1f} s, and {jacobians:.2f} s for the Jacobians of its {len(found[0])} points; "
        f"{int((found[0].labels >= 0).sum())} of {STARTS} starts led to one",
        f"one start at a time: {theirs:.1f} s, scaled from {len(some)} starts, of which {reached} led to a fixed point",
        f"of these {reached} points {sum(known)} are among those of ms.fixed_points",
        f"ratio: {theirs / (ours + jacobians):.1f}",
    ]
    print("\n".join(lines))
    if asked.output:
        Path(f"{asked.output}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
