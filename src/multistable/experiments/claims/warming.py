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
    title,
)
from multistable.experiments.claims.learning import BISTABLE, MONOSTABLE
from multistable.experiments.experiment import Result, Spread, cell_of, kind_of
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


def warmed_below_classic(named: str, cell: str, values: Losses, factor: float = 1.0) -> Check:
    """Whether the mean of warmed-up networks of a cell is below ``factor`` times that of classic ones."""
    names = f"{named} {cell} warmed up", f"{cell} classic"
    return less(names, (values[cell, "warmup"], values[cell, "classic"]), factor)


def course(results: Sequence[Result]) -> list[Check]:
    """C8: VAA* of each layer at the end of the warmup, and VAA after it."""
    chosen = [r for r in on(results, Denoising) if r.config.cell == "gru" and r.config.version == "warmup" and r.warmup]
    checks = []
    for layer in range(max((r.config.num_layers for r in chosen), default=0)):
        ends = spread_of_runs(_last_vaa_star(r, layer) for r in chosen if r.config.num_layers > layer)
        checks.append(above(f"gru, layer {layer + 1}, VAA* in the last ten steps", ends, 0.85))
    vaa = by(chosen, cell_of, "initial_vaa")
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
        loss, named = by_kind(chosen, task), title(task)
        checks += [
            above(f"{named}, {cell} classic, test loss", loss[cell, "classic"], UNLEARNED) for cell in MONOSTABLE
        ]
        checks += [below(f"{named}, {cell} warmed up, test loss", loss[cell, "warmup"], 0.001) for cell in MONOSTABLE]
    return checks


def chrono(results: Sequence[Result]) -> list[Check]:
    """C10: test losses of chrono, classic and warmed up."""
    chosen = on(results, CopyFirstInput, Denoising)
    checks = covering(chosen, 5)
    for task in settings(chosen):
        loss = by_kind(chosen, task)
        names = f"{title(task)}, chrono classic", "chrono warmed up"
        checks.append(less(names, (loss["chrono", "classic"], loss["chrono", "warmup"])))
    return checks


def denoising(results: Sequence[Result]) -> list[Check]:
    """C11: test losses of classic and warmed-up networks with each forgetting period."""
    chosen = on(results, Denoising)
    checks = covering(chosen, 2)
    for task in settings(chosen):
        loss = by_kind(chosen, task)
        checks += [warmed_below_classic(f"{title(task)},", cell, loss) for cell in MONOSTABLE]
    return checks


def sequential_mnist(results: Sequence[Result]) -> list[Check]:
    """C13: accuracies of classic and warmed-up networks."""
    chosen, checks = on(results, PermutedSequentialMNIST), []
    for task in settings(chosen):
        right = by_kind(chosen, task, "test_accuracy")
        for cell, factor in (("lstm", 1.0), ("gru", 1.0), ("mgu", 1.005)):
            checks.append(warmed_below_classic(f"{title(task)}, accuracy of", cell, right, factor))
    return checks


def line_mnist(results: Sequence[Result]) -> list[Check]:
    """C14, for the shorter forgetting period, once there are results for both."""
    chosen = on(results, PermutedLineSequentialMNIST)
    checks = covering(chosen, 2)
    if checks:
        return checks
    task = settings(chosen)[0]
    right = by_kind(chosen, task, "test_accuracy")
    return [warmed_below_classic(f"{title(task)}, accuracy of", cell, right) for cell in MONOSTABLE]


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
                    less((f"{title(task)}, accuracy of {name}", f"{cell} double"), (its, mine), factor=1.01)
                    for name, its in others.items()
                ]
            else:
                checks += as_low(f"{title(task)}, {cell} double", mine, others, UNLEARNED)
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
        names = f"{title(task)}, accuracy of {cell} {version}", f"{cell} double"
        checks.append(less(names, (right[cell, version], right[cell, "double"])))
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
            names = f"{title(task)}, {cell} double, mean validation loss of all epochs", f"{cell} warmed up"
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
            names = f"{title(task)}, {cell} classic", "double without warmup"
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
            names = f"{title(task)}, {cell}, k = {HIGHEST:g}", f"k = {LOWEST:g}"
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
        why=(
            "About half of the LSTMs that Algorithm 3 has warmed up lose their attractors in the first 300 "
            "steps of training, and then do not learn. Neither the batch of the warmup nor the precision nor "
            "the number of bias vectors decides it. After the default warmup next to none lose them "
            "([attractors that are lost](results/attractors_lost.md)). With T = 50 a classic network either "
            "learns completely or not at all: five are too few to tell their mean from 0.5."
        ),
        authors=(
            "LSTM of 128 units, T = 300, ten seeds. With n = 200, as the text has it, 7 have a VAA of 0.5 or "
            "more after the warmup, 4 of these lose it within three epochs, and 3 of 10 end below 0.01 (50 "
            "epochs). With n = 32, the default of their command line, it is 9, 6 and 4 of 10 (36 epochs). "
            "That was on a GPU, where PyTorch trains in TF32. In float32 on a CPU, after the first epoch, a "
            "VAA of 0.5 or more is left to 0 of 4 networks with n = 200 and to 6 of 6 with n = 32, where five"
            " have a validation loss below 0.1. A classic GRU ends at 1.0, a warmed-up one at 6e-5 (one seed,"
            " 12 epochs)."
        ),
    ),
    Claim(
        "C10",
        "Copy and denoising: chrono is better without warmup",
        ("tab:warmup_bench1_nodouble", "tab:warmup_bench2_nodouble"),
        chrono,
    ),
    Claim(
        "C11",
        "Denoising: warmed up is better than classic",
        ("tab:warmup_bench2_nodouble",),
        denoising,
        why=(
            "With N = 5 classic GRUs and MGUs learn by themselves, since training makes attractors, and "
            "networks whose states stay apart from the beginning lag behind them "
            "([denoising](results/denoising.md#why-warmed-up-grus-take-longer-with-n--5))."
        ),
        authors=(
            "Two layers of 256 GRUs, N = 100, n = 32, warmed up, one seed: 0.0017 after nine epochs with the "
            "cue, 0.85 without."
        ),
    ),
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
        why=(
            "The paper's 100 steps are too few for double LSTMs: VAA* of their second layer has not "
            "settled. After 300 steps they learn "
            "([denoising](results/denoising.md#why-double-lstms-do-not-learn-n--100)). On copy first input "
            "some double networks lose their attractors in training ([who keeps "
            "them](results/copy_long.md#who-keeps-its-attractors-learns))."
        ),
        authors=(
            "Double LSTMs, denoising, N = 100, on a CPU: over the last ten of 100 steps VAA* of the second "
            "layer is 0.82, 0.93, 0.52 and 0.93 with n = 200 (four seeds), and 0.81 to 0.97 with n = 32 (six "
            "seeds)."
        ),
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
        why="Most networks learn in neither version, or in both, so that their losses are alike.",
    ),
    Claim(
        "C22",
        f"The higher k, the lower the copy error: with k = {HIGHEST:g} it is below that with k = {LOWEST:g}",
        ("app:impact_k",),
        impact_of_k,
        why=(
            "Learning is all or nothing, and five networks of a kind are few: a mean over them is uncertain. "
            "Over all cells and lengths it is clear that more networks learn the higher k is ([the target "
            "k](results/impact_k.md))."
        ),
    ),
)
