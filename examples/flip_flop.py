"""The 3-bit flip-flop of Sussillo and Barak: train a network that holds three bits, and see what it remembers.

    python examples/flip_flop.py
    python examples/flip_flop.py --cell LSTM --warmup

Each of three channels gives a pulse of +1 or -1 now and then; the network tells the sign of the last pulse of each.
When no pulse comes, a network that has learnt it has eight attractors, one for each combination of the bits, and
saddles between them. Prints what is found and draws ``flip_flop_attractors.png`` and ``flip_flop_fixed_points.png``.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

import multistable as ms
from multistable.experiments.figures import png
from multistable.tasks import FlipFlop

BITS = 3


def train(rnn: nn.RNNBase, steps: int, generator: torch.Generator, batch: int = 128, time: int = 40) -> nn.Linear:
    """Train a network and its readout, which is returned."""
    task = FlipFlop(time, bits=BITS)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        readout = nn.Linear(rnn.hidden_size, BITS)
    optimiser = torch.optim.Adam([*rnn.parameters(), *readout.parameters()], lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        inputs, targets = task.draw(batch, generator)
        output, _ = rnn(inputs)
        loss = task.loss(readout(output), targets)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return readout


def held_bits(found: ms.Attractors, targets: Tensor) -> Tensor:
    """The bits ``(states, 3)`` that the states should hold, from the targets of the task ``(n, T * 3)``."""
    return targets.unflatten(-1, (-1, BITS))[found.origins, found.times - 1]


def agreement(found: ms.Attractors, targets: Tensor) -> float:
    """The share of states whose attractor is the one of their bits: of each attractor the most common bits count."""
    bits = (held_bits(found, targets) > 0).long() @ torch.tensor([4, 2, 1])
    most_common = [int(bits[found.labels == i].mode().values) for i in range(len(found))]
    expected = torch.tensor([*most_common, -1])[found.labels]
    return float((expected == bits).double().mean()) if len({*most_common}) == len(found) else 0.0


def main() -> None:
    """Train, look, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=("GRU", "LSTM", "RNN"), default="GRU")
    parser.add_argument("--hidden", type=int, default=24)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warmup", action="store_true", help="warm up before training")
    parser.add_argument("--output", type=Path, default=Path(), help="the folder of the pictures")
    asked = parser.parse_args()
    torch.set_num_threads(1)  # the network is small: more threads would wait for each other
    torch.manual_seed(asked.seed)
    generator = torch.Generator().manual_seed(asked.seed)
    rnn = getattr(nn, asked.cell)(BITS, asked.hidden)
    inputs, targets = FlipFlop(60, bits=BITS).draw(400, generator)

    def tell(when: str) -> ms.Attractors:
        found = ms.attractors(rnn, inputs, inputs="zero", generator=torch.Generator().manual_seed(1))
        held = found.bits(held_bits(found, targets))
        print(f"{when}: {found}\n  it holds {held:.2f} of 3 bits when nothing comes")
        return found

    tell("before training")
    if asked.warmup:
        ms.warmup(rnn, inputs, inputs="zero", generator=generator)
        tell("warmed up")
    train(rnn, asked.steps, generator)
    found = tell("trained")
    print(f"  labels agree with the bits in {agreement(found, targets):.1%} of the states")
    sizes = [0.25, 0.5, 1.0, 2.0]
    shares = ", ".join(f"{size}: {share:.0%}" for size, share in zip(sizes, found.returning(sizes), strict=True))
    print(f"  states that come back from a displacement of length {shares}")
    points = ms.fixed_points(rnn, "zero", found.starts)
    kinds = {kind: points.kinds.count(kind) for kind in ("stable", "saddle", "repellor")}
    print(f"  fixed points: {kinds}; unstable directions {points.unstable.tolist()}; slow: {len(points.slow_points)}")
    for name, drawn in (("attractors", found.plot()), ("fixed_points", points.plot(found.starts))):
        png(drawn, asked.output / f"flip_flop_{name}.png")


if __name__ == "__main__":
    main()
