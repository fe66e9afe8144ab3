"""The kernels compiled for a GPU of compute capability 9.0 without having one: what the compiler says of each.

Each argument is a cell, its units, how many networks there are, and the precision. For each kernel there is a line of
these, its name, how many registers were spilled in its time loop, and how many it has.

Run: python tests/helpers/compiled_kernels.py gru:256:30:tf32 ...
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from multistable.cells import CELLS
from multistable.cells.elman import Elman
from multistable.scan import fused
from multistable.scan.kernels import gpu
from multistable.scan.kernels.launch import Launch

TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
H200 = {"processors": 132, "shared_memory": 232_448, "matrix_units": True}


@dataclass(frozen=True)
class Compiled:
    """A kernel with the registers of a thread, and how often a step reads or writes a register that was spilled."""

    name: str
    registers: int
    spills: int
    shared: int


class Driver:
    """What Triton asks of a driver before it compiles."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


@contextmanager
def compiling() -> Iterator[list[Compiled]]:
    """Compile what is launched inside in place of running it, as for a GPU with 132 multiprocessors."""
    found: list[Compiled] = []

    def compile_alone(self, grid, *arguments):
        found.append(told(self.kernel.run(*arguments, grid=grid, warmup=True, **self.constants)))

    driver.set_active(Driver())
    try:
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(Launch, "__call__", compile_alone))
            stack.enter_context(mock.patch.object(gpu, "capacity", return_value=H200))
            stack.enter_context(mock.patch.object(fused, "_unfit", return_value=None))
            yield found
    finally:
        driver._active = None


def told(kernel) -> Compiled:
    """The compiler's own words on a kernel, and what it made of its time loop."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(kernel.asm["ptx"], encoding="utf-8")
        command = [TOOLS / "ptxas", "-v", "--gpu-name", "sm_90a", source, "-o", binary]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        command = [TOOLS / "nvdisasm", "-c", binary]
        code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers = int(re.search(r"Used (\d+) registers", words)[1])
    spilled = sum(bool(re.search(r"\b(LDL|STL)\b", line)) for line in time_loop(code))
    return Compiled(kernel.metadata.name, registers, spilled, kernel.metadata.shared)


def time_loop(code: str) -> list[str]:
    """The instructions of the longest loop inside the loop over items: from a label to the jump back to it."""
    lines = code.splitlines()
    places = {line.strip()[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\.L_\w+:", line.strip())}
    jumps = ((i, re.search(r"\bBRA.*`\((\.L_\w+)\)", line)) for i, line in enumerate(lines))
    loops = [(places[jump[1]], i) for i, jump in jumps if jump and places[jump[1]] < i - 1]

    def longest(loops: list[tuple[int, int]]) -> tuple[int, int]:
        return max(loops, key=lambda loop: loop[1] - loop[0], default=(0, 0))

    first, last = longest(loops)
    start, end = longest([loop for loop in loops if first < loop[0] and loop[1] < last] or loops)
    return lines[start:end]


def kernels_of(cell, members, precision, rows=32, inputs=20) -> list[Compiled]:
    """Those of a pass forward and back of so many networks; in tf32x3, which has no way back, without a gradient."""
    lead = () if members == 1 else (members,)
    weights = {name: p.detach().expand(*lead, *p.shape).clone().requires_grad_() for name, p in cell.named_parameters()}
    cell = cell.bind(weights)
    u = torch.randn(3, *lead, rows, inputs)
    with compiling() as found:
        if precision == "tf32x3":
            fused.scan_input(cell, u, precision=precision, only_last=True)
        else:
            states = fused.scan_input(cell, u, precision=precision)
            torch.autograd.grad(sum(field.sum() for field in states), list(weights.values()))
    return [kernel for kernel in found if kernel.name in ("advance", "retreat", "advance_units", "retreat_units")]


if __name__ == "__main__":
    for case in sys.argv[1:]:
        name, hidden, members, precision = case.split(":")
        make = Elman if name == "elman" else CELLS[name]
        for kernel in kernels_of(make(20, int(hidden)), int(members), precision):
            print(case, kernel.name, kernel.spills, kernel.registers, flush=True)
