"""The functions of which steps are made, in Triton's language: each as precise as float32 needs, and no slower."""

import torch
import triton
import triton.language as tl

# Triton's own functions are as precise, but spend a comparison and three instructions on denormal numbers: half of a
# step's pointwise part, one element after the other where predicates are scarce. Its interpreter knows no assembly.
PTX = tl.constexpr(torch.version.hip is None and not triton.knobs.runtime.interpret)


@triton.jit
def exp(x):
    if PTX:
        x *= 1.4426950408889634
        y = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    else:
        y = tl.exp(x)
    return y


@triton.jit
def reciprocal(x):
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1) if PTX else 1 / x


@triton.jit
def sigmoid(x):
    return reciprocal(1 + exp(-x))


@triton.jit
def tanh(x):
    # 1 - 2 / (exp(2x) + 1) loses all relative precision near zero, where states that decay live. There the polynomial
    # of Cephes takes its place.
    y = tl.abs(x)
    far = 1 - 2 * reciprocal(exp(2 * y) + 1)
    x2 = x * x
    near = -5.70498872745e-3 * x2 + 2.06390887954e-2
    near = near * x2 - 5.37397155531e-2
    near = near * x2 + 1.33314422036e-1
    near = near * x2 - 3.33332819422e-1
    near = near * x2 * x + x
    return tl.where(y < 0.625, near, tl.where(x < 0, -far, far))


@triton.jit
def expm1(x):
    # exp(x) - 1 loses all relative precision near zero: there, by tanh(x / 2) = (exp(x) - 1) / (exp(x) + 1).
    t = tanh(0.5 * x)
    return tl.where(tl.abs(x) < 1, 2 * t / (1 - t), exp(x) - 1)


@triton.jit
def log1p(x):
    # Where 1 + x rounds, by the series of log(1 + x) around what it rounds to: log u - (u - 1 - x) / u.
    u = 1 + x
    return tl.where(tl.abs(x) < 1, tl.log(u) - (u - 1 - x) / u, tl.log(u))


@triton.jit
def sqrt(x):
    return tl.sqrt(x)


@triton.jit
def power(x, exponent):
    """x to a constant power that is no whole number; NaN for x below zero."""
    return exp(exponent * tl.log(x))


@triton.jit
def maximum(x, y):
    return tl.where(x != x, x, tl.where(x > y, x, y))


@triton.jit
def minimum(x, y):
    return tl.where(x != x, x, tl.where(x < y, x, y))
