"""Cells without a recurrent matrix: each unit sees only its own past, so every unit of every row is a recurrence."""

import triton
import triton.language as tl

from multistable.scan.kernels.backward import load_at, load_fields, places, plus, zeros
from multistable.scan.kernels.forward import load_lanes, store_lanes

UNITS_PER_PROGRAM, STEPS_AHEAD = 32, 4


@triton.jit
def where_all(inside, x, y):
    """The first tiles, or the others where not ``inside``."""
    z = ()
    for i in tl.static_range(len(x)):
        z = z + (tl.where(inside, x[i], y[i]),)
    return z


@triton.jit(do_not_specialize=["T", "B"])
def advance_units(
    projected, units, bias, states, saved, T, B, H, p_t, p_n, p_b, p_j, state_f, state_n,
    FINISH: tl.constexpr, X: tl.constexpr, FIELDS: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr, BIAS: tl.constexpr, SAVE: tl.constexpr, ONLY_LAST: tl.constexpr,
):  # fmt: skip
    """``advance`` for these cells. A program has ``BLOCK`` of one recurrence's units.

    ``bias``, ``(N, X * H)``, is added to the projected input: here it costs no pass over memory.
    """
    n = tl.program_id(1).to(tl.int64)
    unit = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane = B.to(tl.int64) * H
    b = unit // H
    j = unit % H
    mask = unit < plane
    x_n = projected + n * p_n + b * p_b + j * p_j
    states_n = states + n * state_n + unit
    saved_n = saved + n * T * plane * WIDTH + b * (WIDTH * H) + j
    u = load_lanes(units + n * UNITS * H + j, H, mask, UNITS)
    s = load_lanes(states_n, state_f, mask, FIELDS)
    if BIAS:
        of_lanes = load_lanes(bias + n * X * H + j, H, mask, X)
    # A step is shorter than a read from memory, so inputs are asked for AHEAD steps before their use.
    t = tl.full((), 0, tl.int64)
    x = ()
    for i in tl.static_range(AHEAD):
        x = x + (load_lanes(x_n + i * p_t, H * p_j, mask & (i < T), X),)
    while t < T:
        x_next = ()
        for i in tl.static_range(AHEAD):
            x_next = x_next + (load_lanes(x_n + (t + AHEAD + i) * p_t, H * p_j, mask & (t + AHEAD + i < T), X),)
        for i in tl.static_range(AHEAD):
            now = mask & (t + i < T)
            x_now = x[i]
            if BIAS:
                x_now = plus(x_now, of_lanes)
            s_new, v = FINISH(x_now, s, u, (), ())
            if SAVE:
                store_lanes(saved_n + (t + i) * plane * WIDTH, H, v, now)
            if not ONLY_LAST:
                store_lanes(states_n + (t + i + 1) * plane, state_f, s_new, now)
            s = where_all(t + i < T, s_new, s)
        x = x_next
        t += AHEAD
    if ONLY_LAST:
        store_lanes(states_n + (T % 2) * plane, state_f, s, mask)


@triton.jit
def load_step(
    upstream, up_strides, saved, states, apart, t, plane, H, mask,
    NEEDED: tl.constexpr, FIELDS: tl.constexpr, SAVED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    now = mask & (t >= 0)
    up = load_at(upstream, up_strides, t, now)
    before = load_fields(states + t * plane, apart, now, tl.zeros_like(up[0]), NEEDED, FIELDS)
    return up, before, load_lanes(saved + t * plane * WIDTH, H, now, SAVED)


@triton.jit(do_not_specialize=["T", "B"])
def retreat_units(
    upstream, units, states, saved, carried, sums, T, B, H, up_strides,
    FINISH: tl.constexpr, BEFORE: tl.constexpr, AFTER: tl.constexpr, FIELDS: tl.constexpr, UNITS: tl.constexpr,
    SUMS: tl.constexpr, X: tl.constexpr, SAVED: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """``retreat`` of all steps for these cells, from no gradient.

    Also the gradients of the weights of units and of the bias, side by side in ``sums``, ``(SUMS + X, N, B, H)``,
    summed over time but not rows: here they cost no pass over memory.
    """
    n = tl.program_id(1).to(tl.int64)
    members = tl.num_programs(1).to(tl.int64)
    unit = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane = B.to(tl.int64) * H
    b = unit // H
    j = unit % H
    mask = unit < plane
    apart = members * (T + 1) * plane
    states_n = states + n * (T + 1) * plane + unit
    saved_n = saved + n * T * plane * WIDTH + b * (WIDTH * H) + j
    upstream_n = places(upstream, up_strides, n, b, j)
    u = load_lanes(units + n * UNITS * H + j, H, mask, UNITS)
    zero = tl.zeros((BLOCK,), tl.float32)
    g = zeros(zero, FIELDS)
    total = zeros(zero, SUMS + X)
    t = T.to(tl.int64) - 1
    after = load_fields(states_n + T * plane, apart, mask, zero, AFTER, FIELDS)
    steps = ()
    for i in tl.static_range(AHEAD):
        steps = steps + (
            load_step(
                upstream_n, up_strides, saved_n, states_n, apart, t - i, plane, H, mask, BEFORE + AFTER, FIELDS, SAVED,
                WIDTH,
            ),
        )  # fmt: skip
    while t >= 0:
        steps_next = ()
        for i in tl.static_range(AHEAD):
            steps_next = steps_next + (
                load_step(
                    upstream_n, up_strides, saved_n, states_n, apart, t - AHEAD - i, plane, H, mask, BEFORE + AFTER,
                    FIELDS, SAVED, WIDTH,
                ),
            )  # fmt: skip
        for i in tl.static_range(AHEAD):
            up, before, v = steps[i]
            found, direct, more = FINISH(v, before, after, u, g, up, (), ())
            inside = t - i >= 0
            store_lanes(saved_n + (t - i) * plane * WIDTH, H, found, mask & inside)
            g = where_all(inside, direct, g)
            total = plus(total, where_all(inside, more + found, zeros(zero, SUMS + X)))
            after = before
        steps = steps_next
        t -= AHEAD
    store_lanes(carried + n * plane + unit, members * plane, g, mask)
    store_lanes(sums + n * plane + unit, members * plane, total, mask)
