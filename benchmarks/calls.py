"""How long a call of a network takes a user, host included, beside ``torch.nn`` with the same weights.

A call is forward and backward, or forward alone, over 200 steps of 32 features (on a CPU 50 of 16), with what Python
needs for it. ``ours`` is what ``auto`` takes, of the two ways that are shown beside it on a GPU. The ratio is the
median of those of calls in the same turn. ``host`` is the time until the call returns, without waiting for the GPU.

Run: python benchmarks/calls.py [--forward] [--steps N] [--repeats N] [--output FILE] [--seconds N]
"""

import argparse
import datetime
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import multistable as ms

KINDS: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
SIZES_ON_A_GPU = [
    *((64, 32), (128, 1), (128, 32), (128, 256), (256, 1), (256, 32), (256, 256)),
    *((512, 1), (512, 32), (512, 256), (1024, 1), (1024, 32), (1024, 128)),
]
SIZES_ON_A_CPU = [(64, 32), (128, 32), (256, 32), (256, 200)]
HOST_CALLS = 20


def timed(call: Callable[[], object], clock: Callable[[], float], wait: Callable[[], object]) -> float:
    """Seconds of one call."""
    wait()
    start = clock()
    call()
    wait()
    return clock() - start


def both(module: nn.Module, x: Tensor) -> Callable[[], object]:
    """A call forward and backward, with a gradient of every weight."""
    weights = list(module.parameters())

    def call() -> object:
        output, _ = module(x)
        return torch.autograd.grad(output.sum(), weights)

    return call


def forward(module: nn.Module, x: Tensor) -> Callable[[], object]:
    """A call without a gradient."""

    def call() -> object:
        with torch.no_grad():
            return module(x)

    return call


def under(call: Callable[[], object], **settings: str) -> Callable[[], object]:
    """The same call under these settings of the engine."""

    def inside() -> object:
        with ms.engine(**settings):
            return call()

    return inside


def measure(calls: dict[str, Callable[[], object]], device: str, repeats: int) -> dict[str, Any]:
    """The medians of all calls, made in turns, and how far apart their quarters are; the same of the ratio."""
    on_gpu = device == "cuda"
    clock, wait = (time.perf_counter, torch.cuda.synchronize) if on_gpu else (time.process_time, lambda: None)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats + 2):
        turns = list(calls.items())
        for name, call in turns if repeat % 2 else reversed(turns):
            taken = timed(call, clock, wait)
            if repeat >= 2:
                seconds[name].append(taken)
    row: dict[str, Any] = {}
    for name, values in seconds.items():
        low, middle, high = statistics.quantiles(values, n=4)
        row[name], row[f"{name} spread"] = 1e3 * middle, 1e3 * (high - low)
    ratios = [theirs / ours for theirs, ours in zip(seconds["torch.nn"], seconds["ours"], strict=True)]
    low, row["ratio"], high = statistics.quantiles(ratios, n=4)
    row["ratio spread"] = high - low
    if on_gpu:
        for name in calls:
            row[f"{name} host"] = host_milliseconds(calls[name])
    return row


def host_milliseconds(call: Callable[[], object]) -> float:
    """The time that a call takes the host while the GPU has not yet begun it."""
    times = []
    for _ in range(HOST_CALLS):
        torch.cuda.synchronize()
        torch.cuda._sleep(20_000_000)
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return 1e3 * statistics.median(times)


def row_of(
    kind: str, hidden: int, batch: int, precision: str, device: str, options: argparse.Namespace
) -> dict[str, Any]:
    """One line of the table."""
    steps, features = (200, 32) if device == "cuda" else (50, 16)
    steps = options.steps or steps
    theirs = KINDS[kind](features, hidden).to(device)
    ours = ms.from_torch(theirs)
    x = torch.randn(steps, batch, features, device=device)
    make = forward if options.forward else both
    call = make(ours, x)
    calls = {"torch.nn": make(theirs, x), "ours": under(call, precision=precision)}
    if device == "cuda":
        calls |= {name: under(call, backend=name, precision=precision) for name in ("fused", "torch")}
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    row = {"cell": kind, "hidden": hidden, "batch": batch, "precision": precision, "steps": steps}
    try:
        return row | measure(calls, device, options.repeats)
    finally:
        torch.backends.cudnn.allow_tf32 = True


def line(row: dict[str, Any]) -> str:
    """A line of the table as text."""
    text = f"{row['cell']:5}{row['hidden']:5}{row['batch']:5}  {row['precision']:6}"
    for name in ("torch.nn", "ours", "fused", "torch"):
        if name in row:
            text += f"{row[name]:10.2f} ±{row[f'{name} spread']:5.2f}"
    text += f"{row['ratio']:9.2f} ±{row['ratio spread']:5.2f}"
    return text + "".join(f"{row[f'{name} host']:8.2f}" for name in ("torch.nn", "ours") if f"{name} host" in row)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where to write the rows as JSON")
    parser.add_argument("--forward", action="store_true", help="the forward pass alone, without a gradient")
    parser.add_argument("--steps", type=int, help="time steps of a sequence (default: 200, on a CPU 50)")
    parser.add_argument("--repeats", type=int, default=7, help="calls of each way (default: 7)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many seconds")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    if not on_gpu:
        torch.set_num_threads(1)
    end = time.monotonic() + options.seconds
    name = torch.cuda.get_device_name() if on_gpu else f"{platform.machine()}, one thread, processor time"
    print(f"{datetime.date.today().isoformat()}, {name}, torch {torch.__version__}; milliseconds, ± between quarters")
    ways = ("torch.nn", "ours", "fused", "torch") if on_gpu else ("torch.nn", "ours")
    head = f"{'cell':5}{'H':>5}{'B':>5}  {'':6}" + "".join(f"{way:>10}{'':7}" for way in ways) + f"{'ratio':>9}{'':7}"
    print(head + (f"{'host':>8}{'ours':>8}" if on_gpu else ""))
    rows = []
    for hidden, batch in SIZES_ON_A_GPU if on_gpu else SIZES_ON_A_CPU:
        for kind in KINDS:
            for precision in ("tf32", "ieee") if on_gpu else ("ieee",):
                if time.monotonic() > end:
                    break
                rows.append(row_of(kind, hidden, batch, precision, device, options))
                print(line(rows[-1]), flush=True)
                if options.output:
                    options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
