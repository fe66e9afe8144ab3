"""The benchmarks of section 4: one file a task."""

from multistable.tasks.base import Data, Task
from multistable.tasks.copy_first_input import CopyFirstInput
from multistable.tasks.denoising import Denoising
from multistable.tasks.line_sequential_mnist import PermutedLineSequentialMNIST
from multistable.tasks.mnist import MNISTError
from multistable.tasks.registry import TASKS, make_task, settings_of
from multistable.tasks.sequential_mnist import PermutedSequentialMNIST

__all__ = [
    "TASKS",
    "CopyFirstInput",
    "Data",
    "Denoising",
    "MNISTError",
    "PermutedLineSequentialMNIST",
    "PermutedSequentialMNIST",
    "Task",
    "make_task",
    "settings_of",
]
