"""Train in this process, one group after the other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch

from multistable.experiments.runners.base import Group, NoData, noting, train_group
from multistable.tasks.permuted_mnist import PermutedMNIST
from multistable.training import Callback
from multistable.training.trainer import usual_device


class Local:
    """Trains in this process.

    Args:
        device: by default a GPU if there is one.
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        self._device = usual_device() if device is None else torch.device(device)
        self._without: dict[Path | str | None, NoData] = {}

    @property
    def device(self) -> str:
        """The kind of device."""
        return self._device.type

    def run(self, groups: Sequence[Group], out: Path, callbacks: Sequence[Callback]) -> list[str]:
        """Train groups, see :class:`Runner`."""
        problems: dict[str, None] = {}
        with noting(problems):
            for group in groups:
                problem = self._train(group, out, callbacks)
                if problem:
                    problems[problem] = None
        return list(problems)

    def _train(self, group: Group, out: Path, callbacks: Sequence[Callback]) -> str | None:
        """Train one group. Missing data is not looked for again: a download may take minutes to fail."""
        task = group[0].task
        if not isinstance(task, PermutedMNIST):
            return train_group(group, out, self._device, callbacks)
        if task.data not in self._without:
            problem = train_group(group, out, self._device, callbacks)
            if not isinstance(problem, NoData):
                return problem
            self._without[task.data] = problem
        return self._without[task.data]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
