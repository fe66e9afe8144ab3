"""How long sampling, warmup and measure take, and how long the plain approach takes, one sequence at a time.

Run: make bench, or python benchmarks/dynamics.py [--threads N]
"""

import argparse
import platform
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

import multistable as ms

TIME, SEQUENCES, BATCH, HIDDEN = 50, 1000, 200, 128
# The plain approach is slow; it is timed on a part of its work and the time scaled to the whole.
PLAIN_WARMUP_STEPS, PLAIN_BATCHES = 3, 1


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
    if torch.cuda.is_available():
        on_a_gpu()


if __name__ == "__main__":
    main()
