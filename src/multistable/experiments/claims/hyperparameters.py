"""Claims on other and on selected hyperparameters (section 6.4, appendices E and F)."""

import math
from collections.abc import Sequence
from itertools import product

from multistable.experiments.claims.base import Answer, Check, Claim, all_of, by, less, title
from multistable.experiments.claims.learning import FOLLOWS, MONOSTABLE, learning_follows_vaa, some_learn
from multistable.experiments.experiment import Kind, Result, Spread, kind_of
from multistable.experiments.paper import printed
from multistable.experiments.selection import Setting, setting_of
from multistable.tasks import CopyFirstInput, Denoising, PermutedLineSequentialMNIST
from multistable.training import RunConfig

SETTINGS = 16
"""How many settings appendix E has."""

TABLES: tuple[tuple[type, str, printed.Table], ...] = (
    (Denoising, "test_loss", printed.DENOISING),
    (PermutedLineSequentialMNIST, "test_accuracy", printed.LINE_MNIST),
)


def selected(results: Sequence[Result]) -> list[Check]:
    """C19: warmed-up and double layers are better or worse than classic ones as in the paper's tables.

    It compares the final runs: those on one learning set without a part for selection.
    """
    supervised = [r for r in results if isinstance(r.config, RunConfig)]
    chosen = [r for r in supervised if r.config.data_seed is not None and r.config.selection == 0]
    checks = []
    for task, quantity, table in TABLES:
        runs = [r for r in chosen if isinstance(r.config.task, task)]
        values = by(runs, kind_of, quantity)
        for lower, higher in _orders(table):
            names = f"{title(task)}, {quantity.replace('_', ' ')} of {' '.join(lower)}", " ".join(higher)
            checks.append(less(names, (values[lower], values[higher])))
    return checks


def _orders(table: printed.Table) -> list[tuple[Kind, Kind]]:
    """Pairs of the classic and another version of a cell, the lower printed mean first.

    Pairs of means less than a standard error apart are left out: chance may have decided their order.
    """
    found = []
    for cell, version in table:
        pair = (cell, "classic"), (cell, version)
        first, second = (Spread(*table[kind][1:], printed.RUNS) for kind in pair)
        if abs(first.mean - second.mean) > math.hypot(first.error, second.error):
            found.append(pair if first.mean < second.mean else pair[::-1])
    return found


def other_settings(results: Sequence[Result]) -> list[Check]:
    """C20: learning follows VAA in every setting, for the shortest sequences."""
    chosen = [
        r
        for r in results
        if isinstance(r.config.task, CopyFirstInput) and r.config.version == "classic" and r.config.cell in MONOSTABLE
    ]
    shortest = min((r.config.task.length for r in chosen), default=0)
    chosen = [r for r in chosen if r.config.task.length == shortest]
    found = dict.fromkeys(setting_of(r.config) for r in chosen)
    checks = [] if len(found) >= SETTINGS else [Check(f"{len(found)} of {SETTINGS} settings", Answer.OPEN)]
    for setting, cell in product(found, MONOSTABLE):
        alike = [r for r in chosen if setting_of(r.config) == setting and r.config.cell == cell]
        checks.append(all_of(f"{cell}, {_said(setting)}", [learning_follows_vaa(r) for r in alike], FOLLOWS))
    return [*some_learn(chosen), *checks]


def warmup_in_other_settings(results: Sequence[Result]) -> list[Check]:
    """C21, for the longer forgetting period."""
    chosen = [r for r in results if isinstance(r.config.task, PermutedLineSequentialMNIST) and r.config.cell == "gru"]
    chosen = [r for r in chosen if r.config.data_seed is None]
    longest = max((r.config.task.length for r in chosen), default=0)
    chosen = [r for r in chosen if r.config.task.length == longest]
    found = dict.fromkeys(setting_of(r.config) for r in chosen)
    checks = [] if len(found) >= SETTINGS else [Check(f"{len(found)} of {SETTINGS} settings", Answer.OPEN)]
    for setting in found:
        alike = [r for r in chosen if setting_of(r.config) == setting]
        right = by(alike, lambda config: config.version, "test_accuracy")
        for version in ("warmup", "double"):
            names = f"{_said(setting)}, accuracy of classic", version
            checks.append(less(names, (right["classic"], right[version])))
    return checks


def _said(setting: Setting) -> str:
    layers, units, rate, batch = setting
    return f"{layers} x {units}, learning rate {rate:g}, batch {batch}"


CLAIMS = (
    Claim(
        "C19",
        "With selected hyperparameters warmed-up and double layers are better or worse than classic ones as in the "
        "paper's two tables, where these are more than a standard error apart",
        ("tab:hp_denoising", "tab:hp_mnist"),
        selected,
    ),
    Claim(
        "C20",
        "The link between VAA and learning holds for other hyperparameters",
        ("app:generalisation_vaa",),
        other_settings,
    ),
    Claim(
        "C21",
        "Warmup and double layers improve on a classic GRU in the same settings",
        ("app:generalisation_warmup",),
        warmup_in_other_settings,
    ),
)
