"""The kernels of ``matrix.py`` from their source, with PyTorch in the place of Gluon and a thread for each program.

Indices, exchanges and arithmetic are those of the source. How tiles lie over threads is not: there are no layouts here.
"""

import importlib
import linecache
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from types import ModuleType, SimpleNamespace

import torch
import triton

PACKAGE = "multistable.scan.kernels"
program = threading.local()


class Tile(torch.Tensor):
    """A tensor with the methods of Triton's tensors, which is never changed in place."""

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

    def words(self, width, dtype=torch.int32):
        """The memory as words of a type, and the index of each word at each pointer."""
        size = dtype.itemsize // 4
        return self.memory.view(dtype), torch.stack([self.offsets // size + i for i in range(width)])


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
        assert values.dtype == self.data.dtype
        self.data.copy_(values)

    def load(self, layout):
        return self.data.clone()

    def slice(self, start, length, dim):
        return Shared(self.data.narrow(dim, start, length))


def assembly(text, constraints, arguments, dtype, is_pure, pack):
    if "cvt.rna.tf32" in text:
        return (arguments[0].to(torch.int32, bitcast=True) + 0x1000 & ~0x1FFF).to(torch.float32, bitcast=True)
    # Words of 64 bits are read and written as such: both halves come together.
    word = torch.int64 if ".b64" in text else torch.int32
    if "st.relaxed" in text:
        values = torch.stack(arguments[1:], -1 if word == torch.int64 else 0).contiguous()
        memory, places = arguments[0].words(2 * 4 // word.itemsize, word)
        memory[places] = values.view(word).squeeze(-1) if word == torch.int64 else values
        return None
    assert "ld.relaxed" in text
    memory, places = arguments[0].words(4 if ".v4" in text else 2, word)
    until = time.monotonic() + 60
    while (words := as_tagged(memory[places], arguments[1]))[1].any():
        assert time.monotonic() < until, "waited in vain for another program"
        time.sleep(0)
    return tuple(tile(each).to(torch.float32, bitcast=True) for each in words[0])


def as_tagged(words, tags):
    """The words of 32 bits that were read, and their tag bits that are wrong: two in a word, or one in each half."""
    if words.dtype == torch.int32:
        return words, (words ^ tags) & 3
    halves = words.view(torch.int32).unflatten(-1, (-1, 2)).movedim(-1, 1).flatten(0, 1)
    return halves, (halves ^ torch.stack([tags, tags >> 1] * len(words))) & 1


def matrix_product(a, b, c, precision=None):
    """The product as matrix units compute it: of numbers of half precision, or in TF32, which drops the last bits.

    It is rounded once: in float32 a CPU may give the same row other last digits in another place.
    """
    assert a.dtype == b.dtype == (torch.float32 if precision == "tf32" else torch.float16)
    if precision == "tf32":
        a, b = ((x.to(torch.int32, bitcast=True) & ~0x1FFF).to(torch.float32, bitcast=True) for x in (a, b))
    return c + (a.double() @ b.double()).float()


def decorator(function=None, **options):
    return function or decorator


def nothing(*arguments):
    return None


language = SimpleNamespace(
    int32=torch.int32, int64=torch.int64, float16=torch.float16, float32=torch.float32,
    constexpr=lambda x: x, shared_memory_descriptor=Shared,
    BlockedLayout=nothing, DotOperandLayout=nothing, NVMMADistributedLayout=nothing, SliceLayout=nothing,
    SwizzledSharedLayout=nothing, static_assert=nothing, static_range=range, thread_barrier=nothing,
    to_tensor=tile,
    program_id=lambda axis: tile(program.index), num_programs=lambda axis: program.count,
    num_warps=lambda: program.warps, load=load, store=store, inline_asm_elementwise=assembly,
    arange=lambda start, stop, layout: tile(torch.arange(start, stop)), cdiv=lambda a, b: -(-a // b),
    full=lambda shape, value, dtype, layout: tile(torch.full(tuple(shape), value, dtype=dtype)),
    convert_layout=lambda x, layout: x, reshape=torch.reshape, permute=torch.permute,
    join=lambda a, b: torch.stack([a, b], -1), split=lambda x: x.unbind(-1), sum=torch.sum,
    where=torch.where, exp=torch.exp, abs=torch.abs, log=torch.log, sqrt=torch.sqrt, zeros_like=torch.zeros_like,
    allocate_shared_memory=lambda dtype, shape, layout: Shared(tile(torch.full(tuple(shape), torch.nan, dtype=dtype))),
)  # fmt: skip


class Kernel:
    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        def launch(*arguments, num_warps, launch_cooperative_grid=False, **constants):
            constants = {name: as_plain_function(value) for name, value in constants.items()}

            @torch.no_grad()
            def run(index):
                program.index, program.count, program.warps = index, grid[0], num_warps
                self.function(*map(of_kernel, arguments), **constants)

            with ThreadPoolExecutor(grid[0]) as pool:
                list(pool.map(run, range(grid[0])))

        return launch


def as_plain_function(value):
    """A function of a step, which was made for Triton, from its text; any other value as it is."""
    if not hasattr(value, "fn"):
        return value
    return getattr(step_module(value.fn.__module__), value.fn.__name__)


@cache
def step_module(name):
    module = ModuleType(name)
    with in_place_of_triton():
        exec("".join(linecache.getlines(f"<{name}>")), module.__dict__)
    return module


def of_kernel(argument):
    if isinstance(argument, tuple):
        return tuple(map(of_kernel, argument))
    if not isinstance(argument, torch.Tensor):
        return tile(argument)
    return Pointers(tile(torch.empty(0).set_(argument.untyped_storage())), argument.storage_offset())


@contextmanager
def in_place_of_triton():
    """The objects of this file in the place of Triton's modules, for what is imported inside."""
    gluon = SimpleNamespace(jit=decorator, constexpr_function=decorator, language=language)
    knobs = SimpleNamespace(runtime=SimpleNamespace(interpret=True))
    names = {
        "triton": SimpleNamespace(
            __version__=triton.__version__, jit=decorator, language=language, knobs=knobs, constexpr_function=decorator
        ),
        "triton.language": language,
        "triton.experimental": SimpleNamespace(gluon=gluon),
        "triton.experimental.gluon": gluon,
        "triton.experimental.gluon.language.nvidia.ampere": SimpleNamespace(mma_v2=matrix_product),
    }
    package = importlib.import_module(PACKAGE)
    attributes = dict(vars(package))
    matrix = ("matrix_product", "matrix_halves", "matrix_exchange", "matrix")
    own = [f"{PACKAGE}.{name}" for name in ("functions", "product", "forward", "backward", "thrice", *matrix)]
    kept = {name: sys.modules.pop(name) for name in [*sys.modules] if name in own or name.split(".")[0] == "triton"}
    try:
        sys.modules.update(names)
        yield
    finally:
        for name in (*names, *own):
            sys.modules.pop(name, None)
        sys.modules.update(kept)
        vars(package).clear()
        vars(package).update(attributes)


@cache
def kernels():
    """``matrix.py``, of these objects."""
    with in_place_of_triton():
        module = importlib.import_module(f"{PACKAGE}.matrix")
    return SimpleNamespace(advance=Kernel(module.advance), retreat=Kernel(module.retreat))
