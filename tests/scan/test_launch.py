"""Which launches ask Triton what a kernel has been compiled to."""

import pytest
import torch

pytest.importorskip("triton")

from multistable.scan.kernels import launch
from multistable.scan.kernels.launch import Launch

TENSOR = torch.zeros(64)


class Kernel:
    """In place of one that Triton compiles: notes what is asked of it, and what is launched without asking."""

    def __init__(self) -> None:
        self.asked, self.launched = [], []

    def __getitem__(self, grid):
        def ask(*arguments, **constants):
            self.asked.append((grid, arguments))
            return Compiled(self)

        return ask


class Compiled:
    def __init__(self, kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *arguments: self.kernel.launched.append((grid, arguments))


@pytest.fixture
def made():
    """A launch of a kernel of a tensor, a number, a number that it is compiled for whatever it is, and a tuple."""
    made = Launch(Kernel())
    made.compiles, made.values, made.general = True, ("constant",), [False, False, True, False]
    return made


def test_a_known_kernel_is_launched_as_it_was_asked_for(made):
    arguments = (TENSOR, 32, 7, (TENSOR, (5, 1)))
    made((3,), *arguments)
    for grid in ((3,), (4, 2), (4, 2)):
        made(grid, *arguments)
    assert made.kernel.asked == [((3,), arguments)]
    assert [grid[:3] for grid, _ in made.kernel.launched] == [(3, 1, 1), (4, 2, 1), (4, 2, 1)]
    assert all(given == (*arguments, "constant") for _, given in made.kernel.launched)


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize(
    ("other", "asked"),
    [
        ((TENSOR[4:], 48, 1, (TENSOR, (6, 1))), 1),
        ((TENSOR[1:], 32, 7, (TENSOR, (5, 1))), 2),
        ((TENSOR, 33, 7, (TENSOR, (5, 1))), 2),
        ((TENSOR, 1, 7, (TENSOR, (5, 1))), 2),
        ((TENSOR, 32, 2**31, (TENSOR, (5, 1))), 2),
        ((TENSOR, 32, 7, (TENSOR[1:], (5, 1))), 2),
        ((TENSOR, 32, 7, (TENSOR, (1, 1))), 2),
    ],
    ids=["alike", "address", "multiple of 16", "one", "64 bits", "address in a tuple", "one in a tuple"],
)
def test_triton_is_asked_where_a_kernel_takes_something_for_granted(made, other, asked, times):
    for _ in range(times):
        made((3,), TENSOR, 32, 7, (TENSOR, (5, 1)))
    for _ in range(2):
        made((3,), *other)
    assert len(made.kernel.asked) == asked
    assert len(made.kernel.asked) + len(made.kernel.launched) == times + 2


def test_the_memory_of_calls_has_an_end(made, monkeypatch):
    monkeypatch.setattr(launch, "MOST_CALLS", 3)
    for number in range(2, 20):
        made((1,), TENSOR, 32, number, ())
    assert len(made.latest) <= 3
    assert len(made.kernel.asked) == 1
