"""Settings under which a network is studied. Each context puts back what it changed, also where threads overlap."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from multistable.dynamics.system.flags import CUDNN, MATMUL, lock
from multistable.dynamics.system.modules import example_of
from multistable.scan import engine


@contextmanager
def evaluating(rnn: nn.Module) -> Iterator[None]:
    """Run the network as the deterministic system it is: no dropout, no automatic casts.

    cuDNN is off inside for a network on a GPU: its recurrences give gradients in training mode only, and round to TF32.
    """
    devices = {tensor.device.type for tensor in (example_of(rnn), *rnn.parameters(), *rnn.buffers())}
    with ExitStack() as stack:
        if "cuda" in devices:
            stack.enter_context(CUDNN.held(False))
        for device in devices:
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(_in_evaluation(rnn))
        yield


@contextmanager
def on_the_cpu() -> Iterator[None]:
    """Make tensors for which no device is given on the CPU, whatever ``torch.set_default_device`` says."""
    with torch.device("cpu") if torch.get_default_device().type != "cpu" else nullcontext():
        yield


@dataclass
class _Module:
    """A module as it was before the first of the calls that study it, perhaps in several threads, began."""

    module: nn.Module
    training: bool
    buffers: list[tuple[Tensor, Tensor]]
    calls: set[object]


_studied: dict[int, _Module] = {}
"""Modules that are being studied, by their ``id``."""


@contextmanager
def _in_evaluation(rnn: nn.Module) -> Iterator[None]:
    """The network in evaluation mode, until no call studies it any more; its buffers are then as they were."""
    call, modules = object(), list(rnn.modules())
    try:
        for module in modules:
            with lock:
                if id(module) not in _studied:
                    buffers = [(buffer, buffer.clone()) for buffer in module.buffers(recurse=False)]
                    _studied[id(module)] = _Module(module, module.training, buffers, set())
                _studied[id(module)].calls.add(call)
                module.training = False
        yield
    finally:
        # An interrupt may break in once, see interrupted_once.
        try:
            _put_back(modules, call)
        except BaseException:
            _put_back(modules, call)
            raise


@torch.no_grad()
def _put_back(modules: list[nn.Module], call: object) -> None:
    """What ``call`` changed, except for modules that other calls still study. Doing it twice changes nothing."""
    for module in modules:
        with lock:
            before = _studied.get(id(module))
            if before is None or call not in before.calls:
                continue
            if before.calls == {call}:
                module.training = before.training
                for buffer, value in before.buffers:
                    buffer.copy_(value)
                del _studied[id(module)]
            before.calls.discard(call)


@contextmanager
def ieee_float32() -> Iterator[None]:
    """Compute float32 matrix products in float32, whatever the global flags say.

    With products in TF32 or bfloat16 the states of a monostable network never come within eps of each other, and its
    VAA is near 1 instead of 1/n.
    """
    with engine(precision="ieee"), ExitStack() as stack:
        for flag in MATMUL.values():
            stack.enter_context(flag.held("ieee"))
        yield


@contextmanager
def measured_float32() -> Iterator[None]:
    """:func:`ieee_float32`, but where many states advance on a GPU, the products of layers are almost in float32.

    In every network that was compared, a VAA of 1 or of a single attractor stayed the same. Values between differed by
    up to 0.06, see ``docs/results/engine_records.md``. Where a gradient is needed these products are in float32.
    """
    with ieee_float32(), engine(precision="tf32x3"):
        yield


@contextmanager
def tf32() -> Iterator[None]:
    """Compute products on a GPU in TF32, those of recurrences and PyTorch's own: for training, never for a measure."""
    with engine(precision="tf32"), MATMUL["cuda"].held("tf32"):
        yield
