"""The formulas of each cell, forward and backward, written in place on blocks of ``([N,] n, hidden)``.

The letters are those of ``multistable.cells``: ``x_z`` is the projected input of gate z, ``h`` the state before the
step. Backward, ``g`` is the gradient of the state after the step, ``before`` that of the state before it, and
``d_z`` that of gate z's pre-activation. Most of backward is ``d_z = g * k_z`` where the slope ``k_z`` holds no
gradient: slopes are found for many steps at once, and only the rest is done step by step.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from multistable import cells
from multistable.scan.cpu.base import Equations, Tensors, sigmoid_slope, sum_of_products, tanh_slope


class LSTM(Equations):
    """Blocks f, i, r, c."""

    kept = (4, 1)
    gates = 4
    recurrent = 4
    of_input = slice(0, 4)
    slopes = 5

    def views(self, x: Tensor, kept: Tensors) -> Tensors:
        pre, tanh_memory = kept
        f, i, r, candidate = pre.chunk(4, -1)
        f_i_r = pre[..., : 3 * f.shape[-1]]
        return x, pre, f_i_r, f, i, r, candidate, tanh_memory

    def step(self, *views: Tensor) -> None:
        h, c, h_new, c_new, x, pre, f_i_r, f, i, r, candidate, tanh_memory = views
        self.multiply_add(x, h, self.weight, out=pre)
        f_i_r.sigmoid_()
        candidate.tanh_()
        torch.mul(f, c, out=c_new).addcmul_(i, candidate)
        torch.tanh(c_new, out=tanh_memory)
        torch.mul(r, tanh_memory, out=h_new)

    def find_slopes(self, state: Tensors, kept: Tensors, k: Tensor) -> None:
        (_, c), (pre, tanh_memory) = state, kept
        f, i, r, candidate = pre.chunk(4, -1)
        k_f, k_i, k_r, k_c, k_memory = k
        sigmoid_slope(c, f, out=k_f)
        sigmoid_slope(candidate, i, out=k_i)
        sigmoid_slope(tanh_memory, r, out=k_r)
        tanh_slope(i, candidate, out=k_c)
        tanh_slope(r, tanh_memory, out=k_memory)

    def views_back(self, g: Tensors, kept: Tensors, k: Tensor, d: Tensor) -> Tensors:
        f = kept[0].chunk(4, -1)[0]
        return g[1].unsqueeze(-2), f, k[:4].movedim(0, -2), k[2], k[4], d, d[..., 2, :], d.flatten(-2)

    def step_back(self, *views: Tensor) -> None:
        g_h, g_c, h_before, c_before, add_h, add_c, g_c_wide, f, k, k_r, k_memory, d, d_r, d_flat = views
        g_c.addcmul_(g_h, k_memory)
        torch.mul(g_c_wide, k, out=d)  # right for f, i and c; r sees h alone
        torch.mul(g_h, k_r, out=d_r)
        torch.addcmul(add_c, g_c, f, out=c_before)
        self.multiply_add(add_h, d_flat, self.transposed, out=h_before)

    def weight_gradients(self, state: Tensors, kept: Tensors, d: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return sum_of_products(state[0], d.flatten(-2)), None


class GRU(Equations):
    """Blocks z, r, h.

    Gradients have the blocks m, z, r, h, where m is the product W_hh h: the recurrent matrix takes the first three,
    the input the last three.
    """

    kept = (3, 1)
    gates = 4
    recurrent = 3
    of_input = slice(1, 4)
    slopes = 4
    may_have_bias = True

    def views(self, x: Tensor, kept: Tensors) -> Tensors:
        products, candidate = kept
        z, r, m = products.chunk(3, -1)
        z_r, x_z_r = (t[..., : 2 * z.shape[-1]] for t in (products, x))
        return x_z_r, x.chunk(3, -1)[2], products, z_r, z, r, m, candidate

    def step(self, *views: Tensor) -> None:
        h, h_new, x_z_r, x_h, products, z_r, z, r, m, candidate = views
        self.multiply(h, self.weight, out=products)
        z_r.add_(x_z_r).sigmoid_()
        if self.bias is not None:
            m.add_(self.bias.unsqueeze(-2))
        torch.addcmul(x_h, r, m, out=candidate).tanh_()
        torch.lerp(candidate, h, z, out=h_new)

    def find_slopes(self, state: Tensors, kept: Tensors, k: Tensor) -> None:
        (h,), (products, candidate) = state, kept
        z, r, m = products.chunk(3, -1)
        k_m, k_z, k_r, k_h = k
        tanh_slope(torch.sub(self.one, z, out=k_h), candidate, out=k_h)
        sigmoid_slope(torch.sub(h, candidate, out=k_z), z, out=k_z)
        sigmoid_slope(torch.mul(k_h, m, out=k_r), r, out=k_r)
        torch.mul(k_h, r, out=k_m)

    def views_back(self, g: Tensors, kept: Tensors, k: Tensor, d: Tensor) -> Tensors:
        z = kept[0].chunk(3, -1)[0]
        d_m_z_r = d[..., :3, :]
        return g[0].unsqueeze(-2), z, k[:3].movedim(0, -2), d_m_z_r, d_m_z_r.flatten(-2)

    def step_back(self, *views: Tensor) -> None:
        g, before, add, g_wide, z, k, d_m_z_r, d_flat = views
        torch.mul(g_wide, k, out=d_m_z_r)
        torch.addcmul(add, g, z, out=before)
        self.multiply_add(before, d_flat, self.transposed, out=before)

    @cached_property
    def transposed(self) -> Tensor:
        """The recurrent weight for gradients, ``([N,] 3 * hidden, hidden)``, rows in the order m, z, r."""
        return self.weight.roll(self.weight.shape[-2], -1).mT.contiguous()

    def weight_gradients(self, state: Tensors, kept: Tensors, d: Tensor) -> tuple[Tensor | None, Tensor | None]:
        m_z_r = sum_of_products(state[0], d[..., :3, :].flatten(-2))
        bias = None if self.bias is None else d[..., 0, :].sum((0, -2))
        return m_z_r.roll(-self.weight.shape[-2], -1), bias


class MGU(Equations):
    """Blocks f, h."""

    kept = (1, 1)
    gates = 2
    recurrent = 2
    of_input = slice(0, 2)
    slopes = 4
    few_threads = 1  # its compiled passes are two a step, and short

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__(weight, bias)
        self.W_f, self.W_h = weight.chunk(2, -1)

    def views(self, x: Tensor, kept: Tensors) -> Tensors:
        return (*x.chunk(2, -1), *kept)

    def step(self, *views: Tensor) -> None:
        h, h_new, x_f, x_h, f, candidate = views
        self.multiply_add(x_f, h, self.W_f, out=f).sigmoid_()
        f_h = torch.mul(f, h, out=h_new)
        self.multiply_add(x_h, f_h, self.W_h, out=candidate).tanh_()
        torch.lerp(h, candidate, f, out=h_new)

    def find_slopes(self, state: Tensors, kept: Tensors, k: Tensor) -> None:
        (h,), (f, candidate) = state, kept
        k_f, k_h, k_fh, _ = k
        sigmoid_slope(torch.sub(candidate, h, out=k_f), f, out=k_f)
        tanh_slope(f, candidate, out=k_h)
        sigmoid_slope(h, f, out=k_fh)

    def views_back(self, g: Tensors, kept: Tensors, k: Tensor, d: Tensor) -> Tensors:
        return g[0].unsqueeze(-2), kept[0], k[:2].movedim(0, -2), k[2], k[3], d, *d.unbind(-2)

    def step_back(self, *views: Tensor) -> None:
        g, before, add, g_wide, f, k, k_fh, g_fh, d, d_f, d_h = views
        torch.mul(g_wide, k, out=d)
        self.multiply(d_h, self.W_h_transposed, out=g_fh)
        d_f.addcmul_(g_fh, k_fh)
        torch.lerp(g, g_fh, f, out=before).add_(add)
        self.multiply_add(before, d_f, self.W_f_transposed, out=before)

    @cached_property
    def W_f_transposed(self) -> Tensor:
        """The recurrent weight of f for gradients, ``([N,] hidden, hidden)``."""
        return self.W_f.mT.contiguous()

    @cached_property
    def W_h_transposed(self) -> Tensor:
        """The recurrent weight of h for gradients, ``([N,] hidden, hidden)``."""
        return self.W_h.mT.contiguous()

    def weight_gradients(self, state: Tensors, kept: Tensors, d: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (h,), (f, _) = state, kept
        d_f, d_h = d.unbind(-2)
        return torch.cat([sum_of_products(h, d_f), sum_of_products(f * h, d_h)], -1), None


class NBRC(Equations):
    """Blocks c, a, h. The gate 1 + tanh(x) is 2 sigmoid(2 x), so both gates are one sigmoid; s is half of a."""

    kept: ClassVar[tuple[int, ...]] = (2, 1)
    gates = 3
    recurrent = 2
    of_input = slice(0, 3)
    slopes = 4

    def views(self, x: Tensor, kept: Tensors) -> Tensors:
        c_s, candidate = kept
        c, s = c_s.chunk(2, -1)
        return x[..., : c_s.shape[-1]], x.chunk(3, -1)[2], c_s, c, s, candidate

    def step(self, *views: Tensor) -> None:
        h, h_new, x_c_a, x_h, c_s, c, s, candidate = views
        self.multiply_add(x_c_a, h, self.weight, out=c_s)
        s.mul_(2)
        c_s.sigmoid_()
        torch.addcmul(x_h, s, h, value=2, out=candidate).tanh_()
        torch.lerp(candidate, h, c, out=h_new)

    def find_slopes(self, state: Tensors, kept: Tensors, k: Tensor) -> None:
        (h,), (c_s, candidate) = state, kept
        c, s = c_s.chunk(2, -1)
        k_c, k_a, k_h, k_before = k
        tanh_slope(torch.sub(self.one, c, out=k_h), candidate, out=k_h)
        sigmoid_slope(torch.sub(h, candidate, out=k_c), c, out=k_c)
        sigmoid_slope(torch.addcmul(self.zero, k_h, h, value=4, out=k_a), s, out=k_a)
        torch.addcmul(c, k_h, s, value=2, out=k_before)

    def views_back(self, g: Tensors, kept: Tensors, k: Tensor, d: Tensor) -> Tensors:
        d_c_a = d[..., :2, :]
        return g[0].unsqueeze(-2), k[:2].movedim(0, -2), k[3], d_c_a, d_c_a.flatten(-2)

    def step_back(self, *views: Tensor) -> None:
        g, before, add, g_wide, k, k_before, d_c_a, d_flat = views
        torch.mul(g_wide, k, out=d_c_a)
        torch.addcmul(add, g, k_before, out=before)
        self.multiply_add(before, d_flat, self.transposed, out=before)

    def weight_gradients(self, state: Tensors, kept: Tensors, d: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return sum_of_products(state[0], d[..., :2, :].flatten(-2)), None


class BRC(NBRC):
    """NBRC with a weight for each unit in place of the matrix: the whole of a step's gradient is one slope."""

    recurrent = 0
    weight_dim = 1
    few_threads = float("inf")  # compiled, it has threads of its own

    @cached_property
    def w(self) -> Tensor:
        """The weight of both gates, ``([N,] 1, 2, hidden)``."""
        return self.weight.unflatten(-1, (2, -1)).unsqueeze(-3)

    @cached_property
    def of_weight(self) -> Tensor:
        """The gradient of the weight, as far as it has been summed."""
        return torch.zeros_like(self.weight)

    def views(self, x: Tensor, kept: Tensors) -> Tensors:
        x_c_a, x_h, c_s, c, s, candidate = super().views(x, kept)
        return x_c_a.unflatten(-1, (2, -1)), x_h, c_s.unflatten(-1, (2, -1)), c, s, candidate

    def step(self, *views: Tensor) -> None:
        h, h_new, x_c_a, x_h, c_s, c, s, candidate = views
        torch.addcmul(x_c_a, self.w, h.unsqueeze(-2), out=c_s)
        s.mul_(2)
        c_s.sigmoid_()
        torch.addcmul(x_h, s, h, value=2, out=candidate).tanh_()
        torch.lerp(candidate, h, c, out=h_new)

    def find_slopes(self, state: Tensors, kept: Tensors, k: Tensor) -> None:
        super().find_slopes(state, kept, k)
        k_c, k_a, _, k_before = k
        w_c, w_a = self.w.unbind(-2)
        k_before.addcmul_(k_c, w_c).addcmul_(k_a, w_a)

    def views_back(self, g: Tensors, kept: Tensors, k: Tensor, d: Tensor) -> Tensors:
        return (k[3],)

    def step_back(self, *views: Tensor) -> None:
        g, before, add, k_before = views
        torch.addcmul(add, g, k_before, out=before)

    def finish(self, state: Tensors, g: Tensors, k: Tensor, d: Tensor) -> None:
        super().finish(state, g, k, d)
        # A sum, not a product of matrices: taken here, while its terms are in cache, into slopes of no more use.
        terms = torch.mul(d[..., :2, :].movedim(-2, 0), state[0], out=k[:2])
        self.of_weight += torch.cat([*terms.sum((1, -2))], -1)

    def weight_gradients(self, state: Tensors, kept: Tensors, d: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return self.of_weight, None


EQUATIONS: dict[Callable[..., Any], type[Equations]] = {
    cells.LSTM.step: LSTM,
    cells.GRU.step: GRU,
    cells.MGU.step: MGU,
    cells.BRC.step: BRC,
    cells.NBRC.step: NBRC,
}
"""By the method that is the equations: a subclass with other initial weights is here, one with other equations not."""
