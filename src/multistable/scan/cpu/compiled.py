"""The cells with their pointwise formulas compiled by numba, for float32; products of matrices stay PyTorch's.

Imported late: numba need not be there, and takes a while to load.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from multistable.scan.cpu import equations, pointwise
from multistable.scan.cpu.base import Equations, Tensors

WORTH_A_THREAD = 4_000_000
"""Elements times steps of BRC for each thread: some milliseconds, since PyTorch's own threads still hold the processors
for as long after an operation, waiting for the next."""


def arrays(*tensors: Tensor) -> list[np.ndarray]:
    """``(time, [N,] n, columns)`` as arrays ``(time, rows, columns)`` of the same memory, copied only if strided."""
    return [tensor.detach().contiguous().flatten(1, -2).numpy() for tensor in tensors]


class Gradients:
    """The buffers of a backward pass: outputs' gradients ``up``, the state's ``g``, pre-activations' ``d``."""

    def __init__(
        self, rule: Equations, upstream: tuple[Tensor | None, ...], states: Tensors, d: Tensor | None = None
    ) -> None:
        steps, *leading, hidden = states[0].shape
        shape = (1, *leading, hidden)
        g = tuple(field.new_zeros(shape) for field in states)
        self.g = tuple(field[0] for field in g)
        self.d = states[0].new_empty(steps, *leading, rule.gates, hidden) if d is None else d
        self.up_arrays = arrays(*(states[0].new_zeros(shape) if field is None else field for field in upstream))
        self.g_arrays = [array[0] for array in arrays(*g)]
        (self.d_array,) = arrays(self.d.flatten(-2))


class OneProduct(Equations):
    """A step whose only product is that of the state with the recurrent matrix, kept in the first buffer."""

    forward: ClassVar[Callable[..., None]]
    backward: ClassVar[Callable[..., None]]

    def others(self) -> list[np.ndarray]:
        """What else ``forward`` takes."""
        return []

    def advance(self, steps: int, x: Tensor, states: Tensors, kept: Tensors) -> None:
        buffers = arrays(x, *states, *kept) + self.others()
        h, products = states[0].unbind(0), kept[0].unbind(0)
        for t in range(steps):
            self.multiply(h[t % len(h)], self.weight, out=products[t % len(products)])
            self.forward(t, *buffers)

    def go_back(self, upstream: tuple[Tensor | None, ...], states: Tensors, kept: Tensors) -> tuple[Tensor, Tensors]:
        gradients = Gradients(self, upstream, states)
        buffers = [*gradients.up_arrays, *arrays(*states, *kept), *gradients.g_arrays, gradients.d_array]
        g = gradients.g[0]
        d = gradients.d[..., : self.recurrent, :].flatten(-2).unbind(0)
        for t in reversed(range(len(d))):
            self.backward(t, *buffers)
            self.multiply_add(g, d[t], self.transposed, out=g)
        return gradients.d, gradients.g


class LSTM(OneProduct, equations.LSTM):
    """Blocks f, i, r, c."""

    forward = staticmethod(pointwise.lstm)
    backward = staticmethod(pointwise.lstm_back)


class GRU(OneProduct, equations.GRU):
    """Blocks z, r, h; of gradients m, z, r, h."""

    forward = staticmethod(pointwise.gru)
    backward = staticmethod(pointwise.gru_back)

    def others(self) -> list[np.ndarray]:
        hidden = self.weight.shape[-2]
        bias = self.weight.new_zeros(1, hidden) if self.bias is None else self.bias.detach().reshape(-1, hidden)
        return [bias.contiguous().numpy()]


class NBRC(OneProduct, equations.NBRC):
    """Blocks c, a, h."""

    forward = staticmethod(pointwise.nbrc)
    backward = staticmethod(pointwise.nbrc_back)


class MGU(equations.MGU):
    """Blocks f, h, the second of which takes a product of its own."""

    def advance(self, steps: int, x: Tensor, states: Tensors, kept: Tensors) -> None:
        buffers = arrays(x, *states, *kept)
        h, f, candidate = (buffer.unbind(0) for buffer in (*states, *kept))
        for t in range(steps):
            self.multiply(h[t % len(h)], self.W_f, out=f[t % len(f)])
            pointwise.mgu_gate(t, *buffers[:-1])
            self.multiply(h[(t + 1) % len(h)], self.W_h, out=candidate[t % len(candidate)])
            pointwise.mgu(t, *buffers)

    def go_back(self, upstream: tuple[Tensor | None, ...], states: Tensors, kept: Tensors) -> tuple[Tensor, Tensors]:
        gradients = Gradients(self, upstream, states)
        (g,) = gradients.g
        g_fh = g.new_empty(g.shape)
        through_gate = arrays(g_fh.unsqueeze(0))[0][0]
        h, f, candidate = arrays(*states, *kept)
        (up,), (of_state,), d = gradients.up_arrays, gradients.g_arrays, gradients.d_array
        d_f, d_h = (block.unbind(0) for block in gradients.d.unbind(-2))
        for t in reversed(range(len(d))):
            pointwise.mgu_back(t, up, h, f, candidate, of_state, d)
            self.multiply(d_h[t], self.W_h_transposed, out=g_fh)
            pointwise.mgu_gate_back(t, h, f, through_gate, of_state, d)
            self.multiply_add(g, d_f[t], self.W_f_transposed, out=g)
        return gradients.d, gradients.g


class BRC(equations.BRC):
    """The whole sequence in one call: there is no matrix between the steps.

    What a step keeps, the blocks c, s and the candidate, and the gradients c, a and h have the same place.
    """

    kept = (3,)
    overwrites = True

    def advance(self, steps: int, x: Tensor, states: Tensors, kept: Tensors) -> None:
        buffers = arrays(x, *states, *kept)
        spread(pointwise.brc, states[0][0].numel() * steps, buffers[1].shape[1], steps, self.rows_weight, *buffers)

    def go_back(self, upstream: tuple[Tensor | None, ...], states: Tensors, kept: Tensors) -> tuple[Tensor, Tensors]:
        gradients = Gradients(self, upstream, states, kept[0].unflatten(-1, (3, -1)))
        (h,) = arrays(*states)
        of_weight = self.weight.new_zeros(1, *gradients.g[0].shape[:-1], self.weight.shape[-1])
        buffers = [*gradients.up_arrays, h, *gradients.g_arrays, gradients.d_array, arrays(of_weight)[0][0]]
        spread(pointwise.brc_back, states[0].numel(), h.shape[1], self.rows_weight, *buffers)
        self.of_weight = of_weight[0].sum(-2)
        return gradients.d, gradients.g

    @property
    def rows_weight(self) -> np.ndarray:
        """The weight, ``(N or 1, 2 * hidden)``."""
        return self.weight.detach().reshape(-1, self.weight.shape[-1]).contiguous().numpy()


def spread(kernel: Callable[..., None], work: int, rows: int, *arguments: Any) -> None:
    """Call ``kernel(start, stop, *arguments)`` for all rows, on as many threads as PyTorch has and the work needs."""
    threads = max(1, min(torch.get_num_threads(), work // WORTH_A_THREAD, rows))
    if threads == 1:
        kernel(0, rows, *arguments)
        return
    limits = [rows * part // threads for part in range(threads + 1)]
    # Not kept for the next call: threads do not survive a fork.
    with ThreadPoolExecutor(threads - 1) as pool:
        first, *others = pairwise(limits)
        parts = [pool.submit(kernel, *other, *arguments) for other in others]
        kernel(*first, *arguments)
        for part in parts:
            part.result()


EQUATIONS: dict[type[Equations], type[Equations]] = {
    getattr(equations, rule.__name__): rule for rule in (LSTM, GRU, MGU, BRC, NBRC)
}
"""By the equations that they compute faster."""
