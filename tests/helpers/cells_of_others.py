"""Cells of other papers, each written from its equations: nothing but parameters and a step.

``W`` is the recurrent matrix, gates side by side, and the projected input holds what the input adds to each gate. Where
a paper writes g h + (1 - g) c or the reverse, so does the cell.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn, relu, sigmoid, tanh
from torch.nn.functional import layer_norm, logsigmoid

import multistable as ms
from multistable.cells import Hidden, HiddenAndMemory


class Own(ms.Cell):
    """A cell whose input has ``gates`` blocks, with whatever other parameters it names."""

    State: Any = Hidden
    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, *, generator: torch.Generator | None = None, **factory
    ) -> None:
        super().__init__(input_size, hidden_size)

        def draw(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator, **factory) / hidden_size**0.5)

        self.input_weight = draw(input_size, self.gates * hidden_size)
        self.bias = draw(self.gates * hidden_size)
        self.make(hidden_size, draw)

    def make(self, n: int, draw: Callable[..., nn.Parameter]) -> None:
        """Make the parameters beside those of the input."""
        self.W = draw(n, self.gates * n)

    def products(self, h: Tensor) -> tuple[Tensor, ...]:
        """The blocks of h W."""
        return (h @ self.W).chunk(self.gates, -1)


def each(weight: Tensor) -> Tensor:
    """A weight for each unit, beside rows."""
    return weight.unsqueeze(-2)


class ReluElman(Own):
    """Elman's network with relu."""

    def step(self, projected, state):
        return Hidden(relu(projected + state.h @ self.W))


class IRNN(ReluElman):
    """Le, Jaitly and Hinton (2015): relu, from the identity."""

    def make(self, n, draw):
        self.W = nn.Parameter(torch.eye(n, dtype=self.bias.dtype))


class IndRNN(Own):
    """Li et al. (2018): each unit sees itself alone."""

    def make(self, n, draw):
        self.w = draw(n)

    def step(self, projected, state):
        return Hidden(relu(projected + each(self.w) * state.h))


class Context(NamedTuple):
    h: Tensor
    s: Tensor


class SCRN(Own):
    """Mikolov et al. (2014): slow context units beside fast ones."""

    State = Context
    gates = 2

    def make(self, n, draw):
        self.P, self.R = draw(n, n), draw(n, n)

    def step(self, projected, state):
        s_u, h_u = projected.chunk(2, -1)
        s = (1 - 0.95) * s_u + 0.95 * state.s
        return Context(sigmoid(s @ self.P + h_u + state.h @ self.R), s)


class UGRNN(Own):
    """Collins, Sohl-Dickstein and Sussillo (2017): an update gate alone."""

    gates = 2

    def step(self, projected, state):
        c, g = (projected + state.h @ self.W).chunk(2, -1)
        g = sigmoid(g)
        return Hidden(g * state.h + (1 - g) * tanh(c))


class MinimalRNN(Own):
    """Chen (2017): the input, embedded, is what is written."""

    def make(self, n, draw):
        self.U_h, self.U_z, self.b = draw(n, n), draw(n, n), draw(n)

    def step(self, projected, state):
        z = tanh(projected)
        u = sigmoid(state.h @ self.U_h + z @ self.U_z + each(self.b))
        return Hidden(u * state.h + (1 - u) * z)


class FastGRNN(Own):
    """Kusupati et al. (2018): one matrix for gate and candidate, and two numbers for the network."""

    def make(self, n, draw):
        self.W, self.b_h, self.zeta, self.nu = draw(n, n), draw(n), draw(1), draw(1)

    def step(self, projected, state):
        pre = projected + state.h @ self.W
        z, candidate = sigmoid(pre), tanh(pre + each(self.b_h))
        zeta, nu = sigmoid(each(self.zeta)), sigmoid(each(self.nu))
        return Hidden((zeta * (1 - z) + nu) * candidate + z * state.h)


class LiGRU(Own):
    """Ravanelli et al. (2018): no reset gate, and relu."""

    gates = 2

    def step(self, projected, state):
        z, a = (projected + state.h @ self.W).chunk(2, -1)
        z = sigmoid(z)
        return Hidden(z * state.h + (1 - z) * relu(a))


class LightGRU(Own):
    """The same with tanh, its gate and candidate by matrices of their own, and the products normalised."""

    gates = 2

    def make(self, n, draw):
        self.W_z, self.W_h = draw(n, n), draw(n, n)

    def step(self, projected, state):
        z_u, h_u = projected.chunk(2, -1)
        width = (self.hidden_size,)
        z = sigmoid(z_u + layer_norm(state.h @ self.W_z, width))
        return Hidden(z * state.h + (1 - z) * tanh(h_u + layer_norm(state.h @ self.W_h, width)))


class Oscillators(NamedTuple):
    h: Tensor
    z: Tensor


class CoRNN(Own):
    """Rusch and Mishra (2021): coupled oscillators, of position h and velocity z."""

    State = Oscillators

    def make(self, n, draw):
        self.W, self.V = draw(n, n), draw(n, n)

    def step(self, projected, state, dt=0.1, gamma=2.7, epsilon=4.7):
        force = tanh(projected + state.h @ self.W + state.z @ self.V)
        z = state.z + dt * (force - gamma * state.h - epsilon * state.z)
        return Oscillators(state.h + dt * z, z)


class LEM(Own):
    """Rusch et al. (2022): long expressive memory, each unit with two time steps of its own."""

    State = Oscillators
    gates = 4

    def make(self, n, draw):
        self.W, self.W_y = draw(n, 3 * n), draw(n, n)

    def step(self, projected, state, dt=0.5):
        first_u, second_u, z_u, y_u = projected.chunk(4, -1)
        first_h, second_h, z_h = (state.h @ self.W).chunk(3, -1)
        first, second = dt * sigmoid(first_u + first_h), dt * sigmoid(second_u + second_h)
        z = (1 - first) * state.z + first * tanh(z_u + z_h)
        return Oscillators((1 - second) * state.h + second * tanh(y_u + z @ self.W_y), z)


class PeepholeLSTM(Own):
    """Gers and Schmidhuber (2000): gates see the memory."""

    State = HiddenAndMemory
    gates = 4

    def make(self, n, draw):
        super().make(n, draw)
        self.w_i, self.w_f, self.w_o = draw(n), draw(n), draw(n)

    def step(self, projected, state):
        i, f, o, z = (projected + state.h @ self.W).chunk(4, -1)
        c = sigmoid(f + each(self.w_f) * state.c) * state.c + sigmoid(i + each(self.w_i) * state.c) * tanh(z)
        return HiddenAndMemory(sigmoid(o + each(self.w_o) * c) * tanh(c), c)


class CoupledLSTM(Own):
    """Greff et al. (2015), CIFG: the input gate is what the forget gate leaves."""

    State = HiddenAndMemory
    gates = 3

    def step(self, projected, state):
        f, o, z = (projected + state.h @ self.W).chunk(3, -1)
        f = sigmoid(f)
        c = f * state.c + (1 - f) * tanh(z)
        return HiddenAndMemory(sigmoid(o) * tanh(c), c)


class Stabilised(NamedTuple):
    h: Tensor
    c: Tensor
    n: Tensor
    m: Tensor


class SLSTM(Own):
    """Beck et al. (2024), sLSTM: exponential gates, a normaliser n and a stabiliser m."""

    State = Stabilised
    gates = 4

    def step(self, projected, state):
        i, f, o, z = (projected + state.h @ self.W).chunk(4, -1)
        f = logsigmoid(f) + state.m
        m = torch.maximum(f, i)
        f, i = torch.exp(f - m), torch.exp(i - m)
        c, n = f * state.c + i * tanh(z), f * state.n.abs() + i
        return Stabilised(sigmoid(o) * c / n, c, n, m)


class Antisymmetric(Own):
    """Chang et al. (2019): a matrix whose eigenvalues are imaginary, but for some friction."""

    def make(self, n, draw):
        self.W = draw(n, n)

    def step(self, projected, state, epsilon=0.1, gamma=0.01):
        friction = gamma * torch.eye(self.hidden_size, dtype=self.W.dtype, device=self.W.device)
        return Hidden(state.h + epsilon * tanh(projected + state.h @ (self.W - self.W.mT - friction)))


class Residual(Own):
    """Kusupati et al. (2018), FastRNN: a weighted residual connection."""

    def make(self, n, draw):
        self.W, self.alpha, self.beta = draw(n, n), draw(1), draw(1)

    def step(self, projected, state):
        candidate = tanh(projected + state.h @ self.W)
        return Hidden(sigmoid(each(self.alpha)) * candidate + sigmoid(each(self.beta)) * state.h)


class LeakyTanh(Own):
    """Jaeger et al. (2007): leaky units, each with a rate of its own."""

    def make(self, n, draw):
        self.W, self.rate = draw(n, n), draw(n)

    def step(self, projected, state):
        a = sigmoid(each(self.rate))
        return Hidden((1 - a) * state.h + a * tanh(projected + state.h @ self.W))


class ParaGRU(Own):
    """Danieli et al. (2025): a GRU whose matrices are diagonal."""

    gates = 3

    def make(self, n, draw):
        self.w = draw(3 * n)

    def step(self, projected, state):
        z_u, r_u, c_u = projected.chunk(3, -1)
        w_z, w_r, w_c = each(self.w).chunk(3, -1)
        z, r = sigmoid(z_u + w_z * state.h), sigmoid(r_u + w_r * state.h)
        return Hidden((1 - z) * state.h + z * tanh(c_u + w_c * (r * state.h)))


class CFN(Own):
    """Laurent and von Brecht (2017): a network without chaos."""

    gates = 3

    def make(self, n, draw):
        self.W = draw(n, 2 * n)

    def step(self, projected, state):
        theta_u, eta_u, u = projected.chunk(3, -1)
        theta, eta = (state.h @ self.W).chunk(2, -1)
        return Hidden(sigmoid(theta_u + theta) * tanh(state.h) + sigmoid(eta_u + eta) * tanh(u))


class RAN(Own):
    """Lee, Levy and Zettlemoyer (2017): the memory is a weighted sum of inputs."""

    State = HiddenAndMemory
    gates = 3

    def make(self, n, draw):
        self.W = draw(n, 2 * n)

    def step(self, projected, state):
        u, i_u, f_u = projected.chunk(3, -1)
        i, f = (state.h @ self.W).chunk(2, -1)
        c = sigmoid(i_u + i) * u + sigmoid(f_u + f) * state.c
        return HiddenAndMemory(tanh(c), c)


OTHERS = [
    *(ReluElman, IRNN, IndRNN, SCRN, UGRNN, MinimalRNN, FastGRNN, LiGRU, LightGRU, CoRNN),
    *(LEM, PeepholeLSTM, CoupledLSTM, SLSTM, Antisymmetric, Residual, LeakyTanh, ParaGRU, CFN, RAN),
]
