"""What ``ms.advise`` says of tasks, beside what three versions of a network really reached on them.

Each task is advised on once for each cell, with a network of the size that the table of when to warm up has. Results
are stored task by task, so that a run that was ended goes on. Advice is right where the version that it names is no
worse than the best one by more than two standard errors; of an advice that cannot tell, this is said.

Run: python benchmarks/advise.py [--cells gru lstm] [--tasks FirstWord Parity] [--seed 1] [--output FILE]
then: python benchmarks/advise.py --judge, by the runs that are stored of ``multistable reproduce when --scale small``

The second command also applies the rule to the learning curves of those runs, one seed of each version in the place of
the copies that an advice trains, and judges it by the other seeds. So it is judged many times, without a new training.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

import multistable as ms
from multistable.dynamics.advise.trial import clear, compared
from multistable.experiments.archive import read_results, rounded
from multistable.experiments.score_pictures import score
from multistable.tasks import (
    Adding,
    AssociativeRecall,
    CopyFirstInput,
    Counting,
    DelayedMatch,
    Denoising,
    FirstWord,
    FlipFlop,
    NoisySine,
    Parity,
    RepeatPrevious,
    SelectiveCopying,
    SmallPermutedMNIST,
    SparseParity,
    Task,
    TemporalOrder,
    WordCounts,
)
from multistable.tasks.mnist import MNISTError

TUNED: list[Task] = [
    FirstWord(50),
    WordCounts(50),
    CopyFirstInput(50),
    TemporalOrder(50),
    Parity(50),
    FlipFlop(50),
    Denoising(50, 20),
    RepeatPrevious(50),
    Counting(50),
    AssociativeRecall(50),
    SparseParity(50),
    Adding(100),
]
"""The tasks on which the thresholds of the rule were chosen."""
HELD_OUT: list[Task] = [NoisySine(50), DelayedMatch(50), SelectiveCopying(50), SmallPermutedMNIST(7)]
"""Tasks that were chosen before any of them was looked at, and that were advised on once the rule stood."""
LONGER: list[Task] = [TemporalOrder(200), Denoising(200, 100), SelectiveCopying(200)]
"""The longest of the table, which were run and advised on when the rule had stood for long."""
NAMES = {"none": "classic", "whole": "warmup", "double": "double"}
"""The versions of an advice, as runs name them."""
HIDDEN, SEQUENCES, RATE = 32, 4000, 3e-3
"""Those of the table at the scale small, of one layer."""

Scores = dict[str, dict[int, float]]


def answers_of(task: Task, targets: torch.Tensor) -> torch.Tensor:
    """Targets of a task ``(n, answers * size)`` as ``ms.advise`` takes them, with none where the task asks nothing."""
    if not targets.is_floating_point():
        if targets.dim() == 1 or task.answers == 1:
            return targets.flatten()
        return torch.nn.functional.pad(targets, (task.length - targets.shape[1], 0), value=-100)
    if task.answers == 1:
        return targets
    values = targets.unflatten(1, (task.answers, -1))
    return torch.nn.functional.pad(values, (0, 0, task.length - task.answers, 0), value=torch.nan)


def advised(task: Task, cell: str, seed: int) -> dict[str, Any]:
    """What the advice says, and what it saw."""
    draw = torch.Generator().manual_seed(seed)
    u, targets = task.training(SEQUENCES, generator=draw)
    rnn = ms.RNN(cell, task.input_size, HIDDEN, batch_first=True, generator=draw)
    began = time.process_time()
    advice = ms.advise(rnn, u.transpose(0, 1), targets=answers_of(task, targets), lr=RATE, generator=draw)
    found: dict[str, Any] = {
        "advice": advice.warmup,
        "reasons": advice.reasons,
        "vaa": advice.vaa,
        "lifetime": advice.lifetime,
        "seconds": time.process_time() - began,
    }
    if advice.window is not None:
        found["window"] = vars(advice.window)
    if advice.trial is not None:
        found["trial"] = vars(advice.trial)
    return found


def runs_of(path: Path) -> dict[str, list[Any]]:
    """The runs of the table in a file of results, by cell and task."""
    runs: dict[str, list[Any]] = {}
    for result in read_results(path):
        runs.setdefault(f"{result.config.cell} {result.config.task}", []).append(result)
    return runs


def scores_of(results: list[Any]) -> Scores:
    """The test loss as a share of that of guessing, by version and seed."""
    found: Scores = {version: {} for version in NAMES}
    for version, name in NAMES.items():
        for result in results:
            if result.config.version == name and (value := score(result)) is not None:
                found[version][result.config.seed] = value
    return found


def right(advice: str, scores: Scores) -> bool:
    """Whether a version is no worse than the best one by more than two standard errors of the difference."""
    means = {version: fmean(values.values()) for version, values in scores.items()}
    errors = {version: stdev(values.values()) / len(values) ** 0.5 for version, values in scores.items()}
    best = min(means, key=lambda version: means[version])
    return means[advice] - means[best] <= 2 * (errors[advice] ** 2 + errors[best] ** 2) ** 0.5


def by_curves(results: list[Any], scores: Scores, aim: float) -> list[bool | None]:
    """For each seed whether its curves lead to the right advice by the other seeds; None where they do not tell."""
    found: list[bool | None] = []
    for seed in sorted(set.intersection(*(set(values) for values in scores.values()))):
        own = {r.config.version: r for r in results if r.config.seed == seed}
        curves = {version: own[name].curve("validation_loss")[1][1:] for version, name in NAMES.items()}
        guess = torch.full((2,), own["classic"].config.task.guessing, dtype=torch.float64)
        verdicts: list[Any] = []
        for losses in zip(*curves.values(), strict=True):
            ends = {version: torch.full_like(guess, loss) for version, loss in zip(curves, losses, strict=True)}
            verdicts.append(compared(ends, guess))
            if clear(verdicts, aim):
                break
        others = {version: {s: v for s, v in values.items() if s != seed} for version, values in scores.items()}
        found.append(None if verdicts[-1][0] is None else right(verdicts[-1][0], others))
    return found


def judge(stored: dict[str, Any], path: Path, seed: int) -> None:
    """Print what was advised of each task, beside what the versions reached."""
    runs = runs_of(path)
    print(f"{'network and task':<46}{'classic':>9}{'warmed up':>11}{'double':>9}   {'advice':<11}{'right':<8}curves")
    for name, tasks in (("tuned", TUNED), ("held out", HELD_OUT), ("longer", LONGER)):
        judged: list[Any] = []
        curved: list[Any] = []
        for cell in ("gru", "lstm"):
            for task in tasks:
                results = runs.get(f"{cell} {task}", [])
                scores = scores_of(results)
                if min(map(len, scores.values())) < 3:
                    continue
                windows = [stored[key]["window"] for c in ("gru", "lstm") if (key := f"{c} {task} {seed}") in stored]
                aim = windows[0]["scores"][-1] if windows else 0.0
                of_curves = by_curves(results, scores, aim)
                curved += of_curves
                advice = stored.get(f"{cell} {task} {seed}")
                told = "not asked"
                if advice is not None:
                    told = advice["advice"] or "cannot tell"
                    judged.append(None if advice["advice"] is None else right(advice["advice"], scores))
                values = [fmean(scores[version].values()) for version in NAMES]
                means = f"{values[0]:>9.3f}{values[1]:>11.3f}{values[2]:>9.3f}"
                is_right = "" if advice is None else {True: "yes", False: "no", None: "-"}[judged[-1]]
                share = (
                    f"{of_curves.count(True)} right, {of_curves.count(False)} wrong, {of_curves.count(None)} not told"
                )
                print(f"{f'{cell} {task}':<46}{means}   {told:<11}{is_right:<8}{share}")
        for what, of_all in (("asked", judged), ("curves", curved)):
            counts = f"{of_all.count(True)} right, {of_all.count(False)} wrong, {of_all.count(None)} not told"
            print(f"{name}, {what}: {counts}, of {len(of_all)}")


def main() -> None:
    """Advise on each task that is not stored yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=["gru", "lstm"])
    parser.add_argument("--tasks", nargs="+", help="names of classes; all by default")
    parser.add_argument("--only", choices=("tuned", "held-out", "longer"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("docs/results/advise.json"))
    results = Path("docs/results/when.json")
    parser.add_argument("--judge", nargs="?", type=Path, const=results, metavar="FILE", help="judge by stored results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = json.loads(options.output.read_text()) if options.output.exists() else {}
    if options.judge:
        judge(stored, options.judge, options.seed)
        return
    tasks = {"tuned": TUNED, "held-out": HELD_OUT, "longer": LONGER, None: TUNED + HELD_OUT + LONGER}[options.only]
    for cell in options.cells:
        for task in tasks:
            key = f"{cell} {task} {options.seed}"
            if key in stored or (options.tasks and type(task).__name__ not in options.tasks):
                continue
            try:
                task.check_files()
            except MNISTError as error:
                print(f"{key}: left out, {error}", flush=True)
                continue
            stored[key] = advised(task, cell, options.seed)
            rows = (f"{json.dumps(name)}: {json.dumps(rounded(one, 4))}" for name, one in stored.items())
            options.output.write_text("{\n" + ",\n".join(rows) + "\n}\n")
            print(f"{key}: {stored[key]['advice']}, {stored[key]['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
