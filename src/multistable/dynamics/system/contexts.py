"""Settings under which a network is studied. Each context puts back what it changed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from multistable.scan import engine


@contextmanager
def evaluating(rnn: nn.Module) -> Iterator[None]:
    """Run the network as the deterministic system it is: no dropout, no automatic casts.

    cuDNN is off inside: its recurrences give gradients in training mode only, and round to TF32.
    """
    modes = [(module, module.training) for module in rnn.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in rnn.buffers()]
    cudnn = torch.backends.cudnn.enabled
    try:
        for module, _ in modes:
            module.training = False
        torch.backends.cudnn.enabled = False
        with ExitStack() as stack:
            for device in {p.device.type for p in rnn.parameters()}:
                stack.enter_context(torch.autocast(device, enabled=False))
            yield
    finally:
        torch.backends.cudnn.enabled = cudnn
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


@contextmanager
def ieee_float32() -> Iterator[None]:
    """Compute float32 matrix products in float32, whatever the global flags say.

    With products in TF32 or bfloat16 the states of a monostable network never come within eps of each other, and its
    VAA is near 1 instead of 1/n.
    """
    backends = torch.backends
    with engine(precision="ieee"), _products("ieee", backends.cuda.matmul, backends.mkldnn.matmul):  # type: ignore[attr-defined]
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
    with engine(precision="tf32"), _products("tf32", torch.backends.cuda.matmul):
        yield


@contextmanager
def _products(wanted: str, *backends: Any) -> Iterator[None]:
    """Compute PyTorch's own products in a precision."""
    before = [(backend, backend.fp32_precision) for backend in backends]
    try:
        for backend, precision in before:
            # "none" means float32 already.
            if precision != wanted and (wanted, precision) != ("ieee", "none"):
                backend.fp32_precision = wanted
        yield
    finally:
        for backend, precision in before:
            if backend.fp32_precision != precision:
                # Setting an inherited value would stop it from following the flag it was inherited from.
                inherited = precision == torch.backends.fp32_precision  # type: ignore[attr-defined]
                backend.fp32_precision = "none" if inherited else precision
