"""The forward kernel: all cells with a recurrent matrix, all steps, one launch."""

import triton
import triton.language as tl

from multistable.scan.kernels.product import indices, load_weights, meet, to_each

# The compiler takes nested tuples apart in no other way.


@triton.constexpr_function
def entry(table, *places):
    """An entry of nested tuples."""
    for place in places:
        table = table[place]
    return table


@triton.constexpr_function
def length(table, *places):
    """How many entries one of nested tuples has."""
    for place in places:
        table = table[place]
    return len(table)


@triton.jit
def load_lanes(source, apart, mask, LANES: tl.constexpr):
    """So many tiles, this far apart."""
    x = ()
    for lane in tl.static_range(LANES):
        x = x + (tl.load(source + lane * apart, mask=mask, other=0.0),)
    return x


@triton.jit
def store_lanes(target, apart, x, mask):
    """Write tiles this far apart."""
    for lane in tl.static_range(len(x)):
        tl.store(target + lane * apart, x[lane], mask=mask)


@triton.jit
def without_padding(x, mask, PADDED: tl.constexpr):
    """The tiles with zeros beyond the last unit: a step may have made anything there, and products add it up."""
    if PADDED:
        y = ()
        for i in tl.static_range(len(x)):
            y = y + (tl.where(mask, x[i], 0.0),)
        x = y
    return x


@triton.jit(do_not_specialize=["T", "N", "B", "span", "one"])
def advance(
    projected, weight, units, states, saved, exchanged, arrivals,
    one, T, N, B, span, H, p_t, p_n, p_b, p_j, w_n, w_row, state_f, state_n,
    OPERANDS: tl.constexpr, FINISH: tl.constexpr, STAGES: tl.constexpr, X: tl.constexpr, FIELDS: tl.constexpr,
    UNITS: tl.constexpr, BLOCKS: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, K: tl.constexpr, J: tl.constexpr, PARTS: tl.constexpr, AHEAD: tl.constexpr,
    SPLITS: tl.constexpr, SAVE: tl.constexpr, ONLY_LAST: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Advance ``N`` recurrences of ``B`` rows over ``T`` steps.

    ``projected`` is ``(T, N, B, X * H)``, any strides; ``weight`` is ``(N, H, BLOCKS * H)``, ``units`` is ``(N, UNITS *
    H)``; ``states`` is ``(FIELDS, N, T + 1, B, H)``, the state before the first step in the first place, or, with
    ``ONLY_LAST``, ``(FIELDS, N, 2, B, H)``, written in turn. ``saved`` is ``(N, T, B, WIDTH * H)``, of which the first
    lanes are written when ``SAVE``. In ``exchanged``, ``(N, any, B, H)``, the programs of a group exchange the operands
    that they compute. ``OPERANDS``, ``FINISH`` and ``STAGES`` are of a ``Form``. ``PADDED`` says that tiles have more
    places than there are units.

    A group of ``SPLITS`` programs advances one tile of ``span`` rows, at most ``ROWS``, at a time. Each has ``J``
    of the units and all their weights, and meets the others after each product: states go through memory.
    """
    # A tile that one program advances alone never leaves its registers.
    ALONE: tl.constexpr = SPLITS == 1
    split = tl.program_id(0) % SPLITS
    group = tl.program_id(0) // SPLITS
    groups = tl.num_programs(0) // SPLITS
    arrivals += group
    row, unit, k = indices(split, one, ROWS, K, J, PARTS)
    tiles = tl.cdiv(B, span)
    expected = tl.full((), 0, tl.int64)
    item = group
    while item < N * tiles:
        n = (item // tiles).to(tl.int64)
        b_first = (item % tiles) * span
        b = b_first.to(tl.int64) + row
        rows = min(span, B - b_first)
        mask = (row < rows) & (unit < H)
        first_row = b_first.to(tl.int64) * H
        own = b * H + unit
        own_saved = b * (WIDTH * H) + unit
        plane = B.to(tl.int64) * H
        states_n = states + n * state_n
        exchanged_n = exchanged + n * plane
        saved_n = saved + n * T * plane * WIDTH
        x_n = projected + n * p_n + b * p_b + unit.to(tl.int64) * p_j

        w = load_weights(weight + n * w_n, H, w_row, k, unit, H, BLOCKS)
        u = load_lanes(units + n * UNITS * H + unit, H, unit < H, UNITS)
        s = load_lanes(states_n + own, state_f, mask, FIELDS)
        t = tl.full((), 0, tl.int64)
        while t < T:
            before = t % 2 if ONLY_LAST else t
            after = (t + 1) % 2 if ONLY_LAST else t + 1
            states_t = states_n + before * plane + first_row
            # The read begins in the step that takes it, before its products, which hide the wait. If it began in the
            # step before, the compiler would make the products wait: it counts the read together with the first h.
            x = load_lanes(x_n + t * p_t, H * p_j, mask, X)
            p = ()
            kept = ()
            for stage in tl.static_range(len(STAGES)):
                computed = ()
                if entry(STAGES, stage, 0) > 0:
                    computed, kept = OPERANDS(x, s, u, p, kept, stage)
                    computed = without_padding(computed, unit < H, PADDED)
                    if not ALONE:
                        store_lanes(exchanged_n + own, N * plane, computed, mask)
                        expected += SPLITS
                        meet(arrivals, expected, SPLITS)
                for slot in tl.static_range(length(STAGES, stage, 1)):
                    if entry(STAGES, stage, 1, slot, 0) < 0:
                        operand = computed[-1 - entry(STAGES, stage, 1, slot, 0)]
                        source = exchanged_n + first_row + (-1 - entry(STAGES, stage, 1, slot, 0)) * N * plane
                    else:
                        operand = s[entry(STAGES, stage, 1, slot, 0)]
                        source = states_t + entry(STAGES, stage, 1, slot, 0) * state_f
                    p = p + to_each(
                        operand, source, rows, H, H, row, w, entry(STAGES, stage, 1, slot, 1),
                        entry(STAGES, stage, 1, slot, 2), ROWS, K, PARTS, AHEAD, ALONE,
                    )  # fmt: skip
            s, v = FINISH(x, s, u, p, kept)
            s = without_padding(s, unit < H, PADDED)

            if SAVE:
                store_lanes(saved_n + t * plane * WIDTH + own_saved, H, v, mask)
            if not ONLY_LAST or not ALONE or t == T - 1:
                store_lanes(states_n + after * plane + own, state_f, s, mask)
            if not ALONE:
                expected += SPLITS
                meet(arrivals, expected, SPLITS)
            t += 1
        item += groups
