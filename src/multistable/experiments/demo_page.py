"""The page of the demo: pictures, a table, and sentences that follow from the numbers."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from multistable.experiments import figures
from multistable.experiments.experiment import Result, rank_correlation
from multistable.experiments.page import write_page
from multistable.experiments.settling import Settling
from multistable.experiments.styles import STYLES, Style
from multistable.palette import BLUE, SKY, VERMILLION
from multistable.training import RunConfig

TIMES = {"before": "Before the warmup", "warmed": "After the warmup", "trained": "After training"}
"""When the states of :class:`StateSpaces` are looked at."""

LOOKS = {
    "before": Style("before the warmup", VERMILLION, "o", "--"),
    "warmed": Style("after the warmup", BLUE, "s"),
    "trained": Style("after training", SKY, "^", "-."),
}
"""How each of these times is drawn in a picture of all three."""

WARMUP = (
    "The differentiable proxy of VAA, on which the gradient steps act. The stabilisation period grows with the steps: "
    "at first the states have hardly begun to settle, and a high value means little."
)

DISTANCE = (
    "Of each state to the nearest other one: the median of the states, and their range. A small difference lasts until "
    "it is 1/e of what it was."
)

FIRST = 0.5
"""Where step 0 stands on a logarithmic axis."""

SEEDS = "demo_seeds.json"
"""The file in this folder with the results of other seeds."""


@dataclass(frozen=True)
class StateSpace:
    """Where the states of a network go under a constant input, and how long they stay apart.

    Attributes:
        settling: where they go.
        lifetime: the steps after which a small difference between two of them is 1/e of what it was (``ms.lyapunov``).
    """

    settling: Settling
    lifetime: float


@dataclass(frozen=True)
class StateSpaces:
    """The states that the same sequences lead to under a constant input, at three times.

    Attributes:
        first_inputs: the number that the network has to remember of each sequence.
        before: with the initial weights.
        warmed: after the warmup.
        trained: after training.
    """

    first_inputs: list[float]
    before: StateSpace
    warmed: StateSpace
    trained: StateSpace

    def each(self) -> dict[str, StateSpace]:
        """The three state spaces by the names of :data:`TIMES`."""
        return {name: getattr(self, name) for name in TIMES}


def write(path: Path, results: Mapping[str, Result], spaces: StateSpaces, chosen: int) -> Path:
    """Write the page of the versions in ``results``; ``chosen`` is the seed that is shown by default."""
    config = results["warmup"].config
    recorded = other_seeds(config)
    return write_page(
        path,
        "demo.html.j2",
        config=config,
        results=results,
        styles=STYLES,
        verdict=verdict,
        charts=charts(results, spaces),
        spaces=space_pictures(spaces),
        story=story(results, spaces),
        seeds=recorded,
        chosen=chosen,
        seeds_in_words=None if recorded is None else seeds_in_words(recorded),
        seconds=sum({r.config.goes_with().name: r.record["seconds"] for r in results.values()}.values()),
        record=results["warmup"].record,
    )


def charts(results: Mapping[str, Result], spaces: StateSpaces) -> list[dict[str, str]]:
    """How long states stay apart, losses and VAA by epoch, VAA* during the warmup: each a picture and what it shows."""
    distance, axes = figures.figure(4.6, 3.4)
    draw_distances(axes, spaces)
    loss, axes = figures.figure(4.6, 3.4)
    draw_losses(axes, results)
    vaa, axes = figures.figure(4.6, 3.4)
    draw_vaa(axes, results)
    warmup, axes = figures.figure(4.6, 3.4)
    draw_warmup(axes, results)
    shown = {
        "distance": (distance, "How long states stay apart", DISTANCE),
        "loss": (loss, "Validation loss by epoch", "Squared error on sequences not trained on. Lower is better."),
        "vaa": (vaa, "VAA by epoch", "The share of states that stay apart. Epoch 0 is before training."),
        "warmup": (warmup, "VAA* during the warmup", WARMUP),
    }
    return [
        {"svg": figures.svg(drawn, name, f"{title}. {about}"), "title": title, "about": about}
        for name, (drawn, title, about) in shown.items()
    ]


def draw_distances(axes: Any, spaces: StateSpaces) -> None:
    """The distance of a state from the nearest other one, step by step: the median over the states, and their range."""
    for name, space in spaces.each().items():
        nearest, look = space.settling.nearest().numpy(), LOOKS[name]
        steps = np.maximum(space.settling.times.numpy(), FIRST)
        label = f"{look.label}: a difference lasts {lasts(space.lifetime)}"
        axes.plot(steps, np.median(nearest, axis=1), color=look.colour, linestyle=look.line, linewidth=1.8, label=label)
        axes.fill_between(steps, nearest.min(axis=1), nearest.max(axis=1), color=look.colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    figures.rule(axes, spaces.before.settling.eps, "closer counts as one point")
    figures.name_axes(axes, "step under a constant input", "distance to the nearest state")
    figures.legend(axes, columns=1)


def lasts(lifetime: float) -> str:
    """The steps that a small difference lasts, to two digits: for ever where it does not shrink."""
    if math.isinf(lifetime):
        return "for ever"
    rounded = float(f"{lifetime:.2g}")
    return f"{rounded:,.0f} steps" if rounded >= 10 else f"{rounded:g} steps"


def draw_losses(axes: Any, results: Mapping[str, Result]) -> None:
    """Validation loss by epoch."""
    for version, result in results.items():
        figures.curve(axes, *result.curve("validation_loss"), STYLES[version])
    axes.set_yscale("log")
    axes.set_ylim(top=max(3, axes.get_ylim()[1]))
    figures.rule(axes, 1.0, "answering 0 to everything")
    figures.name_axes(axes, "epoch", "validation loss (squared error)")
    figures.legend(axes)


def draw_vaa(axes: Any, results: Mapping[str, Result]) -> None:
    """VAA by epoch."""
    for version, result in results.items():
        figures.curve(axes, *result.curve("vaa"), STYLES[version])
    axes.set_ylim(0, 1.1)
    figures.rule(axes, 1 / results["warmup"].config.vaa_batch_size, "all at one point")
    figures.name_axes(axes, "epoch", "VAA (share of states)")
    figures.legend(axes)


def draw_warmup(axes: Any, results: Mapping[str, Result]) -> None:
    """VAA* at each step of the warmup."""
    for version, result in results.items():
        values = vaa_star(result)
        if values:
            figures.curve(axes, range(1, len(values) + 1), values, STYLES[version], markers=False)
    axes.set_ylim(0, 1.1)
    figures.rule(axes, results["warmup"].config.target, f"target {results['warmup'].config.target}")
    figures.name_axes(axes, "gradient step of the warmup", "VAA* (share of states)")
    figures.legend(axes)


def space_pictures(spaces: StateSpaces) -> list[dict[str, str]]:
    """The state space at each of the three times."""
    pictures = []
    for name, space in spaces.each().items():
        drawn, axes = figures.figure(4.2, 3.9)
        dots = figures.state_space(axes, space.settling, spaces.first_inputs)
        figures.name_axes(axes, "first principal component", "second principal component")
        drawn.colorbar(dots, ax=axes, label="first input of the sequence", location="bottom", shrink=0.8, aspect=30)
        about = f"{len(spaces.first_inputs)} states end {where(space.settling)}."
        pictures.append(
            {"svg": figures.svg(drawn, name, f"{TIMES[name]}: {about}"), "title": TIMES[name], "about": about}
        )
    return pictures


def where(settling: Settling) -> str:
    """Where the states end."""
    n, points = settling.states.shape[1], settling.points
    return (
        "at one point" if points == 1 else "apart from each other" if points == n else f"at {points} different points"
    )


def story(results: Mapping[str, Result], spaces: StateSpaces) -> list[str]:
    """What one sees, in sentences that follow from the numbers."""
    memory = results["warmup"].config.task.length
    return [_of_states(spaces), _of_memory(spaces.warmed, memory), _of_learning(results), _of_warmup(results)]


def _of_states(spaces: StateSpaces) -> str:
    n, steps = len(spaces.first_inputs), f"{spaces.before.settling.times[-1].item():,}"
    said = [f"The network reads {n} sequences, and then one constant input for {steps} steps."]
    for name, space in spaces.each().items():
        one = space.settling.points == 1
        lost = ": whatever was read is forgotten" if one else ""
        said.append(f"{TIMES[name]} {'all its' if one else 'its'} {n} states end {where(space.settling)}{lost}.")
    if spaces.trained.settling.points == 1:
        return " ".join(said)
    order = abs(rank_correlation(spaces.first_inputs, spaces.trained.settling.projected()[-1, :, 0].tolist()))
    lined_up = ": the network has lined up its states in the order of what they stand for" if order > 0.9 else ""
    said.append(
        "Where a state then ends along the first principal component and the number to remember have a rank "
        f"correlation of {order:.2f}{lined_up}."
    )
    return " ".join(said)


def _of_memory(space: StateSpace, memory: int) -> str:
    """What keeps the states of the warmed-up network apart, if they are, for sequences of ``memory`` steps."""
    said = f"After the warmup a small difference between two states lasts {lasts(space.lifetime)}"
    if space.settling.points == 1 or space.lifetime < memory:
        return f"{said}; the sequences have {memory}."
    return (
        f"{said}, more than the {memory} of a sequence. So the states are places on a continuum along which they "
        "hardly move, rather than separate attractors: a number can be kept there, but nothing brings back a state "
        "that noise has moved."
    )


def _of_learning(results: Mapping[str, Result]) -> str:
    losses = {version: result.results["test_loss"] for version, result in results.items()}
    said = [
        f"the {PROSE[version]} ends at a test loss of {_number(loss)} and {verdict(loss)}"
        for version, loss in losses.items()
    ]
    text = "; ".join(said) + "."
    return text[0].upper() + text[1:]


def _of_warmup(results: Mapping[str, Result]) -> str:
    said = []
    for version, result in results.items():
        if result.warmup is None:
            continue
        values = vaa_star(result)
        if not values:
            said.append(f"The warmup of the {PROSE[version]} diverged.")
            continue
        said.append(
            f"During the {len(values)} steps of its warmup, VAA* of the {PROSE[version]} was {min(values):.2f} at its "
            f"lowest and {np.mean(values[-10:]):.2f} in the last ten steps, for a target of "
            f"{result.config.target:.2f}{ENDS[result.warmup['outcome']]}."
        )
    return " ".join(said)


PROSE = {"classic": "classic network", "warmup": "warmed-up network", "double": "double-layer network"}

ENDS = {
    "multistable": "",
    "collapsed": ": all its states coincide, the warmup has failed",
    "drifting": ": many of its states keep apart for long but not for ever",
    "short": ": fewer states keep apart than were aimed at",
    "unverified": ", which the verification under more inputs did not confirm",
    "frail": ": too few states come back after noise, or to too few attractors",
    "missed": ": another share of the states keeps apart than was aimed at",
}
"""How a warmup ended, see ``ms.WarmupHistory.outcome``."""


def vaa_star(result: Result) -> list[float]:
    """VAA* at each step of the warmup, the mean over the layers; empty without a warmup, or if it diverged."""
    values = (result.warmup or {}).get("vaa_star", [])
    return [sum(layers) / len(layers) for layers in values]


def verdict(loss: float | None) -> str:
    """What a loss of the copy-first-input task means."""
    if loss is None:
        return "diverged"
    if loss < 0.05:
        return "remembers"
    if loss < 0.5:
        return "remembers in part"
    return "remembers little" if loss < 0.9 else "remembers nothing"


def seeds_in_words(recorded: Mapping[str, Any]) -> str:
    """A sentence that says how many networks of the other seeds remember."""
    said = []
    for version, losses in recorded["test_loss"].items():
        remember = sum(verdict(loss) == "remembers" for loss in losses)
        said.append(f"{remember} of the {len(losses)} {STYLES[version].label} networks")
    return f"{', '.join(said[:-1])} and {said[-1]} remember, that is, end below 0.05."


def _number(value: float | None) -> str:
    return "infinity" if value is None else f"{value:.3g}"


def other_seeds(config: RunConfig) -> dict[str, Any] | None:
    """The results of other seeds with the same settings; ``None`` if there are none with these."""
    recorded = json.loads(resources.files(__package__).joinpath(SEEDS).read_text())
    return recorded if recorded["key"] == key_of(config) else None


def key_of(config: RunConfig) -> str:
    """The key of the demo's settings, which is the same for every seed and version."""
    return replace(config, seed=0, version="warmup").key
