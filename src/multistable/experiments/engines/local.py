"""Train in this process, one group after the other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch

from multistable.experiments.engines.base import Group, noting, train_group
from multistable.training import Callback
from multistable.training.trainer import usual_device


class Local:
    """This process.

    Args:
        device: a GPU if there is one, when not given.
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        self._device = usual_device() if device is None else torch.device(device)

    @property
    def device(self) -> str:
        """The kind of device."""
        return self._device.type

    def run(self, groups: Sequence[Group], out: Path, callbacks: Sequence[Callback]) -> list[str]:
        """Train groups, see :class:`Engine`."""
        problems: dict[str, None] = {}
        with noting(problems):
            for group in groups:
                problem = train_group(group, out, self._device, callbacks)
                if problem:
                    problems[problem] = None
        return list(problems)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
