"""How long sampling, warmup and measure take, and how long the plain approach takes, one sequence at a time.

Run: make bench, or python benchmarks/dynamics.py [--threads N]
"""

import argparse
import contextlib
import copy
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

import multistable as ms

TIME, SEQUENCES, BATCH, HIDDEN = 50, 1000, 200, 128
# The plain approach is slow; it is timed on a part of its work and the time scaled to the whole.
PLAIN_WARMUP_STEPS, PLAIN_BATCHES = 3, 1
# Of the paper's 100.
PAPER_STEPS = 5


def states_one_by_one(rnn: nn.GRU, sequences: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Algorithm 2 as it is written: one pass for each sequence."""
    states = []
    for index in torch.randperm(sequences.shape[1], generator=generator)[:n].tolist():
        t = int(torch.randint(1, len(sequences) + 1, (), generator=generator))
        states.append(rnn(sequences[:t, index : index + 1])[1][0, 0])
    return torch.stack(states)


def plain_warmup(rnn: nn.GRU, sequences: Tensor, steps: int, of: int, generator: torch.Generator) -> None:
    """``steps`` steps of Algorithm 3, spread over a warmup ``of`` so many, with the sampling one by one."""
    optimiser = torch.optim.Adam(rnn.parameters(), lr=1e-2)
    for s in torch.linspace(1, of, steps).long().tolist():
        states = states_one_by_one(rnn, sequences, BATCH, generator)
        period = max(1, min(200, 1 + 10 * s) // 2)  # the mean of the period's law
        u = torch.randn(1, 1, 1, generator=generator).expand(period, BATCH, 1)
        loss = (ms.vaa_star(rnn(u, states.unsqueeze(0))[1][0]) - 0.95) ** 2
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


@torch.no_grad()
def plain_measure(rnn: nn.GRU, sequences: Tensor, batches: int, generator: torch.Generator) -> float:
    """Algorithm 1 batch by batch, every step of it."""
    total = 0.0
    for _ in range(batches):
        states = states_one_by_one(rnn, sequences, 32, generator).unsqueeze(0)
        u = torch.randn(1, 1, 1, generator=generator).expand(500, 32, 1)
        for _ in range(20):
            _, states = rnn(u, states)
        total += ms.vaa(states[0]).item() / batches
    return total


def seconds(work: Callable[[], object]) -> float:
    """The wall time of ``work``."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def warmups() -> None:
    """Print the processor time of default warmups beside that of the paper's steps."""
    print(f"\n{'seconds of processor time':44}{'default':>12}{'paper, steps':>14}{'ratio':>8}")
    networks = (("torch.nn.GRU(1, 128)", nn.GRU(1, 128), 50), ("torch.nn.LSTM(128, 256, 2)", nn.LSTM(128, 256, 2), 200))
    for name, rnn, time_steps in networks:
        sequences = torch.randn(time_steps, SEQUENCES, rnn.input_size, generator=torch.Generator().manual_seed(1))
        first = copy.deepcopy(rnn.state_dict())
        found: list[ms.WarmupHistory] = []
        ours = processor_seconds(lambda rnn=rnn, x=sequences, found=found: found.append(ms.warmup(rnn, x)))  # type: ignore[misc]
        rnn.load_state_dict(first)

        theirs = paper_steps_seconds(rnn, sequences)
        print(
            f"{f'{name}, T = {time_steps}':44}{ours:10.1f} s{theirs:12.0f} s{theirs / ours:8.1f}\n  {found[0]}",
            flush=True,
        )


class EnoughError(Exception):
    """Enough steps were timed."""


def paper_steps_seconds(rnn: nn.Module, sequences: Tensor) -> float:
    """The processor time of the 100 steps of Algorithm 3, without the measure after them, from a few of them."""
    times: list[float] = []

    def timed(step: ms.WarmupStep) -> None:
        times.append(time.process_time())
        if step.step > PAPER_STEPS:
            raise EnoughError

    # With this increment a period has the mean that it has in a whole warmup.
    with contextlib.suppress(EnoughError):
        ms.warmup(rnn, sequences, algorithm="paper", increment=200, on_step=timed)
    return (times[-1] - times[0]) * 100 / PAPER_STEPS


def beside_a_load() -> None:
    """Print how much more processor time two threads take than one, while other processes want all processors."""
    sequences, rnn = torch.randn(TIME, SEQUENCES, 1), nn.GRU(1, HIDDEN)
    ms.measure(rnn, sequences, stabilisation=1)  # the first call loads things
    loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    threads, taken = torch.get_num_threads(), []
    try:
        for count in (1, max(2, threads)):
            torch.set_num_threads(count)
            taken.append(processor_seconds(lambda: ms.measure(rnn, sequences)))
    finally:
        torch.set_num_threads(threads)
        for load in loads:
            load.kill()
            load.wait()
    one, several = taken
    met = "met" if several <= 1.3 * one else "NOT MET"
    print(f"\na measure beside a load: {several / one:.2f} times the processor time of one thread, at most 1.3: {met}")


def processor_seconds(work: Callable[[], object]) -> float:
    """The processor time of ``work``, of all threads together."""
    start = time.process_time()
    work()
    return time.process_time() - start


def on_a_gpu() -> None:
    """Print the times at the paper's scale: two layers of 256, T = 200."""
    print(f"\n{torch.cuda.get_device_name()}: GRU(2, 256), 2 layers, T = 200, 200 states; second call of each")
    rnn, sequences = nn.GRU(2, 256, 2).cuda(), torch.randn(200, 1000, 2, device="cuda")

    def measure() -> ms.Measure:
        return ms.measure(rnn, sequences, batches=1, batch_size=200)

    def row(name: str, work: Callable[[], object], bound: float) -> None:
        work()
        torch.cuda.synchronize()

        def whole() -> None:
            work()
            torch.cuda.synchronize()

        took = seconds(whole)
        print(f"{name:44}{took:10.3f} s   at most {bound} s: {'met' if took <= bound else 'NOT MET'}", flush=True)

    row("measure, M = 10,000, before", measure, 0.1)
    print(f"  {measure()}")
    row("warmup, 100 steps, n = 200, verified", lambda: ms.warmup(rnn, sequences, algorithm="paper"), 5)
    row("measure, M = 10,000, after", measure, 0.1)
    print(f"  {measure()}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--gpu-only", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore", ms.WarmupWarning)
    torch.manual_seed(0)
    if arguments.gpu_only:
        on_a_gpu()
        return
    sequences = torch.randn(TIME, SEQUENCES, 1)
    classic, plain = nn.GRU(1, HIDDEN), nn.GRU(1, HIDDEN)
    generator = torch.Generator().manual_seed(0)
    warmed = nn.GRU(1, HIDDEN)
    ms.reachable_states(warmed, sequences[:, :2])  # the first call loads things

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}")
    print(f"GRU(1, {HIDDEN}), T = {TIME}; the plain approach is timed on a part of its work and scaled\n")
    print(f"{'':44}{'multistable':>12}{'one by one':>12}{'ratio':>8}")

    def row(name: str, ours: float, theirs: float) -> None:
        print(f"{name:44}{ours:10.2f} s{theirs:10.2f} s{theirs / ours:8.1f}")

    with torch.no_grad():
        batch = sequences[:, :BATCH]
        ours = seconds(lambda: ms.reachable_states(classic, batch))
        theirs = seconds(lambda: states_one_by_one(classic, batch, BATCH, generator))
    row(f"states of {BATCH} sequences", ours, theirs)
    ours = seconds(lambda: ms.warmup(warmed, sequences, algorithm="paper"))
    theirs = (
        seconds(lambda: plain_warmup(plain, sequences, PLAIN_WARMUP_STEPS, 100, generator)) * 100 / PLAIN_WARMUP_STEPS
    )
    row(f"warmup, 100 steps, n = {BATCH}, verified", ours, theirs)
    for name, rnn in (("before", classic), ("after", warmed)):
        ours = seconds(lambda rnn=rnn: ms.measure(rnn, sequences))  # type: ignore[misc]
        theirs = seconds(lambda rnn=rnn: plain_measure(rnn, sequences, PLAIN_BATCHES, generator)) * 10 / PLAIN_BATCHES  # type: ignore[misc]
        row(f"measure, M = 10,000, 10 x 32 states, {name}", ours, theirs)
    warmups()
    beside_a_load()
    if torch.cuda.is_available():
        on_a_gpu()


if __name__ == "__main__":
    main()
