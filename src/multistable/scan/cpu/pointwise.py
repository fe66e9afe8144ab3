"""The formulas of each cell for float32, compiled by numba: one pass where PyTorch takes one for each operation.

Kernels take the step ``t`` and buffers ``(time, rows, blocks * hidden)``. A buffer with fewer times than there are
steps is used in turns: two times of a state, one of an input that is constant. Letters are those of ``equations``;
backward, ``g`` is the gradient of the state after the step when a kernel is called, and that of the state before it,
but for the part that comes through the recurrent matrix, when it returns. ``up`` is the gradient of the outputs.

A number depends on its own row and column alone: not on the other rows, nor on how many steps one call takes.

This module must hold all that the kernels call, since numba compiles again only when the file of the kernel changes.
The functions that they call take one row of each array, so that LLVM sees contiguous memory and makes vectors of the
loop; where a division bounds a loop, it is faster in parts that have few arrays.
"""

import numpy as np
from numba import njit

# No flag that reorders sums or assumes finite numbers, nor one that approximates a division: LLVM would do that in
# vectors but not in what is left at the end of a row. A product and a sum may become one operation: no sum below is of
# two products, since which of them is rounded would differ as well, even between code that was just compiled and the
# same from the cache. Division by zero is IEEE's, since a check for it prevents vectors.
jit = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})

HALF, ONE, TWO, FOUR = (np.float32(value) for value in (0.5, 1, 2, 4))  # a plain 2 would make float64 of float32

# tanh(x) = x P(x^2) / Q(x^2), minimax in relative error (1e-9) up to where tanh is 1 in float32.
LARGEST = np.float32(9.02)
P1, P2, P3, P4 = (
    np.float32(p) for p in (0.13785382667287716, 0.004008532574589178, 3.1589563988147835e-05, 5.076390006356291e-08)
)
Q1, Q2, Q3, Q4, Q5 = (
    np.float32(q)
    for q in (
        0.4711871507520303,
        0.02773759793550587,
        0.0004207449804028452,
        1.6175235130790265e-06,
        7.374761065544545e-10,
    )
)


@jit
def tanh(x):
    """Within 6 units in the last place; NaN stays NaN, and no result is beyond 1."""
    # Comparisons that are false for NaN, so that it passes.
    if x > LARGEST:
        x = LARGEST
    if x < -LARGEST:
        x = -LARGEST
    s = x * x
    p = (((P4 * s + P3) * s + P2) * s + P1) * s + ONE
    q = ((((Q5 * s + Q4) * s + Q3) * s + Q2) * s + Q1) * s + ONE
    y = x * p / q
    if y > ONE:
        y = ONE
    if y < -ONE:
        y = -ONE
    return y


@jit
def sigmoid(x):
    return HALF + HALF * tanh(HALF * x)


@jit
def lstm(t, x, h, c, pre, tanh_memory):
    x, pre, tanh_memory = x[t % len(x)], pre[t % len(pre)], tanh_memory[t % len(tanh_memory)]
    h_new, c, c_new = h[(t + 1) % len(h)], c[t % len(c)], c[(t + 1) % len(c)]
    n = c.shape[1]
    for row in range(len(c)):
        add_sigmoid(pre[row, : 3 * n], x[row, : 3 * n])
        add_tanh(pre[row, 3 * n :], x[row, 3 * n :])
        f, i, r, candidate = pre[row, :n], pre[row, n : 2 * n], pre[row, 2 * n : 3 * n], pre[row, 3 * n :]
        product(f, c[row], c_new[row])
        add_product(i, candidate, c_new[row])
        lstm_output(r, c_new[row], tanh_memory[row], h_new[row])


@jit
def lstm_output(r, memory, tanh_memory, h):
    for j in range(len(h)):
        y = tanh(memory[j])
        tanh_memory[j] = y
        h[j] = r[j] * y


@jit
def lstm_back(t, up_h, up_c, h, c, pre, tanh_memory, g_h, g_c, d):
    up_h, up_c = up_h[t % len(up_h)], up_c[t % len(up_c)]
    c, pre, tanh_memory, d = c[t], pre[t], tanh_memory[t], d[t]
    n = c.shape[1]
    for row in range(len(c)):
        f, i, r, candidate = pre[row, :n], pre[row, n : 2 * n], pre[row, 2 * n : 3 * n], pre[row, 3 * n :]
        d_f, d_i, d_r, d_c = d[row, :n], d[row, n : 2 * n], d[row, 2 * n : 3 * n], d[row, 3 * n :]
        lstm_output_back(up_h[row], up_c[row], r, tanh_memory[row], g_h[row], g_c[row], d_r)
        lstm_memory_back(c[row], f, i, candidate, g_c[row], d_f, d_i, d_c)


@jit
def lstm_output_back(up_h, up_c, r, tanh_memory, g_h, g_c, d_r):
    for j in range(len(r)):
        of_output = g_h[j] + up_h[j]
        d_r[j] = of_output * tanh_memory[j] * r[j] * (ONE - r[j])
        g_c[j] += up_c[j] + of_output * r[j] * (ONE - tanh_memory[j] * tanh_memory[j])
        g_h[j] = 0


@jit
def lstm_memory_back(c, f, i, candidate, g_c, d_f, d_i, d_c):
    for j in range(len(c)):
        of_memory = g_c[j]
        d_f[j] = of_memory * c[j] * f[j] * (ONE - f[j])
        d_i[j] = of_memory * candidate[j] * i[j] * (ONE - i[j])
        d_c[j] = of_memory * i[j] * (ONE - candidate[j] * candidate[j])
        g_c[j] = of_memory * f[j]


@jit
def gru(t, x, h, products, candidate, bias):
    x, products, candidate = x[t % len(x)], products[t % len(products)], candidate[t % len(candidate)]
    h, h_new = h[t % len(h)], h[(t + 1) % len(h)]
    n = h.shape[1]
    for row in range(len(h)):
        add_sigmoid(products[row, : 2 * n], x[row, : 2 * n])
        z, r, m = products[row, :n], products[row, n : 2 * n], products[row, 2 * n :]
        add(m, bias[row * len(bias) // len(h)])
        gru_candidate(x[row, 2 * n :], r, m, candidate[row])
        between(candidate[row], h[row], z, h_new[row])


@jit
def gru_candidate(x_h, r, m, candidate):
    for j in range(len(m)):
        candidate[j] = tanh(x_h[j] + r[j] * m[j])


@jit
def gru_back(t, up, h, products, candidate, g, d):
    up, h, products, candidate, d = up[t % len(up)], h[t], products[t], candidate[t], d[t]
    n = h.shape[1]
    for row in range(len(h)):
        z, r, m = products[row, :n], products[row, n : 2 * n], products[row, 2 * n :]
        d_m, d_z, d_r, d_h = d[row, :n], d[row, n : 2 * n], d[row, 2 * n : 3 * n], d[row, 3 * n :]
        gru_row_back(up[row], h[row], z, r, m, candidate[row], g[row], d_m, d_z, d_r, d_h)


@jit
def gru_row_back(up, h, z, r, m, candidate, g, d_m, d_z, d_r, d_h):
    for j in range(len(h)):
        g_new = g[j] + up[j]
        of_candidate = g_new * (ONE - z[j]) * (ONE - candidate[j] * candidate[j])
        d_m[j] = of_candidate * r[j]
        d_z[j] = g_new * (h[j] - candidate[j]) * z[j] * (ONE - z[j])
        d_r[j] = of_candidate * m[j] * r[j] * (ONE - r[j])
        d_h[j] = of_candidate
        g[j] = g_new * z[j]


@jit
def mgu_gate(t, x, h, f):
    """Leaves f h in the place of the new state, for the product with the second matrix."""
    x, h, f_h, f = x[t % len(x)], h[t % len(h)], h[(t + 1) % len(h)], f[t % len(f)]
    n = h.shape[1]
    for row in range(len(h)):
        add_sigmoid(f[row], x[row, :n])
        product(f[row], h[row], f_h[row])


@jit
def mgu(t, x, h, f, candidate):
    x, h, h_new, f = x[t % len(x)], h[t % len(h)], h[(t + 1) % len(h)], f[t % len(f)]
    candidate = candidate[t % len(candidate)]
    n = h.shape[1]
    for row in range(len(h)):
        add_tanh(candidate[row], x[row, n:])
        between(h[row], candidate[row], f[row], h_new[row])


@jit
def mgu_back(t, up, h, f, candidate, g, d):
    up, h, f, candidate, d = up[t % len(up)], h[t], f[t], candidate[t], d[t]
    n = h.shape[1]
    for row in range(len(h)):
        mgu_row_back(up[row], h[row], f[row], candidate[row], g[row], d[row, :n], d[row, n:])


@jit
def mgu_row_back(up, h, f, candidate, g, d_f, d_h):
    for j in range(len(h)):
        g_new = g[j] + up[j]
        d_f[j] = g_new * (candidate[j] - h[j]) * f[j] * (ONE - f[j])
        d_h[j] = g_new * f[j] * (ONE - candidate[j] * candidate[j])
        g[j] = g_new


@jit
def mgu_gate_back(t, h, f, g_fh, g, d):
    """Adds what comes through f h, whose gradient is ``g_fh``."""
    h, f, d = h[t], f[t], d[t]
    for row in range(len(h)):
        mgu_gate_row_back(h[row], f[row], g_fh[row], g[row], d[row, : h.shape[1]])


@jit
def mgu_gate_row_back(h, f, g_fh, g, d_f):
    for j in range(len(h)):
        d_f[j] += g_fh[j] * h[j] * f[j] * (ONE - f[j])
        g[j] = g[j] - f[j] * g[j] + f[j] * g_fh[j]


@jit
def nbrc(t, x, h, c_s, candidate):
    x, c_s, candidate = x[t % len(x)], c_s[t % len(c_s)], candidate[t % len(candidate)]
    h, h_new = h[t % len(h)], h[(t + 1) % len(h)]
    n = h.shape[1]
    for row in range(len(h)):
        c, s = c_s[row, :n], c_s[row, n:]
        add_sigmoid(c, x[row, :n])
        add_sigmoid_of_twice(s, x[row, n : 2 * n])
        nbrc_output(x[row, 2 * n :], h[row], c, s, candidate[row], h_new[row])


@jit
def nbrc_output(x_h, h, c, s, candidate, h_new):
    for j in range(len(h)):
        y = tanh(x_h[j] + TWO * s[j] * h[j])
        candidate[j] = y
        h_new[j] = y - c[j] * y + c[j] * h[j]


@jit
def nbrc_back(t, up, h, c_s, candidate, g, d):
    up, h, c_s, candidate, d = up[t % len(up)], h[t], c_s[t], candidate[t], d[t]
    n = h.shape[1]
    for row in range(len(h)):
        c, s, d_c, d_a, d_h = c_s[row, :n], c_s[row, n:], d[row, :n], d[row, n : 2 * n], d[row, 2 * n :]
        nbrc_output_back(up[row], h[row], c, candidate[row], g[row], d_c, d_h)
        nbrc_gate_back(h[row], d_h, s, g[row], d_a)


@jit
def nbrc_output_back(up, h, c, candidate, g, d_c, d_h):
    for j in range(len(h)):
        g_new = g[j] + up[j]
        d_c[j] = g_new * (h[j] - candidate[j]) * c[j] * (ONE - c[j])
        d_h[j] = g_new * (ONE - c[j]) * (ONE - candidate[j] * candidate[j])
        g[j] = g_new * c[j]


@jit
def nbrc_gate_back(h, d_h, s, g, d_a):
    for j in range(len(h)):
        g[j] += TWO * d_h[j] * s[j]
        d_a[j] = FOUR * d_h[j] * h[j] * s[j] * (ONE - s[j])


@jit
def brc(start, stop, steps, weight, x, h, kept):
    """All steps of the rows from ``start`` to ``stop``: no unit waits for another."""
    n = h.shape[2]
    for t in range(steps):
        x_t, kept_t, h_t, h_new = x[t % len(x)], kept[t % len(kept)], h[t % len(h)], h[(t + 1) % len(h)]
        for row in range(start, stop):
            w = weight[row * len(weight) // len(h_t)]
            c, s, candidate = kept_t[row, :n], kept_t[row, n : 2 * n], kept_t[row, 2 * n :]
            sigmoid_of_product(x_t[row, :n], w[:n], h_t[row], c)
            sigmoid_of_twice_product(x_t[row, n : 2 * n], w[n:], h_t[row], s)
            nbrc_output(x_t[row, 2 * n :], h_t[row], c, s, candidate, h_new[row])


@jit
def sigmoid_of_product(x, w, h, y):
    for j in range(len(h)):
        y[j] = sigmoid(x[j] + w[j] * h[j])


@jit
def sigmoid_of_twice_product(x, w, h, y):
    for j in range(len(h)):
        y[j] = sigmoid(TWO * (x[j] + w[j] * h[j]))


@jit
def brc_back(start, stop, weight, up, h, g, d, of_weight):
    """``d`` is what ``brc`` kept when this is called, and the gradients c, a, h when it returns.

    ``of_weight`` is for each row, ``(rows, 2 * hidden)``: sums over time alone, whichever thread takes the row.
    """
    n = h.shape[2]
    for t in range(len(h) - 1, -1, -1):
        up_t = up[t % len(up)]
        for row in range(start, stop):
            w = weight[row * len(weight) // h.shape[1]]
            c, s, candidate = d[t, row, :n], d[t, row, n : 2 * n], d[t, row, 2 * n :]
            # Several loops, since LLVM makes no vectors where too many arrays could be the same memory.
            add(g[row], up_t[row])
            brc_output_back(h[t, row], c, candidate, g[row])
            brc_gate_back(h[t, row], candidate, s, g[row])
            add_two_products(c, w[:n], s, w[n:], g[row])
            add_product(c, h[t, row], of_weight[row, :n])
            add_product(s, h[t, row], of_weight[row, n:])


@jit
def brc_output_back(h, c, candidate, g):
    """Leaves d_c in the place of c, d_h in that of the candidate."""
    for j in range(len(h)):
        g_new, c_j, y = g[j], c[j], candidate[j]
        c[j] = g_new * (h[j] - y) * c_j * (ONE - c_j)
        candidate[j] = g_new * (ONE - c_j) * (ONE - y * y)
        g[j] = g_new * c_j


@jit
def brc_gate_back(h, d_h, s, g):
    """Leaves d_a in the place of s."""
    for j in range(len(h)):
        of_candidate, s_j = d_h[j], s[j]
        g[j] += TWO * of_candidate * s_j
        s[j] = FOUR * of_candidate * h[j] * s_j * (ONE - s_j)


@jit
def add(y, x):
    for j in range(len(y)):
        y[j] += x[j]


@jit
def product(a, b, y):
    for j in range(len(y)):
        y[j] = a[j] * b[j]


@jit
def add_product(a, b, y):
    for j in range(len(y)):
        y[j] += a[j] * b[j]


@jit
def add_two_products(a, b, c, d, y):
    for j in range(len(y)):
        y[j] = y[j] + a[j] * b[j] + c[j] * d[j]


@jit
def add_sigmoid(y, x):
    for j in range(len(y)):
        y[j] = sigmoid(y[j] + x[j])


@jit
def add_sigmoid_of_twice(y, x):
    for j in range(len(y)):
        y[j] = sigmoid(TWO * (y[j] + x[j]))


@jit
def add_tanh(y, x):
    for j in range(len(y)):
        y[j] = tanh(y[j] + x[j])


@jit
def between(a, b, share, y):
    """Exactly ``a`` or ``b`` where the share is 0 or 1, so that a gate that is shut keeps its state for ever."""
    for j in range(len(y)):
        y[j] = a[j] - share[j] * a[j] + share[j] * b[j]
