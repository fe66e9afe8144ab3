"""The pointwise part of each cell, forward and backward, in the letters of ``multistable.cells``.

``x`` are the projected inputs and ``p`` the products with the recurrent matrix, one tile for each gate. A step *saves*
what its backward pass needs in blocks, one tile each:

======== =====================================================================
LSTM     f, i, r, g (the candidate), after their activations
GRU      z, r, n (the candidate), and p_h = W_hh h, which r multiplies
MGU      f, n
BRC      c, a, n
NBRC     c, a, n
======== =====================================================================

The backward functions return, in the same blocks, the gradient of each one's pre-activation (for the last block of
a GRU, that of p_h), so that they can be written over them.
"""

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
def lstm_forward(x, p, c):
    f = sigmoid(x[0] + p[0])
    i = sigmoid(x[1] + p[1])
    r = sigmoid(x[2] + p[2])
    g = tanh(x[3] + p[3])
    c = f * c + i * g
    return r * tanh(c), c, (f, i, r, g)


@triton.jit
def lstm_backward(s, c, c_before, dh, dc):
    """The gradients of the saved blocks, and that of the memory before the step."""
    f, i, r, g = s
    tanh_c = tanh(c)
    dc += dh * r * (1 - tanh_c * tanh_c)
    df = dc * c_before * f * (1 - f)
    di = dc * g * i * (1 - i)
    dr = dh * tanh_c * r * (1 - r)
    dg = dc * i * (1 - g * g)
    return (df, di, dr, dg), dc * f


@triton.jit
def gru_forward(x, p, h):
    z = sigmoid(x[0] + p[0])
    r = sigmoid(x[1] + p[1])
    n = tanh(x[2] + r * p[2])
    return z * h + (1 - z) * n, (z, r, n, p[2])


@triton.jit
def gru_backward(s, h, dh):
    """The gradients of the saved blocks, and what reaches the state before the step without a product."""
    z, r, n, p_h = s
    dz = dh * (h - n) * z * (1 - z)
    dn = dh * (1 - z) * (1 - n * n)
    dr = dn * p_h * r * (1 - r)
    return (dz, dr, dn, dn * r), dh * z


@triton.jit
def mgu_backward_candidate(s, dh):
    """The gradient of the candidate's pre-activation, the first of two steps: f also acts through W_hh (f * h)."""
    f, n = s
    return dh * f * (1 - n * n)


@triton.jit
def mgu_backward_gate(s, h, dh, dfh):
    """From the gradient of f * h: that of f's pre-activation, and what reaches h without a further product."""
    f, n = s
    df = (dh * (n - h) + dfh * h) * f * (1 - f)
    return df, dh * (1 - f) + dfh * f


@triton.jit
def brc_forward(x, p, h):
    """BRC and NBRC: ``p`` is w * h in the one, and W h in the other."""
    c = sigmoid(x[0] + p[0])
    a = 1 + tanh(x[1] + p[1])
    n = tanh(x[2] + a * h)
    return c * h + (1 - c) * n, (c, a, n)


@triton.jit
def brc_backward(s, h, dh):
    c, a, n = s
    dc = dh * (h - n) * c * (1 - c)
    dn = dh * (1 - c) * (1 - n * n)
    da = dn * h * (2 - a) * a
    return (dc, da, dn), dh * c + dn * a
