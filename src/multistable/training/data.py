"""The sequences of runs that train together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from multistable.dynamics.system.sequences import PaddedSequences
from multistable.tasks import Data
from multistable.tasks.base import Split
from multistable.training.config import RunConfig
from multistable.training.seeds import generator


@dataclass(frozen=True)
class Sets:
    """The learning sets, or the test sets, of R runs.

    Runs of one seed share a set, and all runs share the set of a task that draws nothing. Each set is kept once.

    Attributes:
        inputs: D sets, ``(time, D, n, input_size)``.
        targets: ``(D, n, ...)``.
        of_run: the number of each run's set among the D, ``(R, 1)``.
    """

    inputs: Tensor
    targets: Tensor
    of_run: Tensor

    @property
    def size(self) -> int:
        """The number of sequences of a set."""
        return self.inputs.shape[2]

    def take(self, rows: Tensor) -> Data:
        """The sequences at ``rows (R, k)`` of each run's set: inputs ``(time, R, k, input_size)``."""
        return Data(self.inputs[:, self.of_run, rows], self.targets[self.of_run, rows])


def sets(configs: Sequence[RunConfig], split: Split, device: torch.device) -> Sets:
    """The sets of runs that share a task."""
    drawn: dict[int | None, Data] = {}
    keys = []
    for config in configs:
        seed = config.seed if config.data_seed is None else config.data_seed
        if None not in drawn and seed not in drawn:
            data, fixed = _draw(config, seed, split, device)
            drawn[None if fixed else seed] = data
        keys.append(None if None in drawn else seed)
    order = {key: index for index, key in enumerate(drawn)}
    return Sets(
        inputs=_stack([data.inputs for data in drawn.values()], dim=1),
        targets=_stack([data.targets for data in drawn.values()], dim=0),
        of_run=torch.tensor([[order[key]] for key in keys], device=device),
    )


def _draw(config: RunConfig, seed: int, split: Split, device: torch.device) -> tuple[Data, bool]:
    """The set of one run, and whether every seed has the same set."""
    draw = generator(seed, split)
    before = draw.get_state()
    task, dtype = config.task, getattr(torch, config.dtype)
    make, n = (
        (task.training, config.training_sequences) if split == "train" else (task.testing, config.testing_sequences)
    )
    data = make(n, generator=draw, device=device, dtype=dtype)
    return data, bool(torch.equal(before, draw.get_state()))


def _stack(tensors: Sequence[Tensor], dim: int) -> Tensor:
    """``torch.stack`` that does not copy a single tensor."""
    return tensors[0].unsqueeze(dim) if len(tensors) == 1 else torch.stack(list(tensors), dim)


class Division(NamedTuple):
    """The rows of each run's learning set for training, for validation and for selection, each ``(R, n)``."""

    training: Tensor
    validation: Tensor
    selection: Tensor


def division(configs: Sequence[RunConfig], size: int, device: torch.device) -> Division:
    """Divide learning sets of ``size`` sequences at random."""
    training, validation, selection = configs[0].parts(size)
    shuffled = torch.stack([torch.randperm(size, generator=generator(c.seed, "division")) for c in configs]).to(device)
    parts = shuffled.split([validation, selection, training], dim=1)
    return Division(training=parts[2], validation=parts[0], selection=parts[1])


@dataclass(frozen=True)
class TrainingSequences(PaddedSequences):
    """The inputs that R runs train on, for the measure and the warmup of their ensemble. They are not copied.

    ``padded`` has the D sets, ``of_run (R, 1)`` says which of them is each run's, and ``rows (R, n)`` are its
    sequences there.
    """

    of_run: Tensor
    rows: Tensor

    @classmethod
    def of(cls, learning: Sets, rows: Tensor) -> "TrainingSequences":
        """The sequences at ``rows`` of the learning sets."""
        lengths = torch.full((rows.shape[1],), len(learning.inputs), device="cpu")
        return cls(learning.inputs, lengths, learning.of_run, rows)

    @classmethod
    def random(cls, configs: Sequence[RunConfig], size: int, device: torch.device) -> "TrainingSequences":
        """``size`` sequences as long as those of the task, but of random numbers from N(0, 1)."""
        shared, seeds = configs[0], list(dict.fromkeys(config.seed for config in configs))
        shape = (shared.task.length, size, shared.input_size)
        drawn = [torch.randn(shape, generator=generator(seed, "random"), dtype=torch.float64) for seed in seeds]
        inputs = _stack([numbers.to(device, getattr(torch, shared.dtype)) for numbers in drawn], dim=1)
        of_run = torch.tensor([[seeds.index(config.seed)] for config in configs], device=device)
        rows = torch.arange(size, device=device).expand(len(configs), -1)
        return cls(inputs, torch.full((size,), len(inputs), device="cpu"), of_run, rows)

    def select(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The sequences at ``indices (R, k)``: inputs ``(time, R, k, features)`` and lengths ``(R, k)``."""
        rows = self.rows.gather(1, indices.to(self.rows.device))
        return self.padded[:, self.of_run, rows], self.lengths[indices]

    def of_members(self, members: Sequence[int]) -> "TrainingSequences":
        """The sequences of some of the runs."""
        return TrainingSequences(self.padded, self.lengths, self.of_run[members], self.rows[members])
