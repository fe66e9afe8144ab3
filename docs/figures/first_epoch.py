"""Why some warmed-up networks lose their attractors in the first epoch: the same networks, trained in several ways.

    python docs/figures/first_epoch.py                             # six minutes in half of an H200
    python docs/figures/first_epoch.py --biases 2 --n 32 --output docs/results/first_epoch_two_biases
    python docs/figures/first_epoch.py --draw                      # the picture and the tables from what is stored
    python docs/figures/first_epoch.py --T 20 --hidden 16 --seeds 2 --steps 20 --sequences 500 --output /tmp/small

Each LSTM is warmed up by Algorithm 3, and another copy of it by the default. Copies of these are then trained on copy
first input in every way of ``WAYS`` at a time, all in one ensemble. Writes a JSON file, draws it, and prints tables.
"""

import argparse
import json
import statistics
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import multistable as ms
from multistable.experiments.figures import figure, name_axes, png
from multistable.palette import BLUE, VERMILLION
from multistable.tasks import CopyFirstInput
from multistable.training.adam import Adam
from multistable.training.model import Readout

RESULTS = Path(__file__).parents[1] / "results"
BATCH, SEQUENCES = 32, 32_000
LOOKS = (0, 10, 25, 50, 100, 200, 300, 500, 700, 1000, 1500, 2000, 2500, 3000)
"""The gradient steps after which VAA is measured."""
MANY, LEARNED = 0.5, 0.1
"""A VAA of many attractors, and a loss of a network that is learning."""


class Way(NamedTuple):
    """How a network is prepared and trained.

    Attributes:
        name: for the reader.
        warmup: ``"paper"``, ``"default"``, or ``"default, n = 32"``.
        order: which random order of batches.
        rate: the learning rate as a share of the paper's.
        most: the largest norm of a gradient.
        alone: for how many steps the readout is trained by itself.
        fixed: the ending of the names of weights that stay as they are.
    """

    name: str
    warmup: str = "paper"
    order: int = 0
    rate: float = 1.0
    most: float = float("inf")
    alone: int = 0
    fixed: str = "nothing"


WAYS = (
    Way("as the paper trains"),
    Way("the same, other batches", order=1),
    Way("the same, still other batches", order=2),
    Way("a tenth of the learning rate", rate=0.1),
    Way("gradients clipped to 1", most=1.0),
    Way("gradients clipped to 0.1", most=0.1),
    Way("readout alone for 500 steps", alone=500),
    Way("biases fixed", fixed="bias"),
    Way("recurrent matrix fixed", fixed="recurrent_weight"),
    Way("default warmup", warmup="default"),
    Way("default warmup, other batches", warmup="default", order=1),
    Way("default warmup with n = 32", warmup="default, n = 32"),
)
PLAIN = (0, 1, 2, 9, 10, 11)
"""The ways in which nothing but the warmup and the batches differ."""


def generator(seed: int) -> torch.Generator:
    """Random numbers on the CPU."""
    return torch.Generator().manual_seed(seed)


class Study:
    """Networks of some seeds, each warmed up and trained in every way."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        data = CopyFirstInput(asked.T).training(min(SEQUENCES, asked.sequences), generator=generator(1))
        self.inputs, self.targets = data.inputs.to(asked.device), data.targets.to(asked.device)
        warmups = {
            "paper": {"algorithm": "paper", "batch_size": asked.n},
            "default": {},
            "default, n = 32": {"batch_size": 32},
        }
        self.prepared: dict[str, dict[str, Any]] = {}
        starts = {name: self._warm_up(name, settings) for name, settings in warmups.items()}
        self.networks = ms.Ensemble([member for way in WAYS for member in starts[way.warmup]]).to(asked.device)
        readouts = [Readout(asked.hidden, 1, generator=generator(200 + seed)) for seed in range(asked.seeds)]
        self.readout = Readout.stacked(readouts * len(WAYS)).to(asked.device)
        named = dict(self.networks.named_parameters())
        self.parameters = [*named.values(), *self.readout.parameters()]
        self.moves = [self._each(lambda way, name=name: not name.endswith(way.fixed)) for name in named]  # type: ignore[misc]
        rates, most = (self._each(lambda way: 1e-3 * way.rate), self._each(lambda way: way.most))
        self.optimiser = Adam(self.parameters, rates, max_norms=most)
        self.orders = [generator(7 + order) for order in range(1 + max(way.order for way in WAYS))]

    def _warm_up(self, name: str, settings: dict[str, Any]) -> list[ms.RNN]:
        """The networks after a warmup; notes what they are like."""
        asked = self.asked
        options = {"recurrent_bias": asked.biases == 2}
        members = [ms.RNN("lstm", 1, asked.hidden, generator=generator(seed), **options) for seed in range(asked.seeds)]
        networks = ms.Ensemble(members).to(asked.device)
        draws = [generator(100 + seed) for seed in range(asked.seeds)]
        with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
            history = ms.warmup(networks, self.inputs, generator=draws, **settings)
        weight = dict(networks.named_parameters())["network.layers.0.cell.recurrent_weight"]
        self.prepared[name] = {
            "outcome": history.outcome,
            "lifetime": ms.lyapunov(networks, self.inputs, generator=generator(5)).lifetime,
            "recurrent_norm": weight.detach().flatten(1).norm(dim=1).tolist(),
        }
        return networks.unstack()

    def train(self) -> dict[str, list[Any]]:
        """Take gradient steps; the mean loss of the last 100 steps, and VAA, of each network at each look."""
        found: dict[str, list[Any]] = {"step": [], "loss": [], "vaa": []}
        losses: list[Tensor] = []
        for step in range(self.asked.steps + 1):
            if step in LOOKS or step == self.asked.steps:
                found["step"].append(step)
                found["loss"].append(torch.stack(losses[-100:]).mean(dim=0).tolist() if losses else None)
                found["vaa"].append(ms.measure(self.networks, self.inputs, generator=generator(9)).vaa)
                losses = []
            losses.append(self._descend(step))
        return found

    def _descend(self, step: int) -> Tensor:
        """One gradient step of each network; returns its loss."""
        drawn = [torch.randint(0, len(self.targets), (BATCH,), generator=order) for order in self.orders]
        which = [drawn[way.order].to(self.asked.device) for way in WAYS]
        u = torch.stack([self.inputs[:, rows] for rows in which], dim=1).repeat_interleave(self.asked.seeds, dim=1)
        y = torch.stack([self.targets[rows] for rows in which]).repeat_interleave(self.asked.seeds, dim=0)
        with ms.engine(precision=self.asked.precision):
            output, _ = self.networks(u)
            loss = (self.readout(output[-1:])[0] - y).square().mean(dim=(-2, -1))
            gradients = list(torch.autograd.grad(loss.sum(), self.parameters))
        begun = self._each(lambda way: step >= way.alone)
        for index, moves in enumerate(self.moves):
            gradient = gradients[index]
            gradients[index] = gradient * (moves * begun).view(-1, *[1] * (gradient.dim() - 1))
        self.optimiser.step(gradients)
        return loss.detach()

    def _each(self, setting: Any) -> Tensor:
        """A setting of the ways for each network, ``(networks,)``."""
        values = [float(setting(way)) for way in WAYS for _ in range(self.asked.seeds)]
        return torch.tensor(values, device=self.inputs.device)


def of_way(values: Sequence[float], index: int) -> list[float]:
    """The numbers of the networks that are trained in one way."""
    each = len(values) // len(WAYS)
    return list(values[index * each : (index + 1) * each])


def lost(found: dict[str, Any], index: int) -> list[bool | None]:
    """Whether each network of a way came below half of all attractors; ``None`` for those that began below."""
    curves = list(zip(*(of_way(vaa, index) for vaa in found["vaa"]), strict=True))
    return [None if curve[0] < MANY else min(curve) < MANY for curve in curves]


def ways_table(found: dict[str, Any]) -> list[str]:
    """A line for each way: how many networks had attractors, lost them, had them in the end, and were learning."""
    lines = [f"| way | had attractors | lost them | has them after {found['step'][-1]} steps | loss below {LEARNED} |"]
    lines.append("|---|---|---|---|---|")
    for index, way in enumerate(WAYS):
        fate = lost(found, index)
        vaa, loss = of_way(found["vaa"][-1], index), of_way(found["loss"][-1], index)
        had = [i for i, value in enumerate(fate) if value is not None]
        end, learning = sum(vaa[i] >= MANY for i in had), sum(loss[i] < LEARNED for i in had)
        lines.append(f"| {way.name} | {len(had)} | {sum(fate[i] is True for i in had)} | {end} | {learning} |")
    return lines


def norms_table(found: dict[str, Any]) -> list[str]:
    """How often attractors were lost by how large the recurrent matrix was after the warmup."""
    trained = [
        (norm, fate, WAYS[index].warmup == "paper")
        for index in PLAIN
        for norm, fate in zip(found["prepared"][WAYS[index].warmup]["recurrent_norm"], lost(found, index), strict=True)
        if fate is not None
    ]
    edges = [0.0, *statistics.quantiles([norm for norm, *_ in trained], n=4), float("inf")]
    lines = ["| norm of the recurrent matrix | lost | after the paper's warmup | after the default |"]
    lines.append("|---|---|---|---|")
    for low, high in pairwise(edges):
        here = [(fate, paper) for norm, fate, paper in trained if low <= norm < high]
        parts = [[f for f, _ in here], [f for f, paper in here if paper], [f for f, paper in here if not paper]]
        shares = (f"{sum(part)} of {len(part)}" for part in parts)
        lines.append(f"| {low:.1f} to {high:.1f} | {' | '.join(shares)} |")
    return lines


def draw(found: dict[str, Any], path: Path) -> None:
    """VAA of every network over the steps, a panel for each of four ways."""
    shown = (0, 4, 8, 9)
    drawn, panels = figure(2.6 * len(shown), 2.6, columns=len(shown))
    for index, axes in zip(shown, panels, strict=True):
        for curve in zip(*(of_way(vaa, index) for vaa in found["vaa"]), strict=True):
            colour = VERMILLION if min(curve) < MANY else BLUE
            axes.plot(found["step"], curve, color=colour, linewidth=0.8)
        axes.set_xscale("symlog", linthresh=10)
        name_axes(axes, "gradient step", "VAA" if index == shown[0] else "")
        axes.set_title(WAYS[index].name, fontsize=10)
        axes.set_ylim(0, 1.05)
    png(drawn, path)


def main() -> None:
    """Train and store, or read what is stored; draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--T", type=int, default=300)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--biases", type=int, default=1, choices=[1, 2], help="bias vectors of an LSTM")
    parser.add_argument("--n", type=int, default=200, help="sequences of a step of the paper's warmup")
    parser.add_argument("--steps", type=int, default=LOOKS[-1])
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    parser.add_argument("--precision", default="tf32", choices=["ieee", "tf32"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, default=RESULTS / "first_epoch", help="where to write, without a suffix")
    parser.add_argument("--draw", action="store_true", help="train nothing: draw and print what is stored")
    asked = parser.parse_args()
    stored = asked.output.with_suffix(".json")
    if not asked.draw:
        study = Study(asked)
        settings = {name: value for name, value in vars(asked).items() if name not in ("output", "draw")}
        found = {"settings": settings, "prepared": study.prepared, **study.train()}
        stored.write_text(json.dumps(rounded(found)) + "\n")
    found = json.loads(stored.read_text())
    draw(found, asked.output.with_suffix(".png"))
    print("\n".join([*ways_table(found), "", *norms_table(found)]))


def rounded(value: Any) -> Any:
    """Numbers with four significant digits, as they are stored; infinity as ``None``."""
    if isinstance(value, float):
        return None if value == float("inf") else float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: rounded(entry) for name, entry in value.items()}
    return [rounded(entry) for entry in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
