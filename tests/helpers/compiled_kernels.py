"""The kernels compiled for a GPU of compute capability 9.0 without having one: what the compiler says of each."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from multistable.scan.kernels import recurrence

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
H200 = {"processors": 132, "shared_memory": 232_448, "matrix_units": True}


@dataclass(frozen=True)
class Compiled:
    """A kernel with the registers of a thread and the bytes that it spills."""

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
    launch = JITFunction.run

    def compile_alone(self, *args, grid, warmup, **options):
        kernel = launch(self, *args, grid=grid, warmup=True, **options)
        found.append(told(kernel))
        return kernel

    driver.set_active(Driver())
    try:
        with (
            mock.patch.object(JITFunction, "run", compile_alone),
            mock.patch.object(recurrence, "capacity", return_value=H200),
        ):
            yield found
    finally:
        driver._active = None


def told(kernel) -> Compiled:
    """The compiler's own words on a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(kernel.asm["ptx"], encoding="utf-8")
        command = [PTXAS, "-v", "--gpu-name", "sm_90a", source, "-o", Path(folder, "kernel.cubin")]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = int(re.search(r"Used (\d+) registers", words)[1])
    spills = sum(map(int, re.findall(r"(\d+) bytes spill", words)))
    return Compiled(kernel.metadata.name, registers, spills, kernel.metadata.shared)
