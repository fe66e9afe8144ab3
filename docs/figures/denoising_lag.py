"""Why warmed-up GRUs take longer than classic ones on denoising where values may be recent (N = 5).

    python docs/figures/denoising_lag.py                                     # eleven minutes on one core
    python docs/figures/denoising_lag.py --steps 100 --seeds 2 --output lag    # to try it

Trains small GRUs in several arms, which read the same sequences for a seed. Networks are classic, warmed up, halfway
between the two, warmed up with shuffled recurrent weights, or classic with larger input weights. Further arms have no
noise among the cued values, cues at fixed times, double layers, or a long forgetting period. Before training it
measures VAA, how far units are from saturation, how well a linear readout could tell the value that was cued last, and
how far states move when noise or cued values are drawn anew. Writes ``docs/results/denoising_lag.json`` and draws
``docs/results/denoising_lag.png``, unless it is told ``--output`` elsewhere; prints a table.
"""

import argparse
import json
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import multistable as ms
from multistable.experiments.archive import rounded
from multistable.experiments.figures import figure, name_axes, png
from multistable.experiments.pictures import legend_below
from multistable.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION
from multistable.tasks import Denoising
from multistable.training.adam import Adam
from multistable.training.model import Readout
from multistable.training.seeds import generator

RESULTS = Path(__file__).parents[1] / "results"
T, HIDDEN, ANSWERS, BATCH, RATE, STABILISATION = 40, 32, Denoising.answers, 32, 3e-3, 2000
RECENT, LONG_AGO = 5, 30
LEARNED, COMPARED = 0.1, 1000
"""The loss of a network that has learned, and the gradient step after which losses are compared."""


class Arm(NamedTuple):
    """Networks that are trained alike.

    ``warmed`` is how far their weights are on the way from the first ones to those after the warmup, ``forgetting`` the
    period N of the task, ``noise`` what values without a cue are multiplied by in training, ``shuffled`` whether every
    unit then hears another one in place of each: recurrent weights as large as before, without what they were made for;
    ``gain`` multiplies the input weights of all layers, ``fixed`` puts the cues at the same times in all sequences.
    """

    name: str
    panel: str
    colour: str
    line: str
    warmed: float = 0.0
    forgetting: int = RECENT
    noise: float = 1.0
    shuffled: bool = False
    gain: float = 1.0
    fixed: bool = False
    double: bool = False


ARMS = (
    Arm("classic", "N = 5", VERMILLION, "--"),
    Arm("warmed up", "N = 5", BLUE, "-", warmed=1.0),
    Arm("halfway to warmed up", "N = 5", SKY, ":", warmed=0.5),
    Arm("warmed up, then shuffled", "N = 5", ORANGE, "-.", warmed=1.0, shuffled=True),
    Arm("input weights times 5", "N = 5", GREY, "-", gain=5.0),
    Arm("classic", "N = 5, no noise", VERMILLION, "--", noise=0.0),
    Arm("warmed up", "N = 5, no noise", BLUE, "-", warmed=1.0, noise=0.0),
    Arm("classic", "no noise, fixed times", VERMILLION, "--", noise=0.0, fixed=True),
    Arm("warmed up", "no noise, fixed times", BLUE, "-", warmed=1.0, noise=0.0, fixed=True),
    Arm("double layer, no warmup", "N = 5, double layers", PURPLE, "--", double=True),
    Arm("double layer", "N = 5, double layers", GREEN, "-", warmed=1.0, double=True),
    Arm("classic", f"N = {LONG_AGO}", VERMILLION, "--", forgetting=LONG_AGO),
    Arm("warmed up", f"N = {LONG_AGO}", BLUE, "-", warmed=1.0, forgetting=LONG_AGO),
)


def sequences(arm: Arm, n: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs ``(T, n, 2)`` of an arm and targets ``(n, 5)``."""
    data = Denoising(T, arm.forgetting).draw(n, draw)
    value, mark = data.inputs.unbind(-1)
    targets = data.targets
    if arm.fixed:
        times = torch.linspace(0, T - arm.forgetting - 1, ANSWERS).long()
        mark, targets = mark.clamp(max=0), value[times].T
        mark[times] = 1.0
    return torch.stack([torch.where(mark == 1, value, arm.noise * value), mark], dim=-1), targets


@cache
def warmed_up(double: bool, forgetting: int, seeds: int) -> tuple[list[ms.RNN], list[ms.RNN]]:
    """Networks of all seeds before and after Algorithm 3, on sequences with their noise."""
    before = [ms.RNN("gru", 2, HIDDEN, 2, double=double, generator=generator(s, "weights")) for s in range(seeds)]
    after = ms.Ensemble(before)
    inputs, _ = sequences(Arm("", "", "", "", forgetting=forgetting), 4000, generator(0, "warmup sequences"))
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        ms.warmup(after, inputs, algorithm="paper", generator=[generator(s, "warmup") for s in range(seeds)])
    return before, after.unstack()


def networks(arm: Arm, seeds: int) -> list[ms.RNN]:
    """The networks of an arm before training."""
    pairs = zip(*warmed_up(arm.double, arm.forgetting, seeds), strict=True)
    made = [between(before, after, arm.warmed) for before, after in pairs]
    for seed, network in enumerate(made):
        amplify(network, arm.gain)
        if arm.shuffled:
            shuffle(network, generator(seed, "shuffle"))
    return made


def between(before: ms.RNN, after: ms.RNN, share: float) -> ms.RNN:
    """A network with weights on the straight line between those of two."""
    member = ms.Ensemble([before]).unstack()[0]
    last = after.state_dict()
    member.load_state_dict({name: torch.lerp(first, last[name], share) for name, first in member.state_dict().items()})
    return member


@torch.no_grad()
def amplify(network: ms.RNN, gain: float) -> None:
    """Multiply the input weights of all layers."""
    for name, weight in network.named_parameters():
        if name.endswith("input_weight"):
            weight.mul_(gain)


@torch.no_grad()
def shuffle(network: ms.RNN, draw: torch.Generator) -> None:
    """Permute which unit each row of the recurrent weights, ``(hidden, 3 hidden)``, is multiplied by."""
    for name, weight in network.named_parameters():
        if name.endswith("recurrent_weight"):
            weight.copy_(weight[torch.randperm(len(weight), generator=draw)])


class Study:
    """Arms of one architecture, R networks in one ensemble: the seeds of the first arm, of the second and so on."""

    def __init__(self, arms: Sequence[Arm], seeds: int) -> None:
        self.arms, self.seeds = arms, seeds
        self.networks = ms.Ensemble([network for arm in arms for network in networks(arm, seeds)])
        readouts = [Readout(HIDDEN, 1, generator=generator(seed, "readout")) for seed in range(seeds)]
        self.readout = Readout.stacked(readouts * len(arms))
        self.parameters = [*self.networks.parameters(), *self.readout.parameters()]
        self.optimiser = Adam(self.parameters, torch.full((len(self.networks),), RATE))

    def batch(self, n: int, *purpose: str | int) -> tuple[Tensor, Tensor]:
        """Inputs ``(T, R, n, 2)`` and targets ``(R, n, 5)``, the same numbers for each arm of a seed."""
        draws = [sequences(arm, n, generator(seed, *purpose)) for arm in self.arms for seed in range(self.seeds)]
        return torch.stack([u for u, _ in draws], dim=1), torch.stack([y for _, y in draws])

    def loss(self, u: Tensor, y: Tensor) -> Tensor:
        """The squared error of each network, ``(R,)``."""
        output, _ = self.networks(u)
        answers = self.readout(output[-ANSWERS:]).squeeze(-1)
        return (answers.permute(1, 2, 0) - y).square().mean(dim=(1, 2))

    def train(self, steps: int, every: int) -> list[list[float]]:
        """The validation loss of each network before training and after every so many steps."""
        validation, found = self.batch(256, "validation"), []
        for step in range(steps + 1):
            if step % every == 0:
                with torch.no_grad():
                    found.append(self.loss(*validation).tolist())
            loss = self.loss(*self.batch(BATCH, "batch", step))
            self.optimiser.step(torch.autograd.grad(loss.sum(), self.parameters))
        return found

    @torch.no_grad()
    def look(self) -> dict[str, list[float]]:
        """What the networks are like, a number for each."""
        u, y = self.batch(4000, "look")
        output, state = self.networks(u)
        vaa = ms.measure(self.networks, u, stabilisation=STABILISATION, generator=generator(0, "measure")).vaa
        assert isinstance(vaa, list)
        return {
            "vaa": vaa,
            # The slope of tanh where units are: 1 for those at 0, 0 for saturated ones.
            "slope": (1 - state.square()).mean(dim=(0, 2, 3)).tolist(),
            "readable": readable(output[-ANSWERS - 1], y[..., -1:]).tolist(),
            "moved by noise": self._moved(u, output[-1], cued=False).tolist(),
            "moved by cues": self._moved(u, output[-1], cued=True).tolist(),
        }

    def _moved(self, u: Tensor, last: Tensor, cued: bool) -> Tensor:
        """How far last states move when values with a cue, or all others, are drawn anew, ``(R,)``.

        Mean squares, relative to how far apart the states of two sequences are: 1 where nothing else matters.
        """
        value, mark = u.unbind(-1)
        scale = torch.tensor([1.0 if cued else arm.noise for arm in self.arms for _ in range(self.seeds)])
        other = scale.unsqueeze(-1) * torch.randn(T, 1, u.shape[2], generator=generator(0, "redrawn"))
        output, _ = self.networks(torch.stack([torch.where((mark == 1) == cued, other, value), mark], dim=-1))
        return (output[-1] - last).square().sum(dim=-1).mean(dim=-1) / (2 * last.var(dim=1).sum(dim=-1))


def readable(h: Tensor, y: Tensor) -> Tensor:
    """R² of a ridge regression from states ``(R, n, hidden)`` to values ``(R, n, 1)``, on the half it has not seen."""
    x = torch.cat([h, torch.ones_like(h[..., :1])], dim=-1).double()
    (x, unseen), (known, unknown) = x.chunk(2, dim=1), y.double().chunk(2, dim=1)
    weights = torch.linalg.solve(x.mT @ x + 0.01 * torch.eye(x.shape[-1], dtype=x.dtype), x.mT @ known)
    return 1 - (unseen @ weights - unknown).square().mean(dim=(1, 2)) / unknown.square().mean(dim=(1, 2))


def study(arms: Sequence[Arm], seeds: int, steps: int, every: int) -> list[dict[str, Any]]:
    """Look at and train arms of one architecture: of each its name, what it was before, and its losses by seed."""
    together = Study(arms, seeds)
    before, losses = together.look(), torch.tensor(together.train(steps, every)).T
    found = []
    for arm, index in zip(arms, torch.arange(len(losses)).split(seeds), strict=True):
        looks = {name: [values[i] for i in index] for name, values in before.items()}
        found.append({"name": arm.name, "panel": arm.panel, "before": looks, "loss": losses[index].tolist()})
    return found


def draw(found: Sequence[dict[str, Any]], every: int, path: Path) -> None:
    """The losses: mean, and from the lowest to the highest seed."""
    titles = list(dict.fromkeys(arm.panel for arm in ARMS))
    drawn, panels = figure(2.6 * len(titles), 3.4, columns=len(titles))
    places = dict(zip(titles, panels, strict=True))
    for arm, result in zip(ARMS, found, strict=True):
        losses, axes = torch.tensor(result["loss"]), places[arm.panel]
        steps = [every * i for i in range(losses.shape[1])]
        axes.plot(steps, losses.mean(dim=0), color=arm.colour, linestyle=arm.line, label=arm.name)
        axes.fill_between(steps, losses.amin(dim=0), losses.amax(dim=0), color=arm.colour, alpha=0.2, linewidth=0)
    for title, axes in places.items():
        name_axes(axes, "gradient step", "validation loss (MSE)" if axes is panels[0] else "")
        axes.set_title(title, fontsize=10)
        axes.set_yscale("log")
        axes.set_ylim(0.01, 2)
    legend_below(drawn, list(panels))
    png(drawn, path)


def compared(result: dict[str, Any], every: int) -> list[float]:
    """The losses of an arm after ``COMPARED`` steps, or the last ones where it was trained for fewer."""
    return [curve[min(COMPARED // every, len(curve) - 1)] for curve in result["loss"]]


def row(result: dict[str, Any], every: int) -> str:
    """A line of the table."""
    firsts = [next((i * every for i, x in enumerate(curve) if x < LEARNED), None) for curve in result["loss"]]
    cells = [", ".join(f"{value:.2f}" for value in values) for values in result["before"].values()]
    cells.append(", ".join(f"{loss:.2f}" for loss in compared(result, every)))
    cells.append(", ".join("never" if first is None else str(first) for first in firsts))
    return f"| {result['panel']} | {result['name']} | {' | '.join(cells)} |"


def correlations(found: Sequence[dict[str, Any]], every: int) -> dict[str, tuple[float, float]]:
    """Rank correlations of what single layers were before with their loss on N = 5 with noise: plain, and given VAA."""
    pairs = zip(ARMS, found, strict=True)
    alike = [result for arm, result in pairs if arm.forgetting == RECENT and arm.noise and not arm.double]
    after = ranks([loss for result in alike for loss in compared(result, every)])
    looks = {name: ranks([x for result in alike for x in result["before"][name]]) for name in alike[0]["before"]}
    return {name: (correlation(look, after), given(look, after, looks["vaa"])) for name, look in looks.items()}


def ranks(values: Sequence[float]) -> Tensor:
    """Of numbers ``(n,)``; equal ones share their mean rank."""
    row = torch.tensor(values, dtype=torch.float64)
    column = row.unsqueeze(-1)
    return ((column > row).double() + 0.5 * (column == row).double()).sum(dim=-1)


def correlation(a: Tensor, b: Tensor) -> float:
    """Of two rows of numbers ``(n,)``."""
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def given(a: Tensor, b: Tensor, c: Tensor) -> float:
    """The partial correlation of ``a`` and ``b``: what is left of it where ``c`` is the same; NaN where a is c."""
    ab, ac, bc = correlation(a, b), correlation(a, c), correlation(b, c)
    left = (1 - ac**2) * (1 - bc**2)
    return (ab - ac * bc) / left**0.5 if left > 1e-9 else float("nan")


def report(found: Sequence[dict[str, Any]], every: int) -> None:
    """Print the table and the correlations."""
    names = [
        "task",
        "networks",
        *found[0]["before"],
        f"loss after {COMPARED}",
        f"first step with a loss below {LEARNED}",
    ]
    print(f"| {' | '.join(names)} |")
    print("|---" * len(names) + "|")
    for result in found:
        print(row(result, every))
    print(f"Rank correlations with the loss after {COMPARED} steps, single layers, N = 5 with noise (given VAA):")
    print(", ".join(f"{name} {plain:.2f} ({left:.2f})" for name, (plain, left) in correlations(found, every).items()))


def main() -> None:
    """Train, store, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--every", type=int, default=50, help="gradient steps between two validation losses")
    parser.add_argument("--output", type=Path, default=RESULTS / "denoising_lag", help="where to write, no suffix")
    asked = parser.parse_args()
    by_form = {double: [arm for arm in ARMS if arm.double == double] for double in (False, True)}
    results = {double: iter(study(arms, asked.seeds, asked.steps, asked.every)) for double, arms in by_form.items()}
    found = [next(results[arm.double]) for arm in ARMS]
    settings = {name: value for name, value in vars(asked).items() if name != "output"}
    settings |= {"T": T, "hidden": HIDDEN, "rate": RATE}
    asked.output.with_suffix(".json").write_text(json.dumps(rounded({"settings": settings, "arms": found}, 6)) + "\n")
    draw(found, asked.every, asked.output.with_suffix(".png"))
    report(found, asked.every)


if __name__ == "__main__":
    main()
