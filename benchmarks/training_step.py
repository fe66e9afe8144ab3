"""How much of a training step of an ensemble on a GPU is the recurrence, launched step by step and as a graph.

Run: python benchmarks/training_step.py [--members N]
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn

import multistable as ms
from multistable.scan.graphs import Graphed

KERNELS = ("advance", "retreat")


def make_step(cell: str, members: int, hidden: int) -> Callable[[Tensor], Tensor]:
    """A step of Adam on the copy task."""
    ensemble = ms.Ensemble([ms.RNN(cell, 1, hidden) for _ in range(members)]).cuda()
    readout = nn.Parameter(0.1 * torch.randn(members, hidden, 1, device="cuda"))
    optimiser = torch.optim.Adam([*ensemble.parameters(), readout], lr=1e-3, capturable=True)

    def step(x: Tensor) -> Tensor:
        optimiser.zero_grad(set_to_none=False)
        loss = (ensemble(x)[0][-1] @ readout - x[0]).square().mean(dim=(-2, -1))
        loss.sum().backward()
        optimiser.step()
        return loss.detach()

    return step


def milliseconds(work: Callable[[], object], repeat: int = 30) -> float:
    """Wall time of one call on the GPU, the mean of many."""
    for _ in range(6):
        work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeat):
        work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeat


def in_kernels(work: Callable[[], object]) -> float:
    """Milliseconds of one call inside the recurrence kernels."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    events = [e for e in profile.key_averages() if e.key.startswith(KERNELS)]
    return sum(e.self_device_time_total for e in events) / 1e3


def main() -> None:
    """Print a row for each cell, and the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--time", type=int, default=50)
    arguments = parser.parse_args()
    size = f"{arguments.members} networks of {arguments.hidden}, T = {arguments.time}, batch 32"
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: one training step, {size}; milliseconds")
    print(f"{'cell':8}{'kernels':>10}{'eager':>10}{'outside':>10}{'recorded':>10}{'outside':>10}")
    for cell in ms.CELLS:
        x = torch.randn(arguments.time, arguments.members, 32, 1, device="cuda")
        step = make_step(cell, arguments.members, arguments.hidden)
        eager = milliseconds(lambda step=step, x=x: step(x))  # type: ignore[misc]
        kernels = in_kernels(lambda step=step, x=x: step(x))  # type: ignore[misc]
        graphed = Graphed(step)
        recorded = milliseconds(lambda graphed=graphed, x=x: graphed(x))  # type: ignore[misc]
        shares = [f"{ms_:10.3f}{1 - kernels / ms_:10.0%}" for ms_ in (eager, recorded)]
        print(f"{cell:8}{kernels:10.3f}{''.join(shares)}", flush=True)


if __name__ == "__main__":
    main()
