"""An agent stops learning for good when its gradient explodes: is that gradient computed right?

    python docs/figures/exploding_gradient.py --device cuda --precision tf32         # three minutes on an H200
    python docs/figures/exploding_gradient.py --length 6 --hidden 16 --threshold 3   # how it works, on a CPU

Trains the agents of ``benchmarks/drqn.py`` until the gradient of the first has an entry above a threshold. Then takes
the gradient steps of that episode again, and those of a later one, three times: by the kernels in TF32, by the kernels
in float32, and by the plain time loop in float64. Prints the largest entry of each agent's gradient, and the relative
error of the first two against float64, of the weight where it is largest.
"""

import argparse
from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor

import multistable as ms
from multistable.rl import DRQN, TMaze, input_size
from multistable.rl.replay import Transitions
from multistable.training.seeds import generator

COMPARED = 4
"""How many gradient steps of an episode are taken in all three ways."""


def largest(gradients: Sequence[Tensor]) -> Tensor:
    """The largest entry of each agent's gradient, ``(R,)``."""
    return torch.stack([gradient.abs().flatten(1).amax(dim=1) for gradient in gradients]).amax(dim=0)


def error(gradients: Sequence[Tensor], exact: Sequence[Tensor]) -> Tensor:
    """The relative error of each agent's gradient, in the weight where it is largest, ``(R,)``."""
    pairs = [(g.flatten(1), e.flatten(1)) for g, e in zip(gradients, exact, strict=True)]
    return torch.stack([(g - e).norm(dim=1) / e.norm(dim=1) for g, e in pairs]).amax(dim=0)


def shown(values: Tensor, digits: str = ".1e") -> str:
    """The number of each agent."""
    return ", ".join(f"{value:{digits}}" for value in values.tolist())


class Watched(DRQN):
    """Agents that remember the largest entry of their gradients, ``top (R,)``."""

    top: Tensor

    def descend(self, loss: Tensor) -> Tensor:
        gradients = torch.autograd.grad(loss.sum(), list(self.parameters.values()))
        # Recorded with the step, and so in place.
        self.top.copy_(torch.maximum(self.top, largest(gradients).nan_to_num(nan=torch.inf)))
        self.optimiser.step(gradients)
        return loss.detach()

    def batches(self, episode: int) -> list[Transitions]:
        """What the gradient steps after an episode learn from, while the replay buffer is still the same."""
        shape = (self.settings.gradient_steps, self.settings.batch_size)
        draws = [torch.rand(shape, generator=generator(s, "batch", episode), dtype=torch.float64) for s in self.seeds]
        slots = self.replay.sample(torch.stack(draws, dim=1).to(self.pomdp.device))
        passes = self.replay.passes(slots)
        return [
            self.replay.transitions(chosen, passed[:, : int((lengths > 0).sum(dim=-1).max())], rows, int(lengths.max()))
            for chosen, passed, rows, lengths in zip(
                slots, passes.slots, passes.rows, passes.lengths.cpu(), strict=True
            )
        ]

    def gradients(self, batch: Transitions, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        """Of the loss on a batch, the weights taken as of another type."""
        kept = self.network
        self.network = deepcopy(kept).to(dtype)
        try:
            batch = Transitions(*(x.to(dtype) if x.is_floating_point() else x for x in batch))
            return list(torch.autograd.grad(self.loss(batch).sum(), list(self.network.parameters())))
        finally:
            self.network = kept


def compare(agents: Watched, episode: int, precision: str) -> None:
    """Take the gradient steps after an episode again, from the present weights, and print gradients in all ways."""
    for number, batch in enumerate(agents.batches(episode)[:COMPARED]):
        with ms.engine(precision="tf32"):
            found = {"tf32": agents.gradients(batch)}
        with ms.engine(precision="ieee"):
            found["ieee"] = agents.gradients(batch)
        with ms.engine(backend="reference"):
            exact = agents.gradients(batch, torch.float64)
        print(f"  step {number}, longest {batch.inputs.shape[0]}:  float64 {shown(largest(exact))}", end="")
        for name, gradients in found.items():
            print(f"  {name} {shown(largest(gradients))} (off {shown(error(gradients, exact))})", end="")
        with ms.engine(precision=precision):
            print(f"  loss {shown(agents.descend(agents.loss(batch)), '.2g')}", flush=True)


def main() -> None:
    """Train, wait for the explosion, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=2000, help="at most")
    parser.add_argument("--threshold", type=float, default=1e6)
    parser.add_argument("--later", type=int, default=25, help="episodes from the first comparison to the second")
    parser.add_argument("--precision", default="ieee", choices=["ieee", "tf32"])
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    maze = TMaze(asked.length, device=asked.device)
    sizes = (input_size(maze), asked.hidden, asked.layers)
    seeds = list(range(asked.agents))
    networks = [ms.RNN("gru", *sizes, generator=torch.Generator().manual_seed(seed)).to(maze.device) for seed in seeds]
    agents = Watched(maze, networks, seeds=seeds)
    agents.top = torch.zeros(len(agents), device=maze.device)
    last, training = asked.episodes, agents.train(asked.episodes)
    while agents.episode < last:
        before = _weights(agents)
        with ms.engine(precision=asked.precision):
            episode = next(training)
        exploded = bool(agents.top[0] > asked.threshold) and last == asked.episodes
        if exploded or episode.number % 50 == 0 or episode.number == last:
            print(f"{episode.number}  largest {shown(agents.top)}  loss {shown(episode.loss, '.2g')}", flush=True)
        agents.top.zero_()
        if exploded or episode.number == last:
            print(f"gradient steps of that episode, from the weights {'before' if exploded else 'after'} them")
            now = _weights(agents)
            _put(agents, before if exploded else now)
            compare(agents, episode.number - 1, asked.precision)
            _put(agents, now)
            last = min(last, episode.number + asked.later)


def _weights(agents: DRQN) -> dict[str, Tensor]:
    """Copies of the weights and of the moments of Adam."""
    return {name: tensor.clone() for name, tensor in agents.state()[0].items() if not name.startswith("replay")}


@torch.no_grad()
def _put(agents: DRQN, tensors: dict[str, Tensor]) -> None:
    present = agents.state()[0]
    for name, tensor in tensors.items():
        present[name].copy_(tensor)


if __name__ == "__main__":
    main()
