"""The page of the demo: pictures, a table, and sentences that follow from the numbers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from multistable.experiments import figures
from multistable.experiments.experiment import Result
from multistable.experiments.figures import STYLES
from multistable.experiments.page import write_page
from multistable.experiments.settling import Settling
from multistable.training import RunConfig

TIMES = {"before": "Before the warmup", "warmed": "After the warmup", "trained": "After training"}
"""When the states of :class:`StateSpaces` are looked at."""

WARMUP = (
    "The differentiable proxy of VAA, on which the gradient steps act. The stabilisation period grows with the steps: "
    "at first the states have hardly begun to settle, and a high value means little."
)

SEEDS = "demo_seeds.json"
"""What other seeds gave, in this folder."""


@dataclass(frozen=True)
class StateSpaces:
    """How the same sequences settle in a network at three times.

    Attributes:
        first_inputs: what the network has to remember of each sequence.
        before: with the initial weights.
        warmed: after the warmup.
        trained: after training.
    """

    first_inputs: list[float]
    before: Settling
    warmed: Settling
    trained: Settling


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
        charts=charts(results),
        spaces=space_pictures(spaces),
        story=story(results, spaces),
        seeds=recorded,
        chosen=chosen,
        seeds_in_words=None if recorded is None else seeds_in_words(recorded),
        seconds=sum({r.config.goes_with().name: r.record["seconds"] for r in results.values()}.values()),
        record=results["warmup"].record,
    )


def charts(results: Mapping[str, Result]) -> list[dict[str, str]]:
    """Losses and VAA by epoch, VAA* during the warmup: each a picture and what it shows."""
    loss, axes = figures.figure(4.6, 3.4)
    draw_losses(axes, results)
    vaa, axes = figures.figure(4.6, 3.4)
    draw_vaa(axes, results)
    warmup, axes = figures.figure(4.6, 3.4)
    draw_warmup(axes, results)
    shown = {
        "loss": (loss, "Validation loss by epoch", "Squared error on sequences not trained on. Lower is better."),
        "vaa": (vaa, "VAA by epoch", "The share of states with an attractor of their own. Epoch 0 is before training."),
        "warmup": (warmup, "VAA* during the warmup", WARMUP),
    }
    return [
        {"svg": figures.svg(drawn, name, f"{title}. {about}"), "title": title, "about": about}
        for name, (drawn, title, about) in shown.items()
    ]


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
    figures.rule(axes, 1 / results["warmup"].config.vaa_batch_size, "one attractor for all")
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
    for name, title in TIMES.items():
        shown: Settling = getattr(spaces, name)
        drawn, axes = figures.figure(4.2, 3.9)
        dots = figures.state_space(axes, shown, spaces.first_inputs)
        figures.name_axes(axes, "first principal component", "second principal component")
        drawn.colorbar(dots, ax=axes, label="first input of the sequence", location="bottom", shrink=0.8, aspect=30)
        about = f"{shown.states.shape[1]} states, {attractors(shown)}"
        pictures.append({"svg": figures.svg(drawn, name, f"{title}: {about}"), "title": title, "about": about})
    return pictures


def attractors(shown: Settling) -> str:
    """How many, in words."""
    return "1 attractor" if shown.attractors == 1 else f"{shown.attractors} attractors"


def story(results: Mapping[str, Result], spaces: StateSpaces) -> list[str]:
    """What one sees, in sentences that follow from the numbers."""
    return [_of_states(spaces), _of_learning(results), _of_warmup(results)]


def _of_states(spaces: StateSpaces) -> str:
    n = len(spaces.first_inputs)
    before, warmed, trained = (s.attractors for s in (spaces.before, spaces.warmed, spaces.trained))
    forgotten = f"all {n} states end at one point, and whatever was read is forgotten"
    order = abs(rank_correlation(spaces.first_inputs, spaces.trained.projected()[-1, :, 0].tolist()))
    kept = f"{n} states end at {{}} different points: what was read leaves a trace that lasts"
    return (
        f"Before the warmup, under a constant input, {forgotten if before == 1 else kept.format(before)}. "
        f"After it, {forgotten if warmed == 1 else kept.format(warmed)}. "
        f"After training there {'is 1' if trained == 1 else f'are {trained}'}. Where a state ends along the first "
        f"principal component and the number to remember have a rank correlation of {order:.2f}"
        f"{': the network has lined up its attractors in the order of what they stand for' if order > 0.9 else ''}."
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
            f"{result.config.target:.2f}; the true VAA was {result.warmup['vaa']:.2f} at the end"
            f"{ENDS[result.warmup['outcome']]}."
        )
    return " ".join(said)


PROSE = {"classic": "classic network", "warmup": "warmed-up network", "double": "double-layer network"}

ENDS = {
    "multistable": "",
    "collapsed": ": all its states coincide, the warmup has failed",
    "drifting": ": many of its states keep apart for long but not for ever",
    "short": ": fewer attractors than were aimed at",
    "unverified": ", which the verification under more inputs did not find",
    "missed": ": not the share of attractors that was wanted",
}
"""How a warmup ended, see ``ms.WarmupHistory.outcome``."""


def vaa_star(result: Result) -> list[float]:
    """VAA* at each step of the warmup, the mean over the layers; none where it had no warmup or that diverged."""
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


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rank correlation, for values without ties."""
    ranks = np.argsort(np.argsort([x, y]))
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def seeds_in_words(recorded: Mapping[str, Any]) -> str:
    """How many of the other seeds ended as one should expect."""
    said = []
    for version, losses in recorded["test_loss"].items():
        remember = sum(verdict(loss) == "remembers" for loss in losses)
        said.append(f"{remember} of the {len(losses)} {STYLES[version].label} networks")
    return f"{', '.join(said[:-1])} and {said[-1]} remember, that is, end below 0.05."


def _number(value: float | None) -> str:
    return "infinity" if value is None else f"{value:.3g}"


def other_seeds(config: RunConfig) -> dict[str, Any] | None:
    """What other seeds gave with the same settings; ``None`` where they were not tried with these."""
    recorded = json.loads(resources.files(__package__).joinpath(SEEDS).read_text())
    return recorded if recorded["key"] == key_of(config) else None


def key_of(config: RunConfig) -> str:
    """What tells one setting of the demo from another, whatever the seed and the version."""
    return replace(config, seed=0, version="warmup").key
