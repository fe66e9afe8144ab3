"""The kernels of ``matrix.py`` from their source, with PyTorch in the place of Gluon and a thread for each program.

Indices, exchanges and arithmetic are those of the source. How tiles lie over threads is not: there are no layouts here.
"""

import importlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace

import torch

PACKAGE = "multistable.scan.kernels"
program = threading.local()


class Tile(torch.Tensor):
    """A tensor that has what Triton's have, and is never changed in place."""

    def to(self, dtype, bitcast=False):
        return self.contiguous().view(dtype) if bitcast else super().to(dtype)

    def __iadd__(self, other):
        return self + other

    def __isub__(self, other):
        return self - other


def tile(x):
    return torch.as_tensor(x).as_subclass(Tile)


class Pointers:
    type = SimpleNamespace(layout=None)

    def __init__(self, memory, offsets):
        self.memory, self.offsets = memory, offsets

    def __add__(self, other):
        return Pointers(self.memory, self.offsets + other)

    def __sub__(self, other):
        return self + -other

    @property
    def shape(self):
        return self.offsets.shape

    def words(self, width):
        """The memory as words, and the places of those at each pointer."""
        return self.memory.view(torch.int32), torch.stack([self.offsets + i for i in range(width)])


def load(pointers, mask, other):
    offsets, mask = torch.broadcast_tensors(tile(pointers.offsets), mask)
    return torch.where(mask, pointers.memory[torch.where(mask, offsets, 0)], other)


def store(pointers, values, mask):
    offsets, values, mask = torch.broadcast_tensors(tile(pointers.offsets), values, mask)
    pointers.memory[offsets[mask]] = values[mask]


class Shared:
    def __init__(self, data):
        self.data, self.shape = data, list(data.shape)

    def store(self, values):
        assert list(values.shape) == self.shape
        self.data.copy_(values)

    def load(self, layout):
        return self.data.clone()

    def slice(self, start, length, dim):
        return Shared(self.data.narrow(dim, start, length))


def assembly(text, constraints, arguments, dtype, is_pure, pack):
    if "cvt.rna.tf32" in text:
        return (arguments[0].to(torch.int32, bitcast=True) + 0x1000 & ~0x1FFF).to(torch.float32, bitcast=True)
    if "st.relaxed" in text:
        memory, places = arguments[0].words(2)
        memory[places] = torch.stack(arguments[1:])
        return None
    assert "ld.relaxed" in text
    memory, places = arguments[0].words(4 if ".v4" in text else 2)
    until = time.monotonic() + 60
    while ((words := memory[places]) ^ arguments[1] & 3).bitwise_and(3).any():
        assert time.monotonic() < until, "waited in vain for another program"
        time.sleep(0)
    return tuple(tile(word).to(torch.float32, bitcast=True) for word in words)


def decorator(function=None, **options):
    return function or decorator


def nothing(*arguments):
    return None


language = SimpleNamespace(
    int32=torch.int32, int64=torch.int64, float32=torch.float32, constexpr=lambda x: x, shared_memory_descriptor=Shared,
    BlockedLayout=nothing, DotOperandLayout=nothing, NVMMADistributedLayout=nothing, SliceLayout=nothing,
    SwizzledSharedLayout=nothing, static_assert=nothing, static_range=range, thread_barrier=nothing,
    to_tensor=tile,
    program_id=lambda axis: tile(program.index), num_programs=lambda axis: program.count,
    num_warps=lambda: program.warps, load=load, store=store, inline_asm_elementwise=assembly,
    arange=lambda start, stop, layout: tile(torch.arange(start, stop)), cdiv=lambda a, b: -(-a // b),
    full=lambda shape, value, dtype, layout: tile(torch.full(tuple(shape), value, dtype=dtype)),
    convert_layout=lambda x, layout: x, reshape=torch.reshape, permute=torch.permute,
    join=lambda a, b: torch.stack([a, b], -1), split=lambda x: x.unbind(-1), sum=torch.sum,
    where=torch.where, exp=torch.exp, abs=torch.abs,
    allocate_shared_memory=lambda dtype, shape, layout: Shared(tile(torch.full(tuple(shape), float("nan")))),
)  # fmt: skip


class Kernel:
    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        def launch(*arguments, num_warps, launch_cooperative_grid=False, **constants):
            @torch.no_grad()
            def run(index):
                program.index, program.count, program.warps = index, grid[0], num_warps
                self.function(*map(of_kernel, arguments), **constants)

            with ThreadPoolExecutor(grid[0]) as pool:
                list(pool.map(run, range(grid[0])))

        return launch


def of_kernel(argument):
    if not isinstance(argument, torch.Tensor):
        return tile(argument)
    return Pointers(tile(torch.empty(0).set_(argument.untyped_storage())), argument.storage_offset())


@cache
def kernels():
    """``matrix.py``, imported with these in the place of Triton's modules."""
    gluon = SimpleNamespace(jit=decorator, constexpr_function=decorator, language=language)
    knobs = SimpleNamespace(runtime=SimpleNamespace(interpret=True))
    names = {
        "triton": SimpleNamespace(jit=decorator, language=language, knobs=knobs),
        "triton.language": language,
        "triton.experimental": SimpleNamespace(gluon=gluon),
        "triton.experimental.gluon": gluon,
        "triton.experimental.gluon.language.nvidia.ampere": SimpleNamespace(
            mma_v2=lambda a, b, c, precision: c + a @ b
        ),
    }
    package = importlib.import_module(PACKAGE)
    attributes = dict(vars(package))
    own = [f"{PACKAGE}.{name}" for name in ("equations", "product", "forward", "matrix_product", "matrix")]
    kept = {name: sys.modules.pop(name) for name in [*sys.modules] if name in own or name.split(".")[0] == "triton"}
    try:
        sys.modules.update(names)
        module = importlib.import_module(own[-1])
    finally:
        for name in (*names, *own):
            sys.modules.pop(name, None)
        sys.modules.update(kept)
        vars(package).clear()
        vars(package).update(attributes)
    return SimpleNamespace(advance=Kernel(module.advance), retreat=Kernel(module.retreat))
