"""A cell of one's own beside ours and the plain loop, on a GPU: H = 128, batch 32, T = 200, forward and backward.

Run: python benchmarks/own_cells.py [--output FILE]
"""

import argparse
import importlib
import json
import statistics
import sys
import time
from pathlib import Path

import torch

import multistable as ms
from multistable.cells import CELLS
from multistable.cells.elman import Elman
from multistable.scan import scan

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
OTHERS = importlib.import_module("cells_of_others").OTHERS

HIDDEN, BATCH, STEPS, REPEATS = 128, 32, 200, 7
PLAIN_STEPS = 20


def microseconds(cell: torch.nn.Module, steps: int, backend: str) -> tuple[float, float]:
    """The median of a time step, forward and backward, host included, and the seconds of the first call."""
    u = torch.randn(steps, BATCH, 32, device="cuda")
    weights = list(cell.parameters())
    times = []
    for _ in range(REPEATS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with ms.engine(backend=backend):
            states = scan(cell, u)  # type: ignore[arg-type]
        torch.autograd.grad(sum(field.sum() for field in states), weights, allow_unused=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times[1:]) / steps, times[0]


def main() -> None:
    """Print a row for each cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where to write the rows as JSON")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds of a time step")
    print(f"{'cell':22}{'fused':>9}{'plain':>9}{'ratio':>8}{'first call, s':>15}")
    rows = []
    for kind in (*CELLS.values(), Elman, *OTHERS):
        cell = kind(32, HIDDEN).cuda()
        row: dict[str, object] = {"cell": kind.__name__, "loop": "triton"}
        try:
            fused, first = microseconds(cell, STEPS, "fused")
        except RuntimeError as error:
            print(f"{kind.__name__:22}  {error}")
            rows.append(row | {"loop": str(error)})
            continue
        plain, _ = microseconds(cell, PLAIN_STEPS, "reference")
        print(f"{kind.__name__:22}{fused:9.2f}{plain:9.1f}{plain / fused:8.1f}{first:15.2f}", flush=True)
        rows.append(row | {"fused": fused, "plain": plain, "first": first})
        if options.output:
            options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
