"""The benchmarks of section 4, and tasks beyond them: one file a task."""

from multistable.tasks.adding import Adding
from multistable.tasks.associative_recall import AssociativeRecall
from multistable.tasks.base import Data, Task
from multistable.tasks.copy_first_input import CopyFirstInput
from multistable.tasks.counting import Counting
from multistable.tasks.delayed_match import DelayedMatch
from multistable.tasks.denoising import Denoising
from multistable.tasks.flip_flop import FlipFlop
from multistable.tasks.line_sequential_mnist import PermutedLineSequentialMNIST
from multistable.tasks.mnist import MNISTError
from multistable.tasks.noisy_sine import NoisySine
from multistable.tasks.parity import Parity, SparseParity
from multistable.tasks.registry import TASKS, make_task, settings_of
from multistable.tasks.repeat_previous import RepeatPrevious
from multistable.tasks.selective_copying import SelectiveCopying
from multistable.tasks.sequential_mnist import PermutedSequentialMNIST
from multistable.tasks.small_mnist import SmallPermutedMNIST
from multistable.tasks.temporal_order import TemporalOrder
from multistable.tasks.words import FirstWord, WordCounts

__all__ = [
    "TASKS",
    "Adding",
    "AssociativeRecall",
    "CopyFirstInput",
    "Counting",
    "Data",
    "DelayedMatch",
    "Denoising",
    "FirstWord",
    "FlipFlop",
    "MNISTError",
    "NoisySine",
    "Parity",
    "PermutedLineSequentialMNIST",
    "PermutedSequentialMNIST",
    "RepeatPrevious",
    "SelectiveCopying",
    "SmallPermutedMNIST",
    "SparseParity",
    "Task",
    "TemporalOrder",
    "WordCounts",
    "make_task",
    "settings_of",
]
