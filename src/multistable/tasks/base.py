"""The base of tasks: sequences for learning and testing, a loss, and an accuracy where it has a meaning."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from multistable.arguments import positive_integer
from multistable.setting import check_settings

Device = torch.device | str | int | None
Split = Literal["train", "test"]


class Data(NamedTuple):
    """Sequences and the right answer to each.

    ``inputs`` are ``(time, n, input_size)``, ``targets`` are ``(n, ...)``, on one device.
    """

    inputs: Tensor
    targets: Tensor


class Task(ABC):
    """A supervised benchmark.

    A new task is a frozen dataclass of this class. Its fields are the paper's parameters, so that a task can be
    written down, compared and built again; nothing random is kept in it. Fields that are declared as a
    :class:`multistable.setting.Setting` are checked.

    Random numbers are drawn on the device of ``generator``, in the same way for every ``dtype``, and the data then
    moved to ``device``, by default that of the generator.
    """

    input_size: int
    output_size: int
    loss_name = "loss"
    """What pictures call the loss."""

    guessing: float | None = None
    """The loss of the best answer that does not read the sequence, where it is known."""

    paper_sizes: ClassVar[Mapping[str, int]] = {"num_layers": 2, "hidden_size": 256}
    """The paper's network for the task."""

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def paper_stretch(self) -> int:
        """The time steps that the paper's appendix evaluates the reconstruction loss on; two thirds of other tasks."""
        return max(1, 2 * self.length // 3)

    @property
    @abstractmethod
    def length(self) -> int:
        """T, the number of time steps."""

    @property
    def answers(self) -> int:
        """How many of the last time steps the loss reads: all of them, unless a task says otherwise."""
        return self.length

    def training(
        self,
        n: int | None = None,
        *,
        generator: torch.Generator,
        device: Device = None,
        dtype: torch.dtype = torch.float32,
    ) -> Data:
        """``n`` sequences of the learning set, its usual size by default."""
        return self._checked("train", n, generator, device, dtype)

    def testing(
        self,
        n: int | None = None,
        *,
        generator: torch.Generator,
        device: Device = None,
        dtype: torch.dtype = torch.float32,
    ) -> Data:
        """``n`` sequences of the test set, its usual size by default."""
        return self._checked("test", n, generator, device, dtype)

    def _checked(
        self, split: Split, n: int | None, generator: torch.Generator, device: Device, dtype: torch.dtype
    ) -> Data:
        n = None if n is None else positive_integer("n", n)
        if not isinstance(generator, torch.Generator):
            raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")
        if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"dtype must be a floating-point type, got {dtype}")
        where = torch.device(generator.device if device is None else device)
        data = self.data_of(split, n, generator, where, dtype)
        _check_data(data, self, n, where, dtype)
        return data

    def check_files(self) -> None:
        """Raise if files that :meth:`data_of` reads are missing or damaged; most tasks read none."""
        return

    @abstractmethod
    def data_of(
        self, split: Split, n: int | None, generator: torch.Generator, device: Device, dtype: torch.dtype
    ) -> Data:
        """``n`` sequences of the learning set or the test set; the arguments have been checked."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss ``(...)``, mean over the batch of n.

        ``outputs`` are ``(time, ..., n, output_size)`` for all time steps, or for the last :attr:`answers` alone;
        ``targets`` are ``(..., n, ...)``. The leading dimensions ``...`` are those of an ensemble, none for a single
        network. Targets without them are those of every member.
        """

    @abstractmethod
    def accuracy(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """The share ``(...)`` of right answers, for the shapes of :meth:`loss`; ``None`` where it has no meaning."""


def _check_data(data: Any, task: Task, n: int | None, device: torch.device, dtype: torch.dtype) -> None:
    """Check what :meth:`Task.data_of` returned, since users write tasks of their own."""
    gives = f"data_of of {type(task).__name__} must give"
    if not isinstance(data, Data) or not all(isinstance(entry, Tensor) for entry in data):
        entries = ", ".join(type(entry).__name__ for entry in data) if isinstance(data, tuple) else "no tensors"
        raise TypeError(f"{gives} Data(inputs, targets), two tensors, got {type(data).__name__} of {entries}")
    time, features, (inputs, targets) = task.length, task.input_size, data
    n = inputs.shape[1] if n is None and inputs.dim() == 3 else n
    if tuple(inputs.shape) != (time, n, features) or n == 0:
        expected = f"({time}, {n or 'n'}, {features})"
        raise ValueError(f"{gives} inputs (time, n, features), here {expected}, got shape {tuple(inputs.shape)}")
    if targets.dim() == 0 or len(targets) != n:
        raise ValueError(f"{gives} targets (n, ...), one for each of {n} sequences, got shape {tuple(targets.shape)}")
    if inputs.dtype != dtype:
        raise TypeError(f"{gives} inputs of the dtype that it is asked for, {dtype}, got {inputs.dtype}")
    for name, entry in data._asdict().items():
        if entry.device.type != device.type:
            raise ValueError(f"{gives} {name} on the device that it is asked for, {device}, got {entry.device}")
    # The extremes are not finite where any input is not, and take no memory; tensors on "meta" have no values.
    if not inputs.is_meta and not torch.stack(inputs.aminmax()).isfinite().all():
        raise ValueError(f"{gives} finite inputs, got NaN or infinity")


def check_answers(outputs: Tensor, targets: Tensor, answers: tuple[int, ...]) -> None:
    """Raise unless ``targets`` end with the dimensions ``answers``: others would be broadcast to a wrong loss."""
    if tuple(targets.shape[-len(answers) :]) != answers:
        raise ValueError(
            f"targets must be (..., {', '.join(map(str, answers))}) for outputs of shape {tuple(outputs.shape)}, "
            f"got shape {tuple(targets.shape)}"
        )
