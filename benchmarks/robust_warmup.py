"""What a warmup to robust attractors makes, how many of them networks hold, and what it costs in learning.

    python benchmarks/robust_warmup.py hold     # attractors by cell and size; BRC and NBRC as they are drawn
    python benchmarks/robust_warmup.py learn    # copy first input, with noise on inputs and on states at test time

Each row of ``hold`` is a few networks of one layer, warmed up as one ensemble on sequences of copy first input, and the
means over them. Noise of 0.2 is added to all numbers of settled states, and states go on for 1,000 steps, under a
constant input and under a changing one. ``returned`` is the share of states that come back, ``attractors`` to how many,
of 500 that sequences lead to. ``corners`` are 500 states whose numbers are 0.9 or -0.9, at random, in their place.
``lifetime`` is how many steps a small difference lasts, the median over the networks. ``robuster`` is for noise of 0.5,
and measured with as much.

Each row of ``learn`` is an ensemble of networks trained together: the mean squared error on new sequences, the mean and
in brackets the standard deviation over the networks. Noise on inputs leaves out the first one, which is to be told.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import multistable as ms

NOISE, MORE_NOISE, STATES, SEQUENCES, BATCH = 0.2, 0.5, 500, 1000, 32
ON_INPUTS, ON_STATES = (0.0, 0.5, 1.0), (0.02, 0.05, 0.1)


def generators(seeds: int, first: int) -> list[torch.Generator]:
    """One for each network."""
    return [torch.Generator().manual_seed(first + seed) for seed in range(seeds)]


def none(rnn: ms.Ensemble, sequences: Tensor, draws: Any) -> None:
    """No warmup."""


def default(rnn: ms.Ensemble, sequences: Tensor, draws: Any) -> None:
    """The default warmup."""
    ms.warmup(rnn, sequences, generator=draws)


def robust(rnn: ms.Ensemble, sequences: Tensor, draws: Any, noise: float = NOISE) -> None:
    """The warmup to robust attractors."""
    ms.warmup(rnn, sequences, robust=noise, generator=draws)


def robuster(rnn: ms.Ensemble, sequences: Tensor, draws: Any) -> None:
    """The same, for more noise."""
    robust(rnn, sequences, draws, MORE_NOISE)


WARMUPS: dict[str, Callable[..., None]] = {"none": none, "default": default, "robust": robust, "robuster": robuster}


@dataclass(frozen=True)
class Made:
    """Networks of several seeds, after their warmup.

    Attributes:
        rnn: the networks.
        seconds: the processor time of their warmup.
    """

    rnn: ms.Ensemble
    seconds: float


def made(cell: str, hidden: int, how: str, seeds: int, sequences: Tensor) -> Made:
    """Networks of one layer."""
    rnn = ms.Ensemble([ms.RNN(cell, 1, hidden, generator=draw) for draw in generators(seeds, 0)])
    began = time.process_time()
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        WARMUPS[how](rnn, sequences, generators(seeds, 100))
    return Made(rnn, time.process_time() - began)


def mean(values: list[float]) -> float:
    """Over the networks."""
    return sum(values) / len(values)


def hold(options: argparse.Namespace) -> None:
    """Print the attractors of networks of several cells and sizes."""
    sequences = torch.randn(50, SEQUENCES, 1, generator=torch.Generator().manual_seed(1))
    head = ("cell", "units", "warmup", "returned", "changing", "attractors", "changing", "corners", "lifetime", "s")
    print("".join(f"{name:>11}" for name in head))
    kinds = [("gru", "robust"), ("lstm", "robust"), ("brc", "none"), ("nbrc", "none")]
    rows = [(cell, hidden, how) for hidden in options.hidden for cell, how in kinds]
    rows += [(cell, options.hidden[0], how) for how in ("default", "robuster") for cell in ("gru", "lstm")]
    rows += [(cell, options.hidden[0], "robust") for cell in ("mgu", "nbrc")]
    for cell, hidden, how in (row for row in rows if row[0] in options.cells):
        nets = made(cell, hidden, how, options.seeds, sequences)
        noise = MORE_NOISE if how == "robuster" else NOISE
        size: dict[str, Any] = {"batches": 2, "noise": noise, "stabilisation": 1000, "batch_size": STATES}
        found = ms.robustness(nets.rnn, sequences, **size, generator=generators(options.seeds, 200))
        width = ms.reachable_states(nets.rnn, sequences[:, :1]).shape[-1]
        bits = torch.randn(STATES, hidden, generator=torch.Generator().manual_seed(2)).sign()
        held = ms.robustness(
            nets.rnn,
            states=0.9 * bits.repeat(1, width // hidden),
            **size,
            generator=generators(options.seeds, 300),
        )
        lasting = ms.lyapunov(
            nets.rnn, sequences, batches=4, stabilisation=1000, generator=generators(options.seeds, 400)
        )
        lifetime = sorted(lasting.lifetime)[options.seeds // 2]
        shares = (found.returned, found.returned_changing, found.vaa, found.vaa_changing, held.vaa)
        back, changing, places, places_changing, corners = map(mean, shares)
        counts = "".join(f"{STATES * value:11.1f}" for value in (places, places_changing, corners))
        start = f"{cell:>11}{hidden:11}{how:>11}{back:11.2f}{changing:11.2f}{counts}"
        print(f"{start}{lifetime:11.3g}{nets.seconds / options.seeds:11.0f}", flush=True)


def noisy_states(rnn: ms.Ensemble, u: Tensor, noise: float, draw: torch.Generator) -> Tensor:
    """The output after the last step, with noise on every number of the state after each step."""
    output, state = rnn(u[:1])
    for step in u[1:].split(1):
        output, state = rnn(step, with_noise(state, noise, draw))
    return output[-1]


def with_noise(state: Any, noise: float, draw: torch.Generator) -> Any:
    """A state with noise on each of its numbers."""
    if isinstance(state, Tensor):
        return state + noise * torch.randn(state.shape, generator=draw)
    parts = [with_noise(part, noise, draw) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)


def learn(options: argparse.Namespace) -> None:
    """Print what networks have learned."""
    T, seeds, hidden = options.T, options.seeds, options.hidden[0]
    sequences = torch.randn(T, SEQUENCES, 1, generator=torch.Generator().manual_seed(1))
    names = [f"u {noise:g}" for noise in ON_INPUTS] + [f"x {noise:g}" for noise in ON_STATES]
    print(f"{'cell':>6}{'warmup':>10}" + "".join(f"{name:>18}" for name in names) + "   VAA returned changing")
    for cell in ("gru", "lstm"):
        for how in ("default", "robust"):
            rnn = made(cell, hidden, how, seeds, sequences).rnn
            draw = torch.Generator().manual_seed(3)
            weight = nn.Parameter((2 * torch.rand(seeds, hidden, 1, generator=draw) - 1) / hidden**0.5)
            bias = nn.Parameter(torch.zeros(seeds, 1, 1))
            adam = torch.optim.Adam([*rnn.parameters(), weight, bias], lr=1e-3)
            for _ in range(options.steps):
                u = torch.randn(T, BATCH, 1, generator=draw)
                loss = (rnn(u)[0][-1] @ weight + bias - u[0]).square().mean(dim=(-2, -1)).sum()
                adam.zero_grad()
                loss.backward()
                adam.step()
            print(f"{cell:>6}{how:>10}{errors(rnn, weight, bias, T)}{kept(rnn, sequences, seeds)}", flush=True)


@torch.no_grad()
def errors(rnn: ms.Ensemble, weight: Tensor, bias: Tensor, T: int) -> str:
    """The errors on new sequences, without and with noise."""
    draw = torch.Generator().manual_seed(4)
    u = torch.randn(T, SEQUENCES, 1, generator=draw)
    ends = []
    for noise in ON_INPUTS:
        moved = u + noise * torch.randn(u.shape, generator=draw)
        moved[0] = u[0]
        ends.append(rnn(moved)[0][-1])
    ends += [noisy_states(rnn, u, noise, draw) for noise in ON_STATES]
    found = [(end @ weight + bias - u[0]).square().mean(dim=(-2, -1)) for end in ends]
    return "".join(f"{float(each.mean()):10.4f} ({float(each.std()):.3f})" for each in found)


def kept(rnn: ms.Ensemble, sequences: Tensor, seeds: int) -> str:
    """VAA, and the shares of states that come back, after training."""
    draws: dict[str, Any] = {"stabilisation": 2000, "generator": generators(seeds, 500)}
    vaa, found = mean(ms.measure(rnn, sequences, **draws).vaa), ms.robustness(rnn, sequences, noise=NOISE, **draws)
    return f"{vaa:6.2f}{mean(found.returned):9.2f}{mean(found.returned_changing):9.2f}"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("hold", "learn"))
    parser.add_argument(
        "--hidden",
        type=int,
        nargs="+",
        help="units: 32, 16, 64 and 128 for hold, where other rows have the first, 32 for learn",
    )
    parser.add_argument("--cells", nargs="+", default=["gru", "lstm", "brc", "nbrc", "mgu"], help="rows of hold")
    parser.add_argument("--seeds", type=int, help="networks of a row: 2 for hold, 5 for learn")
    parser.add_argument("--steps", type=int, default=1000, help="of training")
    parser.add_argument("--T", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "hold":
        options.hidden, options.seeds = options.hidden or [32, 16, 64, 128], options.seeds or 2
        hold(options)
    else:
        options.hidden, options.seeds = options.hidden or [32], options.seeds or 5
        learn(options)


if __name__ == "__main__":
    main()
