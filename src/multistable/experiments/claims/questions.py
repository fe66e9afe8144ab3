"""Questions that the paper's conclusion leaves open, each with an answer that is judged like a claim."""

from collections.abc import Sequence

from multistable.experiments.claims.base import Check, Claim, above, as_low, by, covering, less, settings, title
from multistable.experiments.claims.learning import BISTABLE, MONOSTABLE
from multistable.experiments.claims.warming import Losses
from multistable.experiments.experiment import Result
from multistable.tasks import CopyFirstInput, Denoising
from multistable.training import Config, RunConfig

AT_REST = 0.95
"""If this share of the states is at fixed points, the others are exceptions."""
KINDS = (
    *((cell, version) for cell in (*MONOSTABLE, "chrono") for version in ("classic", "warmup", "double")),
    *((cell, "classic") for cell in BISTABLE),
)
TIMES = {"initial": "before training", "final": "after training"}


def preparation(config: Config) -> str:
    """The version of a run, or ``"random"`` where it was warmed up on random sequences."""
    random = isinstance(config, RunConfig) and config.version == "warmup" and config.warmup_sequences == "random"
    return "random" if random else config.version


def random_sequences(results: Sequence[Result]) -> list[Check]:
    """Q1: a loss below that of classic networks, and at most twice that of warmup on the data, or below 0.01."""
    random = [r for r in results if preparation(r.config) == "random"]
    checks = covering(random, 3)
    for task in settings(random):
        there = [r for r in results if r.config.task == task]
        loss: Losses = by(there, lambda config: (config.cell, preparation(config)), "test_loss")
        for cell in MONOSTABLE:
            mine, name = loss[cell, "random"], f"{title(task)}, {cell} warmed up on random sequences"
            checks += as_low(name, mine, {"on the data": loss[cell, "warmup"]})
            checks.append(less((name, f"{cell} classic"), (mine, loss[cell, "classic"])))
    return checks


def fixed_points(results: Sequence[Result]) -> list[Check]:
    """Q2: the settled states of every kind of network are at fixed points, before and after training."""
    told = [
        r
        for r in results
        if isinstance(r.config.task, CopyFirstInput | Denoising) and r.results.get("final_fixed_points") is not None
    ]
    checks = covering(told, 2)
    for task in settings(told):
        there = [r for r in told if r.config.task == task]
        for time, when in TIMES.items():
            shares, cycles = (
                by(there, lambda config: (config.cell, preparation(config)), f"{time}_{quantity}")
                for quantity in ("fixed_points", "cycles")
            )
            for cell, version in KINDS:
                on_cycles = cycles[cell, version]
                others = "" if on_cycles is None else f", with {on_cycles} on cycles and the rest moving"
                name = f"{title(task)}, {cell} {version}, share of states at fixed points {when}{others}"
                checks.append(above(name, shares[cell, version], AT_REST))
    return checks


CLAIMS = (
    Claim("Q1", "Warming up on random sequences serves as well as on the data", ("sec:conclusion",), random_sequences),
    Claim(
        "Q2",
        "Settled states are at fixed points, neither on cycles nor still moving",
        ("sec:conclusion",),
        fixed_points,
        why=(
            "A warmup makes differences between states last very long rather than states at rest: almost all "
            "states of warmed-up networks, and of networks that have learned, still move ([two "
            "questions](results/questions.md#q2-which-settled-states-are-fixed-points-and-which-lie-on-cycles))."
        ),
    ),
)
