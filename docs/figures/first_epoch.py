"""Why some warmed-up networks lose their attractors in the first epoch: the same networks, trained in several ways.

    python docs/figures/first_epoch.py                           # two minutes in a third of an H200
    python docs/figures/first_epoch.py --T 40 --hidden 32 --steps 200 --seeds 2

Each of some LSTMs is warmed up once and then trained on copy first input in every way at a time, all in one ensemble:
as the paper trains; with gradients of a norm of at most 1; with a tenth of the learning rate; with a readout whose
weights are zero at first; and with a readout that is trained by itself first. Writes ``docs/results/first_epoch.json``
and draws ``docs/results/first_epoch.png``, unless it is told ``--output`` elsewhere; prints a table.
"""

import argparse
import json
import statistics
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import multistable as ms
from multistable.experiments.archive import rounded
from multistable.experiments.figures import figure, name_axes, png
from multistable.experiments.pictures import legend_below
from multistable.experiments.styles import BLUE, GREY, ORANGE, SKY, VERMILLION
from multistable.tasks import CopyFirstInput
from multistable.training.adam import Adam
from multistable.training.model import Readout

RESULTS = Path(__file__).parents[1] / "results"
COLOURS = (BLUE, VERMILLION, SKY, ORANGE, GREY)
BATCH, SEQUENCES, STABILISATION = 32, 32_000, 2000


class Way(NamedTuple):
    """How a network is trained.

    ``most`` is the largest norm of a gradient, ``rate`` the learning rate as a share of the paper's, ``readout`` what
    the first weights of the readout are multiplied by, ``alone`` how many steps the readout is trained by itself.
    """

    name: str
    most: float = float("inf")
    rate: float = 1.0
    readout: float = 1.0
    alone: int = 0


WAYS = (
    Way("as the paper does"),
    Way("gradients clipped to 1", most=1.0),
    Way("a tenth of the rate", rate=0.1),
    Way("readout from zero", readout=0.0),
    Way("readout first, 200 steps", alone=200),
)


def generator(seed: int) -> torch.Generator:
    """Of random numbers on the CPU."""
    return torch.Generator().manual_seed(seed)


class Study:
    """Networks of some seeds, each warmed up once and trained in every way.

    Args:
        cell: of the networks.
        T: the length of the sequences.
        hidden: units of a network.
        seeds: how many networks.
        device: where.
    """

    def __init__(self, cell: str, T: int, hidden: int, seeds: int, device: str) -> None:
        data = CopyFirstInput(T).training(SEQUENCES, generator=generator(1))
        self.inputs, self.targets = data.inputs.to(device), data.targets.to(device)
        networks = ms.Ensemble([ms.RNN(cell, 1, hidden, generator=generator(seed)) for seed in range(seeds)]).to(device)
        with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
            ms.warmup(networks, self.inputs, algorithm="paper", generator=[generator(100 + i) for i in range(seeds)])
        self.seeds = seeds
        # Ways side by side, each with all networks.
        self.networks = ms.Ensemble([member for _ in WAYS for member in networks.unstack()])
        readouts = [Readout(hidden, 1, generator=generator(200 + seed)) for seed in range(seeds)]
        self.readout = Readout.stacked(readouts * len(WAYS)).to(device)
        with torch.no_grad():
            self.readout.weight.mul_(self._each("readout"))
            self.readout.bias.mul_(self._each("readout").squeeze(-1))
        self.parameters = [*self.networks.parameters(), *self.readout.parameters()]
        self.of_readout = len(list(self.readout.parameters()))
        rates, most = 1e-3 * self._each("rate").flatten(), self._each("most").flatten()
        self.optimiser = Adam(self.parameters, rates, max_norms=most)
        self._draws = generator(7)

    def train(self, steps: int, looks: int) -> dict[str, list[Any]]:
        """Take gradient steps; the loss, the norm of the gradient and VAA of each network on the way."""
        found: dict[str, list[Any]] = {"step": [], "loss": [], "norm": [], "vaa": []}
        losses: list[Tensor] = []
        largest = torch.zeros(len(self.networks), device=self.inputs.device)
        for step in range(steps + 1):
            if step % max(1, steps // looks) == 0:
                found["step"].append(step)
                found["loss"].append(torch.stack(losses).mean(dim=0).tolist() if losses else None)
                found["norm"].append(largest.tolist())
                found["vaa"].append(self._vaa())
                losses, largest = [], torch.zeros_like(largest)
            loss, norm = self._descend(step)
            losses.append(loss)
            largest = torch.maximum(largest, norm)
        return found

    def _descend(self, step: int) -> tuple[Tensor, Tensor]:
        """A step of each network on the same sequences: its loss and the norm of its gradient before all else."""
        which = torch.randint(0, SEQUENCES, (BATCH,), generator=self._draws).to(self.inputs.device)
        u, y = self.inputs[:, which], self.targets[which]
        output, _ = self.networks(u.unsqueeze(1).expand(-1, len(self.networks), -1, -1))
        loss = (self.readout(output[-1:])[0] - y).square().mean(dim=(-2, -1))
        gradients = list(torch.autograd.grad(loss.sum(), self.parameters))
        norm = torch.stack([g.flatten(1).square().sum(dim=1) for g in gradients]).sum(dim=0).sqrt()
        waits = step < self._each("alone").flatten()
        for i, gradient in enumerate(gradients[: -self.of_readout]):
            gradients[i] = gradient * (~waits).view(-1, *[1] * (gradient.dim() - 1))
        self.optimiser.step(gradients)
        return loss.detach(), norm

    def _vaa(self) -> list[float]:
        found = ms.measure(self.networks, self.inputs, stabilisation=STABILISATION, generator=generator(9)).vaa
        assert isinstance(found, list)
        return found

    def _each(self, setting: str) -> Tensor:
        """A setting of the ways for each network, ``(networks, 1, 1)``."""
        values = [float(getattr(way, setting)) for way in WAYS for _ in range(self.seeds)]
        return torch.tensor(values, device=self.inputs.device).view(-1, 1, 1)


def of_way(found: Sequence[float], index: int) -> list[float]:
    """The numbers of the networks that are trained in one way."""
    each = len(found) // len(WAYS)
    return list(found[index * each : (index + 1) * each])


def draw(found: dict[str, list[Any]], path: Path) -> None:
    """VAA of every network over the steps, a panel for each way."""
    drawn, panels = figure(2.4 * len(WAYS), 2.6, columns=len(WAYS))
    for index, (way, axes) in enumerate(zip(WAYS, panels, strict=True)):
        for seed, curve in enumerate(zip(*(of_way(vaa, index) for vaa in found["vaa"]), strict=True)):
            axes.plot(found["step"], curve, color=COLOURS[seed % len(COLOURS)], label=f"seed {seed}")
        name_axes(axes, "gradient step", "VAA" if index == 0 else "")
        axes.set_title(way.name, fontsize=10)
        axes.set_ylim(0, 1.05)
    legend_below(drawn, list(panels))
    png(drawn, path)


def main() -> None:
    """Train, store, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", default="lstm")
    parser.add_argument("--T", type=int, default=300)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--looks", type=int, default=20, help="how often VAA is measured")
    parser.add_argument("--output", type=Path, default=RESULTS / "first_epoch", help="where to write, without a suffix")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="ieee", choices=["ieee", "tf32"])
    asked = parser.parse_args()
    study = Study(asked.cell, asked.T, asked.hidden, asked.seeds, asked.device)
    with ms.engine(precision=asked.precision):
        found = study.train(asked.steps, asked.looks)
    settings = {name: value for name, value in vars(asked).items() if name != "output"}
    asked.output.with_suffix(".json").write_text(json.dumps(rounded({"settings": settings, **found}, 4)) + "\n")
    draw(found, asked.output.with_suffix(".png"))
    print("| way | VAA before | VAA after | loss, last looks | largest norm of a gradient |\n|---|---|---|---|---|")
    for index, way in enumerate(WAYS):
        before, after, loss = (of_way(found[name][i], index) for name, i in (("vaa", 0), ("vaa", -1), ("loss", -1)))
        norm = max(max(of_way(norms, index)) for norms in found["norm"])
        both = (", ".join(f"{value:.2f}" for value in values) for values in (before, after, loss))
        print(f"| {way.name} | {' | '.join(both)} (mean {statistics.fmean(loss):.2f}) | {norm:.2g} |")


if __name__ == "__main__":
    main()
