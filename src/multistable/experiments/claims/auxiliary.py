"""Claims on auxiliary losses (appendix H)."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from multistable.experiments.claims.base import (
    Answer,
    Check,
    Claim,
    below,
    by,
    covering,
    less,
    mostly,
    settings,
    spread_of_runs,
    title,
)
from multistable.experiments.claims.learning import MONOSTABLE, MULTISTABLE
from multistable.experiments.claims.warming import on
from multistable.experiments.experiment import Result, Spread, task_of
from multistable.tasks import CopyFirstInput, Denoising, PermutedLineSequentialMNIST, Task

LOW = 0.1
"""Below this loss a network has learned denoising; without any memory the loss is 1."""
TASKS: dict[type[Task], int] = {CopyFirstInput: 3, Denoising: 2, PermutedLineSequentialMNIST: 2}
"""The tasks of the appendix, each with the number of its settings there."""


class Cost(NamedTuple):
    """The gradient steps of a run before its training, and its share of the seconds that its group took for them.

    The seconds do not include measures: those after each epoch of a pretraining, and the one after a warmup.
    """

    seconds: float
    steps: int


def cost(result: Result) -> Cost | None:
    """The cost of a run's warmup or pretraining; ``None`` if it had neither, or if the time is not known."""
    pretraining = result.record.get("pretraining")
    if pretraining is not None:
        return Cost(pretraining["seconds"] / result.record["together"], pretraining["steps"])
    if result.warmup is not None and "step_seconds" in result.warmup:
        return Cost(result.warmup["step_seconds"] / result.warmup["together"], len(result.warmup["vaa_star"]))
    return None


def costs(entries: Sequence[Cost]) -> tuple[Spread, Spread]:
    """The spreads of the seconds and of the steps."""
    return Spread.of(entry.seconds for entry in entries), Spread.of(entry.steps for entry in entries)


def pretrained(results: Sequence[Result]) -> list[Result]:
    """The runs with a pretraining on the reconstruction loss."""
    return [r for r in results if r.config.version == "auxiliary" and not r.config.looks_ahead and r.config.pretraining]


def vaa_of_pretraining(result: Result) -> tuple[float, float] | None:
    """VAA before and after the pretraining; ``None`` unless both were measured."""
    epochs, values = result.curve("vaa")
    vaa = dict(zip(epochs, values, strict=True))
    ends = vaa.get(0), vaa.get(result.config.pretraining)
    return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def promotes_multistability(results: Sequence[Result]) -> list[Check]:
    """C23: "most" means more than half of all cases. A case is a cell on a task."""
    chosen = pretrained(results)
    cases = [_risen(chosen, task, cell) for task, cell in product(settings(chosen), MONOSTABLE)]
    expected = sum(TASKS.values()) * len(MONOSTABLE)
    return [mostly("VAA rises in the pretraining", cases, expected), *_denoising_of_grus(chosen)]


def _risen(chosen: Sequence[Result], task: Task, cell: str) -> Check:
    ends = [vaa_of_pretraining(r) for r in chosen if r.config.task == task and r.config.cell == cell]
    before, after = (spread_of_runs(None if pair is None else pair[i] for pair in ends) for i in (0, 1))
    return less((f"{title(task)}, {cell}, VAA before pretraining", "after"), (before, after), 1 / MULTISTABLE)


def _denoising_of_grus(chosen: Sequence[Result]) -> list[Check]:
    grus = [r for r in chosen if isinstance(r.config.task, Denoising) and r.config.cell == "gru"]
    loss = by(grus, task_of, "test_loss")
    learned = [below(f"{title(task)}, gru, test loss after pretraining", loss[task], LOW) for task in settings(grus)]
    lacking = [Check(f"Denoising, gru: {check.said}", Answer.OPEN) for check in covering(grus, TASKS[Denoising])]
    return [*lacking, *learned]


def warmup_is_cheap(results: Sequence[Result]) -> list[Check]:
    """C24: compares seconds and steps for each cell, on every task with pretrained networks."""
    before = {"warmup": on(results, *TASKS), "pretraining": pretrained(results)}
    checks = []
    for task, cell in product(settings(before["pretraining"]), MONOSTABLE):
        both = []
        for version, runs in zip(("warmup", "auxiliary"), before.values(), strict=True):
            mine = [r for r in runs if (r.config.task, r.config.cell, r.config.version) == (task, cell, version)]
            known = [entry for entry in map(cost, mine) if entry is not None]
            both.append(costs(known) if known else (None, None))
        for what, *spreads in zip(("seconds", "gradient steps"), *both, strict=True):
            names = f"{title(task)}, {cell}, {what} of a warmup", "of a pretraining"
            checks.append(less(names, (spreads[0], spreads[1])))
    return checks


CLAIMS = (
    Claim(
        "C23",
        "Reconstruction losses raise VAA in pretraining in most cases; GRU then learns denoising at both N",
        ("app:aux_losses",),
        promotes_multistability,
    ),
    Claim(
        "C24",
        "Warmup is cheap: 100 gradient steps against 20 epochs of pretraining",
        ("app:aux_losses",),
        warmup_is_cheap,
    ),
)
