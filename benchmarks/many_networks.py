"""How long a training step of many networks takes on a GPU: two layers of 256, T = 200, batch 32, in TF32.

Run: python benchmarks/many_networks.py [--members 30] [--cells gru,lstm,mgu] [--output FILE]
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import multistable as ms
from multistable.scan.graphs import Graphed

LAYERS, HIDDEN, STEPS, BATCH = 2, 256, 200, 32
REPEATS = 9


def make_step(cell: str, members: int) -> Callable[[Tensor], Tensor]:
    """A step of Adam that remembers the first input."""
    ensemble = ms.Ensemble([ms.RNN(cell, 1, HIDDEN, LAYERS) for _ in range(members)]).cuda()
    readout = nn.Parameter(0.1 * torch.randn(members, HIDDEN, 1, device="cuda"))
    optimiser = torch.optim.Adam([*ensemble.parameters(), readout], lr=1e-3, capturable=True, fused=True)

    def step(x: Tensor) -> Tensor:
        optimiser.zero_grad(set_to_none=False)
        with ms.engine(precision="tf32"):
            loss = (ensemble(x)[0][-1] @ readout - x[0]).square().mean(dim=(-2, -1))
        loss.sum().backward()
        optimiser.step()
        return loss.detach()

    return step


def milliseconds(work: Callable[[], object]) -> list[float]:
    """Of each of several calls, on the GPU."""
    times = []
    for _ in range(REPEATS + 5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return times[5:]


def in_kernels(work: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of one call inside the kernels that advance and that retreat."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    events = profile.key_averages()
    return {
        name: sum(e.self_device_time_total for e in events if e.key.startswith(name)) / 1e3
        for name in ("advance", "retreat")
    }


def main() -> None:
    """Print a row for each cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=30)
    parser.add_argument("--cells", default="gru,lstm,mgu")
    parser.add_argument("--output", type=Path, help="where to write the rows as JSON")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    size = f"{options.members} networks of {LAYERS} x {HIDDEN}, T = {STEPS}, batch {BATCH}"
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: one training step, {size}, TF32; milliseconds")
    print(f"{'cell':6}{'step':>9}{'quarters':>17}{'advance':>9}{'retreat':>9}  us a network, layer and time step")
    rows = []
    for cell in options.cells.split(","):
        x = torch.randn(STEPS, options.members, BATCH, 1, device="cuda")
        step = make_step(cell, options.members)
        graphed = Graphed(step)
        low, middle, high = statistics.quantiles(milliseconds(lambda graphed=graphed, x=x: graphed(x)), n=4)  # type: ignore[misc]
        kernels = in_kernels(lambda step=step, x=x: step(x))  # type: ignore[misc]
        each = middle * 1e3 / options.members / LAYERS / STEPS
        text = (
            f"{cell:6}{middle:9.2f}{low:9.2f}-{high:.2f}{kernels['advance']:9.2f}{kernels['retreat']:9.2f}{each:9.3f}"
        )
        print(text, flush=True)
        rows.append({"cell": cell, "members": options.members, "step": middle, "low": low, "high": high, **kernels})
        if options.output:
            options.output.write_text(json.dumps(rows, indent=1) + "\n")
        del step, graphed
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
