"""How long a call keeps the host of a GPU busy, measured without a GPU: no kernel, no product and no cuDNN runs.

A call is forward and backward of one layer, with a gradient of every weight. ``fused`` is the loop made from the step,
with the plan of an H200, ``cudnn`` the way through cuDNN. What a call does before each launch is all that is measured,
not what Triton, cuBLAS and the memory of a GPU add at each, nor that a backward pass has a thread of its own there:
processor time on one thread, the median with its quarters, and two numbers that are the same each time: how many
functions of Python a call calls, and how many operations of PyTorch.

Run: python benchmarks/host.py [--seconds N]
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import multistable as ms
from multistable.scan import choice, cudnn, fused, of_torch
from multistable.scan.kernels import gpu, launch, matrix, recurrence, repack  # noqa: F401 (before Triton is told to interpret)

KINDS: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
STEPS, ROWS, FEATURES, HIDDEN = 3, 2, 8, 16
H200 = {"processors": 132, "shared_memory": 232_448, "matrix_units": True}


class Kernel:
    """What Triton makes of a kernel, without the kernel."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        return lambda *arguments: None


class Operations(TorchDispatchMode):
    """Counts operations of PyTorch."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


def nothing_runs() -> None:
    """From here on there are no kernels, no products and no cuDNN, and the CPU is taken for a GPU."""

    def product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
        return a.new_empty(a.shape[0], a.shape[1], b.shape[2]) if out is None else out

    def laid_out(weights: list[Tensor], *_: Any) -> Tensor:
        buffer, start = torch.zeros(sum(weight.numel() for weight in weights)), 0
        for weight in weights:
            weight.set_(buffer.untyped_storage(), start, weight.shape, weight.stride())
            start += weight.numel()
        return buffer

    def forward(
        u: Tensor, weights: Any, _: int, buffer: Tensor, hx: Tensor, cx: Any, mode: int, h: int, *__: Any
    ) -> Any:
        return u.new_empty(*u.shape[:2], h), torch.empty_like(hx), torch.empty_like(hx), buffer, buffer

    def backward(u: Tensor, weights: Any, _: int, buffer: Tensor, hx: Tensor, *__: Any) -> Any:
        return *(torch.empty_like(x) for x in (u, hx, hx)), [torch.empty_like(weight) for weight in weights]

    kernel = Kernel()
    for owner, name, stand_in in (
        (launch.JITFunction, "__getitem__", lambda _, grid: lambda *arguments, **constants: kernel),
        (gpu, "capacity", lambda device: H200),
        (torch, "bmm", product),
        (torch, "baddbmm", lambda bias, a, b, out: out),
        (torch.Tensor, "baddbmm_", lambda self, *_, **__: self),
        (torch, "_cudnn_rnn_flatten_weight", laid_out),
        (torch._VF, "_cudnn_rnn", forward),
        (torch.ops.aten, "_cudnn_rnn_backward", backward),
        (cudnn, "get_cudnn_mode", lambda kind: 0),
        (cudnn, "absent", lambda: None),
    ):
        mock.patch.object(owner, name, stand_in).start()
    os.environ["TRITON_INTERPRET"] = "1"  # too late to be true; but tensors on the CPU are taken
    choice.LOOPS["cpu"] = ("triton", fused)
    of_torch.LIBRARIES["cpu"] = cudnn


def both(network: nn.Module, x: Tensor, backend: str) -> Callable[[], object]:
    """A call forward and backward."""
    weights = list(network.parameters())

    def call() -> object:
        with ms.engine(backend=backend):
            output, _ = network(x)
        return torch.autograd.grad(output.sum(), weights)

    return call


def counted(call: Callable[[], object]) -> tuple[int, int]:
    """How many functions of Python, and how many operations of PyTorch, a call calls."""
    called: list[str] = []
    sys.setprofile(lambda frame, event, argument: called.append(event))
    try:
        call()
    finally:
        sys.setprofile(None)
    with Operations() as operations:
        call()
    return called.count("call"), operations.count


def microseconds(call: Callable[[], object], seconds: float) -> list[float]:
    """The quarters of the times of a call."""
    taken, end = [], time.process_time() + seconds
    while time.process_time() < end:
        start = time.process_time()
        for _ in range(10):
            call()
        taken.append(1e5 * (time.process_time() - start))
    return statistics.quantiles(taken, n=4)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    nothing_runs()
    x = torch.randn(STEPS, ROWS, FEATURES)
    print(f"torch {torch.__version__}; microseconds of the host, and between which half of the calls lie")
    for kind, make in KINDS.items():
        network = ms.from_torch(make(FEATURES, HIDDEN))
        for way, backend in (("fused", "fused"), ("cudnn", "torch")):
            call = both(network, x, backend)
            for _ in range(20):
                call()
            functions, operations = counted(call)
            low, middle, high = microseconds(call, options.seconds)
            print(
                f"{kind:5}{way:6}{middle:7.0f} [{low:.0f}, {high:.0f}]{functions:6} functions{operations:5} operations"
            )


if __name__ == "__main__":
    main()
