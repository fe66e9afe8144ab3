"""The paper's cells, versions and tasks, and the runs of their combinations, which figures share."""

from collections.abc import Iterable
from itertools import product
from typing import Any

from multistable.rl import Maze
from multistable.tasks import CopyFirstInput, Denoising, PermutedLineSequentialMNIST, PermutedSequentialMNIST, Task
from multistable.training import RunConfig

CELLS = ("lstm", "chrono", "gru", "mgu", "brc", "nbrc")
WARMED = ("lstm", "gru", "mgu", "chrono")
"""The cells that the paper warms up."""
FOUR_VERSIONS = ("classic", "warmup", "double", "double-classic")
"""The versions of sections 6.2 and 6.3, and the control of appendix G."""
THREE_VERSIONS = FOUR_VERSIONS[:3]
TWO_VERSIONS = FOUR_VERSIONS[:2]

COPY = tuple(CopyFirstInput(T) for T in (50, 300, 600))
DENOISING = tuple(Denoising(200, N) for N in (5, 100))
SEQUENTIAL_MNIST = (PermutedSequentialMNIST(),)
LINE_MNIST = tuple(PermutedLineSequentialMNIST(N) for N in (72, 472))
MAZES = tuple(Maze(L) for L in (20, 100, 200))
TASKS = (*COPY, *DENOISING, *SEQUENTIAL_MNIST, *LINE_MNIST, *MAZES)
"""The tasks that the paper's claims are about."""

RECORDED: dict[tuple[Task, str], dict[str, Any]] = {(DENOISING[0], "gru"): {"warmup_vaa_every": 10}}
"""Settings of all runs on a task with a cell, since one figure of these runs needs what the settings record.

They do not depend on the experiment that the runs are made for. Versions without warmup have them too: runs that differ
in them are not trained together.
"""


def grid(
    tasks: Iterable[Task], cells: Iterable[str], versions: Iterable[str], **settings: Any
) -> tuple[RunConfig, ...]:
    """A run in the paper's sizes for each task, cell and version, which records what its figures need."""
    return tuple(
        RunConfig(task=task, cell=cell, version=version, **RECORDED.get((task, cell), {}) | settings)
        for task, cell, version in product(tasks, cells, versions)
    )
