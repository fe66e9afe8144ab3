"""Claims on the warmup and the double layer (section 6)."""

import statistics
from collections.abc import Sequence
from itertools import product

from multistable.experiments.claims.base import (
    Check,
    Claim,
    above,
    as_low,
    below,
    by,
    covering,
    diverges,
    forgets_long,
    less,
    mostly,
    settings,
    spread_of_runs,
)
from multistable.experiments.claims.learning import BISTABLE, MONOSTABLE
from multistable.experiments.experiment import Result, Spread, kind_of
from multistable.tasks import CopyFirstInput, Denoising, PermutedLineSequentialMNIST, PermutedSequentialMNIST
from multistable.tasks.permuted_mnist import PermutedMNIST

Losses = dict[object, Spread | None]

UNLEARNED = 0.5
"""Above this loss a network has not learned; without any memory the loss is 1."""
LOWEST, HIGHEST = 0.25, 0.95
"""The lowest and the highest k of the paper."""


def on(results: Sequence[Result], *tasks: type) -> list[Result]:
    """The runs on some kinds of tasks with k = 0.95 and, if there was a warmup, with a warmup on the data."""
    chosen = [r for r in results if isinstance(r.config.task, tasks)]
    return [r for r in chosen if r.config.target == 0.95 and r.config.warmup_sequences == "data"]


def by_kind(results: Sequence[Result], task: object, quantity: str = "test_loss") -> Losses:
    """The spread for each cell and version on one task."""
    chosen = [r for r in results if r.config.task == task]
    return by(chosen, kind_of, quantity)


def course(results: Sequence[Result]) -> list[Check]:
    """C8: VAA* of each layer at the end of the warmup, and VAA after it."""
    chosen = [r for r in on(results, Denoising) if r.config.cell == "gru" and r.config.version == "warmup" and r.warmup]
    checks = []
    for layer in range(max((r.config.num_layers for r in chosen), default=0)):
        ends = spread_of_runs(_last_vaa_star(r, layer) for r in chosen if r.config.num_layers > layer)
        checks.append(above(f"gru, layer {layer + 1}, VAA* in the last ten steps", ends, 0.85))
    vaa = by(chosen, lambda config: config.cell, "initial_vaa")
    return [*checks, above("gru, VAA after warmup", vaa["gru"], 0.9)]


def _last_vaa_star(result: Result, layer: int) -> float | None:
    """VAA* of a layer, the mean over the last ten steps of a warmup; ``None`` if the warmup diverged."""
    steps = (result.warmup or {}).get("vaa_star")
    return None if steps is None else statistics.fmean(step[layer] for step in steps[-10:])


def copy(results: Sequence[Result]) -> list[Check]:
    """C9: test losses of classic and warmed-up networks at each sequence length."""
    chosen = on(results, CopyFirstInput)
    checks = covering(chosen, 3)
    for task in settings(chosen):
        loss = by_kind(chosen, task)
        checks += [above(f"{task}, {cell} classic, test loss", loss[cell, "classic"], UNLEARNED) for cell in MONOSTABLE]
        checks += [below(f"{task}, {cell} warmed up, test loss", loss[cell, "warmup"], 0.001) for cell in MONOSTABLE]
    return checks


def chrono(results: Sequence[Result]) -> list[Check]:
    """C10: test losses of chrono, classic and warmed up."""
    chosen = on(results, CopyFirstInput, Denoising)
    checks = covering(chosen, 5)
    for task in settings(chosen):
        loss = by_kind(chosen, task)
        names = f"{task}, chrono classic", "chrono warmed up"
        checks.append(less(names, (loss["chrono", "classic"], loss["chrono", "warmup"])))
    return checks


def denoising(results: Sequence[Result]) -> list[Check]:
    """C11: test losses of classic and warmed-up networks with each forgetting period."""
    chosen = on(results, Denoising)
    checks = covering(chosen, 2)
    for task in settings(chosen):
        loss = by_kind(chosen, task)
        for cell in MONOSTABLE:
            values = loss[cell, "warmup"], loss[cell, "classic"]
            checks.append(less((f"{task}, {cell} warmed up", f"{cell} classic"), values))
    return checks


def sequential_mnist(results: Sequence[Result]) -> list[Check]:
    """C13: accuracies of classic and warmed-up networks."""
    chosen, checks = on(results, PermutedSequentialMNIST), []
    for task in settings(chosen):
        right = by_kind(chosen, task, "test_accuracy")
        for cell in ("lstm", "gru"):
            values = right[cell, "warmup"], right[cell, "classic"]
            checks.append(less((f"{task}, accuracy of {cell} warmed up", f"{cell} classic"), values))
        values = right["mgu", "warmup"], right["mgu", "classic"]
        checks.append(less((f"{task}, accuracy of mgu warmed up", "mgu classic"), values, factor=1.005))
    return checks


def line_mnist(results: Sequence[Result]) -> list[Check]:
    """C14, for the shorter forgetting period, once there are results for both."""
    chosen = on(results, PermutedLineSequentialMNIST)
    checks = covering(chosen, 2)
    if checks:
        return checks
    task = settings(chosen)[0]
    right = by_kind(chosen, task, "test_accuracy")
    for cell in MONOSTABLE:
        values = right[cell, "warmup"], right[cell, "classic"]
        checks.append(less((f"{task}, accuracy of {cell} warmed up", f"{cell} classic"), values))
    return checks


def double(results: Sequence[Result]) -> list[Check]:
    """C15: the loss of a double layer is as low as those of the others, its accuracy at most 1% below theirs."""
    chosen = on(results, CopyFirstInput, Denoising, PermutedMNIST)
    checks = covering(chosen, 8)
    for task in settings(chosen):
        classifies = isinstance(task, PermutedMNIST)
        values = by_kind(chosen, task, "test_accuracy" if classifies else "test_loss")
        for cell in MONOSTABLE:
            mine = values[cell, "double"]
            others = {f"{cell} classic": values[cell, "classic"], f"{cell} warmed up": values[cell, "warmup"]}
            if classifies:
                checks += [
                    less((f"{task}, accuracy of {name}", f"{cell} double"), (its, mine), factor=1.01)
                    for name, its in others.items()
                ]
            else:
                checks += as_low(f"{task}, {cell} double", mine, others, UNLEARNED)
    return checks


def double_on_long_line_mnist(results: Sequence[Result]) -> list[Check]:
    """C16, for every cell that has a double layer and the longer forgetting period, once there are results for both."""
    chosen = on(results, PermutedLineSequentialMNIST)
    checks = covering(chosen, 2)
    if checks:
        return checks
    task = settings(chosen)[-1]
    right = by_kind(chosen, task, "test_accuracy")
    for cell, version in product((*MONOSTABLE, "chrono"), ("classic", "warmup")):
        names = f"{task}, accuracy of {cell} {version}", f"{cell} double"
        checks.append(less(names, (right[cell, version], right[cell, "double"]), clearly=True))
    return checks


def double_is_faster(results: Sequence[Result]) -> list[Check]:
    """C17: the mean validation loss over all epochs, for the longer forgetting period."""
    chosen, checks = on(results, Denoising), []
    for task in filter(forgets_long, settings(chosen)):
        for cell in ("gru", "mgu"):
            means = []
            for version in ("double", "warmup"):
                runs = [r for r in chosen if (r.config.task, r.config.cell, r.config.version) == (task, cell, version)]
                means.append(spread_of_runs(map(_mean_loss, runs)))
            names = f"{task}, {cell} double, mean validation loss of all epochs", f"{cell} warmed up"
            checks.append(less(names, (means[0], means[1])))
    return checks


def _mean_loss(result: Result) -> float | None:
    """The mean validation loss over all epochs; ``None`` if it is not finite in one of them."""
    losses = result.curve("validation_loss")[1]
    return None if diverges(result, "validation_loss") or not losses else statistics.fmean(losses)


def double_without_warmup(results: Sequence[Result]) -> list[Check]:
    """C18: "generally" means in more than half of the cases. A case is a cell on one of five tasks."""
    chosen, cells, cases = on(results, CopyFirstInput, Denoising), (*MONOSTABLE, "chrono", *BISTABLE), []
    for task in settings(chosen):
        loss = by_kind(chosen, task)
        for cell in cells:
            names = f"{task}, {cell} classic", "double without warmup"
            cases.append(less(names, (loss[cell, "classic"], loss[cell, "double-classic"])))
    return [mostly("the double layer without warmup is worse", cases, 5 * len(cells))]


def impact_of_k(results: Sequence[Result]) -> list[Check]:
    """C22: the highest k of the paper has a lower error than the lowest, for LSTM, GRU and MGU and each T."""
    chosen = [r for r in results if isinstance(r.config.task, CopyFirstInput) and r.config.version == "warmup"]
    checks = covering(chosen, 3)
    for task in settings(chosen):
        loss = by(
            [r for r in chosen if r.config.task == task], lambda config: (config.cell, config.target), "test_loss"
        )
        for cell in MONOSTABLE:
            names = f"{task}, {cell}, k = {HIGHEST:g}", f"k = {LOWEST:g}"
            checks.append(less(names, (loss[cell, HIGHEST], loss[cell, LOWEST])))
    return checks


CLAIMS = (
    Claim(
        "C8", "Warmup takes each layer's VAA* to about 0.95 and VAA to about 1", ("fig:warmup_denoising_gru",), course
    ),
    Claim(
        "C9",
        "Copy: classic LSTM, GRU and MGU stay above 0.5, warmed up they end below 0.001, at every T",
        ("tab:warmup_bench1_nodouble",),
        copy,
    ),
    Claim(
        "C10",
        "Copy and denoising: chrono is better without warmup",
        ("tab:warmup_bench1_nodouble", "tab:warmup_bench2_nodouble"),
        chrono,
    ),
    Claim("C11", "Denoising: warmed up is better than classic", ("tab:warmup_bench2_nodouble",), denoising),
    Claim(
        "C13",
        "Permuted sequential MNIST: warmup does not help, LSTM and GRU get worse",
        ("tab:warmup_bench3_nodouble",),
        sequential_mnist,
    ),
    Claim(
        "C14",
        "Permuted line-sequential MNIST, N = 72: classic is better than warmed up",
        ("tab:warmup_bench4_nodouble",),
        line_mnist,
    ),
    Claim(
        "C15",
        "The double layer is among the best everywhere",
        tuple(f"tab:warmup_bench{number}" for number in (1, 2, 3, 4)),
        double,
    ),
    Claim(
        "C16",
        "Permuted line-sequential MNIST, N = 472: the double layer is clearly best",
        ("tab:warmup_bench4",),
        double_on_long_line_mnist,
    ),
    Claim(
        "C17",
        "Denoising, N = 100: double GRU and MGU learn faster than warmed-up ones",
        ("fig:denoising_double_warmup",),
        double_is_faster,
    ),
    Claim(
        "C18",
        "The double layer without warmup is generally worse than classic",
        ("app:dlu_control",),
        double_without_warmup,
    ),
    Claim(
        "C22",
        f"The higher k, the lower the copy error: with k = {HIGHEST:g} it is below that with k = {LOWEST:g}",
        ("app:impact_k",),
        impact_of_k,
    ),
)
