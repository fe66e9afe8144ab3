"""The benchmarks of section 4: one file a task. A new task is a file here and a line in ``TASKS``."""

from multistable.tasks.base import Data, Task
from multistable.tasks.copy_first_input import CopyFirstInput
from multistable.tasks.denoising import Denoising
from multistable.tasks.line_sequential_mnist import PermutedLineSequentialMNIST
from multistable.tasks.mnist import MNISTError
from multistable.tasks.sequential_mnist import PermutedSequentialMNIST

TASKS: dict[str, type[Task]] = {
    "copy": CopyFirstInput,
    "denoising": Denoising,
    "psmnist": PermutedSequentialMNIST,
    "plmnist": PermutedLineSequentialMNIST,
}

__all__ = [
    "TASKS",
    "CopyFirstInput",
    "Data",
    "Denoising",
    "MNISTError",
    "PermutedLineSequentialMNIST",
    "PermutedSequentialMNIST",
    "Task",
]
