"""Launches of kernels that do not ask anew, each time, what the kernel has been compiled to."""

from typing import Any

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

INT32 = range(-(2**31), 2**31)
MOST_CALLS = 256
"""Of so many different calls a kernel knows without asking what it has been compiled to."""


class Launch:
    """A kernel with its compile-time constants.

    Triton finds what a kernel has been compiled to by all of its arguments and constants, which takes it longer than
    a short sequence takes a GPU. Here the constants are fixed, and what a compiled kernel takes for granted of its
    other arguments is all that is compared: whether an address or a number is a multiple of 16, whether a number is 1,
    and whether it has 32 bits. For calls with the numbers of an earlier one not even that is asked.

    Args:
        kernel: the kernel, whose constants come last.
        constants: their values by name, and options of the compiler.

    A call's first argument is a tensor or a tuple of tensors.
    """

    def __init__(self, kernel: Any, **constants: Any) -> None:
        self.kernel, self.constants = kernel, constants
        self.compiled: dict[Any, Any] = {}
        self.latest: dict[Any, Any] = {}
        self.compiles = isinstance(kernel, JITFunction)  # Triton's interpreter does not
        if self.compiles:
            self.values = tuple(constants[name] for name in kernel.arg_names if name in constants)
            self.general = [param.do_not_specialize for param in kernel.params]

    def __call__(self, grid: tuple[int, ...], *arguments: Any) -> None:
        """Launch the kernel on the tensors' GPU, which need not be the current one."""
        if not self.compiles:
            self.kernel[grid](*arguments, **self.constants)
            return
        first = arguments[0]
        device = (first[0] if isinstance(first, tuple) else first).device
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                self._launch(device, grid, arguments)
        else:
            self._launch(device, grid, arguments)

    def _launch(self, device: torch.device, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        call = (device.index, *_exactly(arguments))
        compiled = self.latest.get(call)
        if compiled is None:
            key = (device.index, *map(_taken_for_granted, call[1:], self.general))
            compiled = self.compiled.get(key)
            if compiled is None:
                self.compiled[key] = self.kernel[grid](*arguments, **self.constants)
                return
            if len(self.latest) >= MOST_CALLS:
                self.latest.clear()
            self.latest[call] = compiled
        compiled[(*grid, 1, 1)](*arguments, *self.values)


def _exactly(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments without the tensors, of which only the address matters."""
    found: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            found.append(argument.data_ptr() % 16 == 0)
        else:
            found.append(_exactly(argument) if isinstance(argument, tuple) else argument)
    return tuple(found)


def _taken_for_granted(argument: Any, general: bool) -> Any:
    """The same of what ``_exactly`` returns, for all numbers that a compiled kernel serves."""
    if isinstance(argument, tuple):
        return tuple(_taken_for_granted(entry, general) for entry in argument)
    if isinstance(argument, bool):
        return argument
    return argument in INT32 if general else (argument == 1, argument % 16 == 0, argument in INT32)
