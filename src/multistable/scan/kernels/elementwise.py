"""The BRC: each unit sees only its own past, so every unit of every row is a recurrence of its own."""

import triton
import triton.language as tl

from multistable.scan.kernels.equations import brc_backward, brc_forward
from multistable.scan.kernels.forward import load_gates, store_saved


@triton.jit(do_not_specialize=["T", "B"])
def advance_units(
    projected, weight, bias, hidden, saved,
    T, B, H, p_t, p_n, p_b, p_j, state_n,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr, BIAS: tl.constexpr, SAVE: tl.constexpr, ONLY_LAST: tl.constexpr,
):  # fmt: skip
    """``advance`` for a BRC; ``weight`` is ``(N, 2 * H)``. A program has ``BLOCK`` of one recurrence's units.

    ``bias``, ``(N, 3 * H)``, is added to the projected input: here it costs no pass over memory.
    """
    n = tl.program_id(1).to(tl.int64)
    unit = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane = B.to(tl.int64) * H
    b = unit // H
    j = unit % H
    mask = unit < plane
    x_n = projected + n * p_n + b * p_b + j * p_j
    hidden_n = hidden + n * state_n + unit
    saved_n = saved + n * T * plane * 3 + b * (3 * H) + j
    w_c = tl.load(weight + n * 2 * H + j, mask=mask, other=0.0)
    w_a = tl.load(weight + n * 2 * H + H + j, mask=mask, other=0.0)
    h = tl.load(hidden_n, mask=mask, other=0.0)
    if BIAS:
        of_gates = load_gates(bias + n * 3 * H + j, H, mask, 3)
    # A step is shorter than a read from memory, so inputs are asked for AHEAD steps before their use.
    t = tl.full((), 0, tl.int64)
    x = ()
    for i in tl.static_range(AHEAD):
        x = x + (load_gates(x_n + i * p_t, H * p_j, mask & (i < T), 3),)
    while t < T:
        x_next = ()
        for i in tl.static_range(AHEAD):
            x_next = x_next + (load_gates(x_n + (t + AHEAD + i) * p_t, H * p_j, mask & (t + AHEAD + i < T), 3),)
        for i in tl.static_range(AHEAD):
            now = mask & (t + i < T)
            x_now = x[i]
            if BIAS:
                x_now = (x_now[0] + of_gates[0], x_now[1] + of_gates[1], x_now[2] + of_gates[2])
            h_new, s = brc_forward(x_now, (w_c * h, w_a * h), h)
            if SAVE:
                store_saved(saved_n + (t + i) * plane * 3, H, s, now, 3)
            if not ONLY_LAST:
                tl.store(hidden_n + (t + i + 1) * plane, h_new, mask=now)
            h = tl.where(t + i < T, h_new, h)
        x = x_next
        t += AHEAD
    if ONLY_LAST:
        tl.store(hidden_n + (T % 2) * plane, h, mask=mask)


@triton.jit
def load_step(grad, saved, hidden, t, gh_t, plane, H, mask):
    now = mask & (t >= 0)
    up = tl.load(grad + t * gh_t, mask=now, other=0.0)
    h = tl.load(hidden + t * plane, mask=now, other=0.0)
    s = load_gates(saved + t * plane * 3, H, now, 3)
    return up, h, s


@triton.jit(do_not_specialize=["T", "B"])
def retreat_units(
    grad_hidden, weight, hidden, saved, grad_h, sums,
    T, B, H, gh_t, gh_n, gh_b, gh_j,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """``retreat`` of all steps for a BRC, from no gradient.

    Also the gradients of the weight and of the bias, side by side in ``sums``, ``(N, B, 5 * H)``, summed over time but
    not rows: here they cost no pass over memory.
    """
    n = tl.program_id(1).to(tl.int64)
    unit = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane = B.to(tl.int64) * H
    b = unit // H
    j = unit % H
    mask = unit < plane
    grad_n = grad_hidden + n * gh_n + b * gh_b + j * gh_j
    hidden_n = hidden + n * (T + 1) * plane + unit
    saved_n = saved + n * T * plane * 3 + b * (3 * H) + j
    w_c = tl.load(weight + n * 2 * H + j, mask=mask, other=0.0)
    w_a = tl.load(weight + n * 2 * H + H + j, mask=mask, other=0.0)
    dh = tl.zeros((BLOCK,), tl.float32)
    dw_c = tl.zeros((BLOCK,), tl.float32)
    dw_a = tl.zeros((BLOCK,), tl.float32)
    db_c = tl.zeros((BLOCK,), tl.float32)
    db_a = tl.zeros((BLOCK,), tl.float32)
    db_n = tl.zeros((BLOCK,), tl.float32)
    t = T.to(tl.int64) - 1
    steps = ()
    for i in tl.static_range(AHEAD):
        steps = steps + (load_step(grad_n, saved_n, hidden_n, t - i, gh_t, plane, H, mask),)
    while t >= 0:
        steps_next = ()
        for i in tl.static_range(AHEAD):
            steps_next = steps_next + (load_step(grad_n, saved_n, hidden_n, t - AHEAD - i, gh_t, plane, H, mask),)
        for i in tl.static_range(AHEAD):
            up, h, s = steps[i]
            d, direct = brc_backward(s, h, dh + up)
            store_saved(saved_n + (t - i) * plane * 3, H, d, mask & (t - i >= 0), 3)
            inside = t - i >= 0
            dh = tl.where(inside, direct + d[0] * w_c + d[1] * w_a, dh)
            dw_c += tl.where(inside, d[0] * h, 0.0)
            dw_a += tl.where(inside, d[1] * h, 0.0)
            db_c += tl.where(inside, d[0], 0.0)
            db_a += tl.where(inside, d[1], 0.0)
            db_n += tl.where(inside, d[2], 0.0)
        steps = steps_next
        t -= AHEAD
    tl.store(grad_h + n * plane + unit, dh, mask=mask)
    store_saved(sums + n * plane * 5 + b * (5 * H) + j, H, (dw_c, dw_a, db_c, db_a, db_n), mask, 5)
