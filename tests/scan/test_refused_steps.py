"""Steps that no fused loop can compute are refused with the reason, and the plain loop runs them."""

import random

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import multistable as ms
from multistable.scan.program import RefusedError, program_of
from own_cells import OneMatrix


def flow(cell, x, h):
    return torch.tanh(x) if h.mean() > 0 else x


def in_place(cell, x, h):
    h.mul_(0.5)
    return torch.tanh(x + h @ cell.W)


def weight_in_place(cell, x, h):
    with torch.no_grad():
        cell.W.clamp_(-1, 1)
    return torch.tanh(x + h @ cell.W)


def stopped(cell, x, h):
    with torch.no_grad():
        gate = torch.sigmoid(h)
    return gate * x


class StraightThrough(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.sign()

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient


PLAIN = torch.ones(1, 5)

REFUSED = {
    "the values of tensors": flow,
    r"in place \(aten.copy_\)": in_place,
    r"a weight in place \(aten.copy_\)": weight_in_place,
    "derivatives of its own": stopped,
    "not the same at every call": lambda cell, x, h: torch.tanh(x + random.random() * h),
    "aten.bernoulli": lambda cell, x, h: functional.dropout(x, 0.5, training=True),
    r"aten\.sin,": lambda cell, x, h: torch.sin(x + h),
    "aten.erf": lambda cell, x, h: torch.erf(x + h),
    "neither a parameter nor a buffer": lambda cell, x, h: torch.tanh(x + PLAIN * h),
    "columns 0 to 2": lambda cell, x, h: torch.cat([h[..., :2], x[..., 2:]], -1),
    "rows": lambda cell, x, h: torch.tanh(x + h.mean(0, keepdim=True)),
    "not a constant": lambda cell, x, h: torch.pow(x.abs() + 1, h),
    "aten.transpose": lambda cell, x, h: torch.tanh(x + x @ h.mT @ h),
    "matrix of 5 x 7": lambda cell, x, h: (h @ cell.W.repeat(1, 2)[:, :7])[..., :5],
    "no state of 1 fields": lambda cell, x, h: torch.cat([x, h], -1),
    "could not be recorded: AttributeError": lambda cell, x, h: cell.missing,
}


@pytest.mark.parametrize(("reason", "function"), REFUSED.items(), ids=REFUSED)
def test_what_is_refused_and_why(reason, function):
    cell = OneMatrix(function)
    before = [weight.detach().clone() for weight in cell.parameters()]
    with pytest.raises(RefusedError, match=reason):
        program_of(cell)
    assert all(map(torch.equal, before, cell.parameters()))


def test_a_derivative_of_ones_own_is_refused():
    with pytest.raises(RefusedError, match=r"derivatives of its own|could not be recorded"):
        program_of(OneMatrix(lambda cell, x, h: StraightThrough.apply(x + h @ cell.W)))


def test_a_refusal_reaches_the_user_and_the_plain_loop_runs():
    rnn = ms.RNN(lambda inputs, hidden: OneMatrix(lambda cell, x, h: torch.sin(x + h), inputs, hidden), 2, 5)
    (line,) = ms.backends(rnn)
    reason = "its step has the operation aten.sin, which fused loops do not know"
    assert line == f"reference: OneMatrix has no fused loop: {reason}"
    assert rnn(torch.randn(3, 1, 2))[0].shape == (3, 1, 5)


def clipped(cell, x, h):
    y = torch.tanh(x + h @ cell.W)
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient.clamp(-10, 10))
    return y


def counting(cell, x, h):
    cell.steps = getattr(cell, "steps", 0) + 1
    return torch.tanh(x + h) if cell.steps < 8 else h


LOOK_RIGHT = {
    "gradients that are clipped where they are large": (clipped, "derivatives of its own"),
    "a count of its steps": (counting, "changes an attribute"),
    "weights that are rarely dropped": (lambda cell, x, h: x + h @ functional.dropout(cell.W, 0.01), "draws random"),
    "the number of rows": (lambda cell, x, h: torch.tanh(x + h) / h.shape[-2], "not the same"),
    "the precision": (lambda cell, x, h: torch.log(torch.relu(x) + torch.finfo(h.dtype).eps) + h, "not the same"),
    "a mask of units": (lambda cell, x, h: torch.where(torch.arange(5) < 2, x + h, h), "could not be recorded"),
}


@pytest.mark.parametrize(("function", "reason"), LOOK_RIGHT.values(), ids=LOOK_RIGHT)
def test_a_step_that_only_looks_like_what_was_recorded_is_refused(function, reason):
    with pytest.raises(RefusedError, match=reason):
        program_of(OneMatrix(function))


class Box:
    factor = 0.5


@pytest.mark.parametrize("value", [[0.5], {"factor": 0.5}, Box(), torch.tensor(0.5)], ids=lambda v: type(v).__name__)
def test_an_attribute_that_may_change_unseen_is_refused(value):
    cell = OneMatrix(lambda cell, x, h: x + h)
    cell.option = value
    with pytest.raises(RefusedError, match=r"may read option, .* which may change unseen"):
        program_of(cell)
