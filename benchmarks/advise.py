"""What ``ms.advise`` says of tasks, beside what three versions of a network really reached on them.

Each task is advised on once for each cell, with a network of the size that the table of when to warm up has. Results
are stored task by task, so that a run that was ended goes on. Advice is right where the version that it names is no
worse than the best one by more than two standard errors; of an advice that cannot tell, this is said.

Run: python benchmarks/advise.py [--cells gru lstm] [--tasks first-word parity] [--seed 1] [--output FILE]
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import multistable as ms
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
HIDDEN, SEQUENCES, RATE = 32, 4000, 3e-3
"""Those of the table at the scale small, of one layer."""
VERSIONS = {"none": "classic", "whole": "warmed up", "double": "double"}


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


def main() -> None:
    """Advise on each task that is not stored yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=["gru", "lstm"])
    parser.add_argument("--tasks", nargs="+", help="names of classes; all by default")
    parser.add_argument("--only", choices=("tuned", "held-out"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("docs/results/advise.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = json.loads(options.output.read_text()) if options.output.exists() else {}
    tasks = {"tuned": TUNED, "held-out": HELD_OUT, None: TUNED + HELD_OUT}[options.only]
    for cell in options.cells:
        for task in tasks:
            key = f"{cell} {task} {options.seed}"
            if key in stored or (options.tasks and type(task).__name__ not in options.tasks):
                continue
            stored[key] = advised(task, cell, options.seed)
            options.output.write_text(json.dumps(stored, indent=1) + "\n")
            print(f"{key}: {stored[key]['advice']}, {stored[key]['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
