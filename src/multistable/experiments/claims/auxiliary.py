"""Claims on auxiliary losses (appendix H)."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from multistable.experiments.claims.base import Check, Claim, below, by, covering, less, settings
from multistable.experiments.claims.learning import MONOSTABLE, MULTISTABLE
from multistable.experiments.claims.warming import on
from multistable.experiments.experiment import Result, Spread
from multistable.tasks import CopyFirstInput, Denoising, PermutedLineSequentialMNIST

LOW = 0.1
"""A loss below which denoising is learned; without any memory it is 1."""
TASKS = {CopyFirstInput: 3, Denoising: 2, PermutedLineSequentialMNIST: 2}
"""What the appendix has, and in how many settings."""


class Cost(NamedTuple):
    """What a run did before its training: gradient steps, and its share of the seconds that these took together.

    Measures are not part of it, neither those after each epoch of a pretraining nor that after a warmup.
    """

    seconds: float
    steps: int


def cost(result: Result) -> Cost | None:
    """That of a warmup or a pretraining, where there was one and its time is known."""
    pretraining = result.record.get("pretraining")
    if pretraining is not None:
        return Cost(pretraining["seconds"] / result.record["together"], pretraining["steps"])
    if result.warmup is not None and "step_seconds" in result.warmup:
        return Cost(result.warmup["step_seconds"] / result.warmup["together"], len(result.warmup["loss"]))
    return None


def costs(entries: Sequence[Cost]) -> tuple[Spread, Spread]:
    """The spread of seconds and of steps."""
    return Spread.of(entry.seconds for entry in entries), Spread.of(entry.steps for entry in entries)


def pretrained(results: Sequence[Result]) -> list[Result]:
    """The runs with a pretraining on the reconstruction loss."""
    return [r for r in results if r.config.version == "auxiliary" and not r.config.looks_ahead and r.config.pretraining]


def vaa_of_pretraining(result: Result) -> tuple[float, float] | None:
    """VAA before and after it, where both were measured."""
    epochs, values = result.curve("vaa")
    vaa = dict(zip(epochs, values, strict=True))
    ends = vaa.get(0), vaa.get(result.config.pretraining)
    return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def promotes_multistability(results: Sequence[Result]) -> list[Check]:
    """C23: "most" is more than half of all cases, a case being a cell on a task."""
    chosen, lacking, risen, said = pretrained(results), [], [], []
    for kind, expected in TASKS.items():
        on_kind = [r for r in chosen if isinstance(r.config.task, kind)]
        lacking += [Check(f"{kind.__name__}: {check.said}", None) for check in covering(on_kind, expected)]
    for task in settings(chosen):
        for cell in MONOSTABLE:
            runs = [r for r in chosen if r.config.task == task and r.config.cell == cell]
            ends = [pair for pair in map(vaa_of_pretraining, runs) if pair is not None]
            before, after = (Spread.of(pair[i] for pair in ends) if ends else None for i in (0, 1))
            check = less((f"{task}, {cell}, VAA before pretraining", "after"), (before, after), 1 / MULTISTABLE)
            said.append(check.said)
            risen += [check.right] if check.right is not None else []
            lacking += [] if check.right is not None else [Check(f"{task}, {cell}: too few runs", None)]
    most = sum(risen) > len(risen) / 2 if risen and not lacking else None
    summary = f"VAA rises in the pretraining in {sum(risen)} of {len(risen)} cases"
    return [*lacking, Check("; ".join([summary, *said]), most), *_denoising_of_grus(chosen)]


def _denoising_of_grus(chosen: Sequence[Result]) -> list[Check]:
    grus = [r for r in chosen if isinstance(r.config.task, Denoising) and r.config.cell == "gru"]
    loss = by(grus, lambda config: config.task, "test_loss")
    return [below(f"{task}, gru, test loss after pretraining", loss[task], LOW) for task in settings(grus)]


def warmup_is_cheap(results: Sequence[Result]) -> list[Check]:
    """C24: seconds and steps of each cell, on every task that networks were pretrained on."""
    before = {"warmup": on(results, *TASKS), "pretraining": pretrained(results)}
    checks = []
    for task, cell in product(settings(before["pretraining"]), MONOSTABLE):
        both = []
        for version, runs in zip(("warmup", "auxiliary"), before.values(), strict=True):
            mine = [r for r in runs if (r.config.task, r.config.cell, r.config.version) == (task, cell, version)]
            known = [entry for entry in map(cost, mine) if entry is not None]
            both.append(costs(known) if known else (None, None))
        for what, *spreads in zip(("seconds", "gradient steps"), *both, strict=True):
            names = f"{task}, {cell}, {what} of a warmup", "of a pretraining"
            checks.append(less(names, (spreads[0], spreads[1])))
    return checks


CLAIMS = (
    Claim(
        "C23",
        "Reconstruction losses raise VAA in pretraining in most cases; GRU then learns denoising at both N",
        "app:aux_losses",
        promotes_multistability,
    ),
    Claim(
        "C24",
        "Warmup is cheap: 100 gradient steps against 20 epochs of pretraining",
        "app:aux_losses",
        warmup_is_cheap,
    ),
)
