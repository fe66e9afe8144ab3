"""Ways to keep the attractors of a warmup while an LSTM of 128 units learns copy first input.

The same networks, warmed up once, are trained on the same batches (Adam, 1e-3, 32 sequences) in each way: as they are,
with a learning rate that rises over the first steps, with ms.Keep, and with other settings of it: looks at 300 steps
(``long``), at every sixth call (``rare``), and a gradient that goes on between looks (``held``). All of a way are one
ensemble. What is done is written to a file, and not done again. Without a memory the loss is 1. The weights at each
look are stored beside it, in one file for each way, for benchmarks/why_lost.py.

Run: python benchmarks/ways_to_keep.py --output kept.json [--algorithm paper] [--T 300] [--seeds 12] [--ways plain keep]
"""

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import multistable as ms
from multistable.tasks import CopyFirstInput
from multistable.training.model import Readout

HIDDEN, SEQUENCES, BATCH, RATE, LAST = 128, 4000, 32, 1e-3, 50
LOOKS = (0, 50, 75, 100, 150, 200, 300, 400)
"""The steps after which VAA and the largest Lyapunov exponent are measured, and weights are stored."""
MEASURE: dict[str, Any] = {"batches": 2, "batch_size": 16}
EXPONENT: dict[str, Any] = {"batches": 2, "batch_size": 8, "stabilisation": 500, "steps": 200}


class Held(ms.Keep):
    """The term, but in the calls between two looks its gradient is that of the look before, in place of none."""

    held: Sequence[tuple[Tensor, Tensor]] = ()

    def __call__(self) -> Tensor:
        term = super().__call__()
        if self.calls % self.every:
            return term + sum((p * gradient).sum() for p, gradient in self.held)
        parameters = list(self._rnn.parameters())
        on = term.requires_grad
        found = torch.autograd.grad(term, parameters, materialize_grads=True, retain_graph=True) if on else ()
        self.held = list(zip(parameters, found, strict=False))
        return term


class Way(NamedTuple):
    """How networks are trained: over how many steps the learning rate rises, and with which settings of ms.Keep."""

    ramp: int = 0
    keep: dict[str, Any] | None = None
    kind: type[ms.Keep] = ms.Keep


LONG = {"stabilisation": 300}
WAYS = {
    "plain": Way(),
    "ramp": Way(ramp=50),
    "keep": Way(keep={}),
    "long": Way(keep=LONG),
    "long-rare": Way(keep=LONG | {"every": 6}),
    "held": Way(keep={}, kind=Held),
    "held-long-rare": Way(keep=LONG | {"every": 6}, kind=Held),
}


def generator(seed: int) -> torch.Generator:
    """Random numbers on the CPU."""
    return torch.Generator().manual_seed(seed)


def warmed_up(asked: argparse.Namespace, inputs: Tensor) -> tuple[ms.Ensemble, Any]:
    """The networks after their warmup, and its outcome; from a file if they are there."""
    members = [ms.RNN("lstm", 1, HIDDEN, generator=generator(seed), recurrent_bias=True) for seed in range(asked.seeds)]
    networks, path = ms.Ensemble(members), asked.output.with_suffix(".pt")
    if path.exists():
        stored = torch.load(path)
        networks.load_state_dict(stored["weights"])
        return networks, stored["outcome"]
    draws = [generator(100 + seed) for seed in range(asked.seeds)]
    history = ms.warmup(networks, inputs, algorithm=asked.algorithm, batch_size=asked.n, generator=draws)
    torch.save({"weights": networks.state_dict(), "outcome": history.outcome}, path)
    return networks, history.outcome


def trained(asked: argparse.Namespace, name: str) -> dict[str, Any]:
    """Train in one way: what is found at each look, the loss of each network and step, and the looks of the term."""
    way, seeds = WAYS[name], asked.networks or range(asked.seeds)
    data = CopyFirstInput(asked.T).training(SEQUENCES, generator=generator(1))
    networks, outcome = warmed_up(asked, data.inputs)
    networks = networks.select(list(seeds))
    readout = Readout.stacked([Readout(HIDDEN, 1, generator=generator(200 + seed)) for seed in seeds])
    parameters = [*networks.parameters(), *readout.parameters()]
    adam, order = torch.optim.Adam(parameters, lr=RATE), generator(7)
    draws = [generator(300 + seed) for seed in seeds]
    weight = {} if asked.weight is None else {"weight": asked.weight}
    keep = None if way.keep is None else way.kind(networks, data.inputs, generator=draws, **way.keep, **weight)
    found: dict[str, Any] = {"warmup": outcome, "network": list(seeds), "step": [], "vaa": [], "exponent": []}
    losses, gradients, weights, seconds, keeping = [], [], [], 0.0, 0.0
    for step in range(asked.steps + 1):
        if step in LOOKS or step == asked.steps:
            exponents = ms.lyapunov(networks, data.inputs, generator=generator(5), **EXPONENT)
            found["step"].append(step)
            found["vaa"].append(ms.measure(networks, data.inputs, generator=generator(9), **MEASURE).vaa)
            found["exponent"].append(exponents.exponent)
            weights.append({at: value.clone() for at, value in networks.state_dict().items()})
            print(step, *(f"{value:.2f}" for value in found["vaa"][-1]), flush=True)
        if step == asked.steps:
            break
        adam.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / max(1, way.ramp))
        rows, began = torch.randint(SEQUENCES, (BATCH,), generator=order), time.process_time()
        output, _ = networks(data.inputs[:, rows])
        loss = (readout(output[-1:])[0] - data.targets[rows]).square().mean(dim=(-2, -1))
        in_keep = time.process_time()
        term = 0.0 if keep is None else keep()
        keeping += time.process_time() - in_keep
        adam.zero_grad()
        (loss.sum() + term).backward()
        gradients.append([p.grad.flatten(1).norm(dim=1).tolist() for p in parameters if p.grad is not None])
        adam.step()
        seconds += time.process_time() - began
        losses.append(loss.detach())
    torch.save(weights, asked.output.with_suffix(f".{name}.pt"))
    found["losses"], found["gradients"] = torch.stack(losses).tolist(), gradients
    found["loss"] = torch.stack(losses[-LAST:]).mean(dim=0).tolist()
    found["seconds"], found["seconds_of_keep"] = round(seconds), round(keeping)
    if keep is not None:
        found["looks"] = [[look.call, look.vaa_star.tolist(), look.on.tolist()] for look in keep.history]
    return found


def table(ways: dict[str, Any]) -> str:
    """A line for each network and way."""
    lines = []
    for name, found in ways.items():
        looks = "".join(f"{step:>8}" for step in found["step"])
        lines.append(f"{name:6}{'seed':>5}  VAA after{looks}   exponent after{looks}{'loss':>8}")
        for place, (seed, loss) in enumerate(zip(found["network"], found["loss"], strict=True)):
            vaa, exponent = (
                "".join(f"{row[place]:8.{n}f}" for row in found[q]) for q, n in (("vaa", 2), ("exponent", 4))
            )
            lines.append(f"{'':6}{seed:5}  {'':9}{vaa}   {'':14}{exponent}{loss:8.3f}")
        lost = [min(column) < 0.5 for column in zip(*found["vaa"], strict=True) if column[0] >= 0.5]
        learned = sum(loss < 0.1 for loss in found["loss"])
        lines.append(
            f"{'':6} VAA below 0.5 at a look: {sum(lost)} of {len(lost)}; loss below 0.1: {learned}; seconds of"
            f" processor time {found['seconds']}, of these in keep() {found['seconds_of_keep']}\n"
        )
    return "\n".join(lines)


def main() -> None:
    """Train in every way that is asked for and not done, and print all that is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--algorithm", default="paper", choices=("fast", "reliable", "paper"))
    parser.add_argument("--n", type=int, default=32, help="sequences of a step of the warmup")
    parser.add_argument("--T", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--weight", type=float, help="of ms.Keep")
    parser.add_argument("--networks", type=int, nargs="+", help="those that are trained, all if not given")
    parser.add_argument("--ways", nargs="+", default=["plain", "ramp", "keep"], choices=list(WAYS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ms.WarmupWarning)
    ways = json.loads(asked.output.read_text()) if asked.output.exists() else {}
    for name in asked.ways:
        if name not in ways:
            ways[name] = trained(asked, name)
            asked.output.write_text(json.dumps(ways))
    print(table(ways))


if __name__ == "__main__":
    main()
