"""The backward kernel: the sequential part of the gradient alone, in one launch."""

import triton
import triton.language as tl

from multistable.scan.kernels.forward import entry, length, load_lanes, store_lanes, without_padding
from multistable.scan.kernels.product import from_all, indices, load_blocks, meet


@triton.jit
def chosen(x, which: tl.constexpr):
    """Some of several tiles."""
    v = ()
    for i in tl.static_range(len(which)):
        v = v + (x[which[i]],)
    return v


@triton.constexpr_function
def is_among(which, place):
    """Whether a tuple has it."""
    return place in which


@triton.jit
def load_fields(source, apart, mask, zero, which: tl.constexpr, FIELDS: tl.constexpr):
    """The fields of a state, zero in the place of those that are not needed."""
    s = ()
    for field in tl.static_range(FIELDS):
        if is_among(which, field):
            x = tl.load(source + field * apart, mask=mask, other=0.0)
        else:
            x = zero
        s = s + (x,)
    return s


@triton.jit
def store_chosen(target, apart, x, mask, which: tl.constexpr):
    """Write tiles in the places of these lanes."""
    for i in tl.static_range(len(which)):
        tl.store(target + which[i] * apart, x[i], mask=mask)


@triton.jit
def places(sources, strides, n, b, unit):
    """Where each of several tensors ``(T, N, B, H)``, with strides, has the elements of a tile at time 0."""
    found = ()
    for i in tl.static_range(len(sources)):
        own = b * strides[i][2] + unit.to(tl.int64) * strides[i][3]
        found = found + (sources[i] + n * strides[i][1] + own,)
    return found


@triton.jit
def load_at(sources, strides, t, mask):
    """A tile from each of several places, at one time."""
    x = ()
    for i in tl.static_range(len(sources)):
        x = x + (tl.load(sources[i] + t * strides[i][0], mask=mask, other=0.0),)
    return x


@triton.jit
def zeros(zero, N: tl.constexpr):
    """So many tiles of zeros."""
    z = ()
    for _ in tl.static_range(N):
        z = z + (zero,)
    return z


@triton.jit
def plus(x, y):
    """The sums of tiles and of as many others."""
    z = ()
    for i in tl.static_range(len(x)):
        z = z + (x[i] + y[i],)
    return z


@triton.jit
def with_sum(x, place: tl.constexpr, y):
    """The tiles with one more added to one of them."""
    z = ()
    for i in tl.static_range(len(x)):
        if i == place:
            z = z + (x[i] + y,)
        else:
            z = z + (x[i],)
    return z


@triton.jit(do_not_specialize=["start", "stop", "T", "N", "B", "span", "one"])
def retreat(
    upstream, weight, units, states, saved, carried, sums, arrivals,
    one, start, stop, T, N, B, span, H, up_strides,
    RETREAT: tl.constexpr, FINISH: tl.constexpr, RETREATS: tl.constexpr, INTO: tl.constexpr, ORDER: tl.constexpr,
    BEFORE: tl.constexpr, AFTER: tl.constexpr, FIELDS: tl.constexpr, UNITS: tl.constexpr, SUMS: tl.constexpr,
    SAVED: tl.constexpr, WIDTH: tl.constexpr, IN_PARTS: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, K: tl.constexpr, J: tl.constexpr, PARTS: tl.constexpr, AHEAD: tl.constexpr,
    SPLITS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of the projected input and the products of steps ``start`` to ``stop``, from the states'.

    They are written over ``saved``. ``upstream`` are, for each field, ``(T, N, B, H)``, any strides; ``weight`` is
    ``(N, blocks, H, H)``, each block transposed. ``carried``, ``(FIELDS, N, B, H)``, gets the gradient of the state
    before ``start``, and ``sums``, ``(SUMS, N, B, H)``, those of weights of units summed over time; with ``IN_PARTS``
    both begin with what the steps from ``stop`` on left there, else all steps are taken. The other arguments, and the
    division of the work, are as in ``advance``; those in capitals are of a ``Form``.
    """
    ALONE: tl.constexpr = SPLITS == 1
    LAST: tl.constexpr = length(RETREATS) - 1
    if not IN_PARTS:
        # Always all steps: bounds that the compiler knows take no registers from the weights.
        start = 0
        stop = T
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
        first_row = b_first.to(tl.int64) * (WIDTH * H)
        own = b * H + unit
        own_saved = b * (WIDTH * H) + unit
        plane = B.to(tl.int64) * H
        apart = N * (T + 1) * plane
        states_n = states + n * (T + 1) * plane + own
        saved_n = saved + n * T * plane * WIDTH
        upstream_n = places(upstream, up_strides, n, b, unit)

        w = load_blocks(weight + n * len(ORDER) * H * H, H * H, H, k, unit, H, ORDER)
        u = load_lanes(units + n * UNITS * H + unit, H, unit < H, UNITS)
        t = stop.to(tl.int64) - 1
        v = load_lanes(saved_n + t * plane * WIDTH + own_saved, H, mask, SAVED)
        up = load_at(upstream_n, up_strides, t, mask)
        zero = tl.zeros_like(up[0])
        after = load_fields(states_n + stop * plane, apart, mask, zero, AFTER, FIELDS)
        before = load_fields(states_n + t * plane, apart, mask, zero, BEFORE + AFTER, FIELDS)
        if IN_PARTS:
            g = load_lanes(carried + n * plane + own, N * plane, mask, FIELDS)
            total = load_lanes(sums + n * plane + own, N * plane, mask, SUMS)
        else:
            g = zeros(zero, FIELDS)
            total = zeros(zero, SUMS)
        # Several warps may have the same elements: none may write over what another has yet to read. From the
        # second step on, the products lie between.
        tl.debug_barrier()
        while t >= start:
            saved_t = saved_n + t * plane * WIDTH
            d = ()
            o = ()
            kept = ()
            for i in tl.static_range(LAST):
                found, kept = RETREAT(v, before, after, u, g, up, o, kept, i)
                found = without_padding(found, unit < H, PADDED)
                store_chosen(saved_t + own_saved, H, found, mask, entry(RETREATS, i, 0))
                d = d + found
                if not ALONE:
                    expected += SPLITS
                    meet(arrivals, expected, SPLITS)
                for j in tl.static_range(length(RETREATS, i, 1)):
                    o = o + (
                        from_all(
                            chosen(d, entry(RETREATS, i, 1, j, 0)),
                            saved_t + first_row + entry(RETREATS, i, 1, j, 1) * H, rows, WIDTH * H, H, row, w,
                            entry(RETREATS, i, 1, j, 2), length(RETREATS, i, 1, j, 0), K, PARTS, AHEAD, ALONE,
                        ),
                    )  # fmt: skip
            found, direct, more = FINISH(v, before, after, u, g, up, o, kept)
            found = without_padding(found, unit < H, PADDED)
            direct = without_padding(direct, unit < H, PADDED)
            store_chosen(saved_t + own_saved, H, found, mask, entry(RETREATS, LAST, 0))
            d = d + found
            total = plus(total, more)

            # Reads for the step before begin now, so that this step's products hide the wait.
            following = mask & (t > start)
            v = load_lanes(saved_t - plane * WIDTH + own_saved, H, following, SAVED)
            up = load_at(upstream_n, up_strides, t - 1, following)
            after = before
            before = load_fields(states_n + (t - 1) * plane, apart, following, zero, BEFORE + AFTER, FIELDS)

            if not ALONE:
                expected += SPLITS
                meet(arrivals, expected, SPLITS)
            g = direct
            for j in tl.static_range(len(INTO)):
                p = from_all(
                    chosen(d, entry(RETREATS, LAST, 1, j, 0)),
                    saved_t + first_row + entry(RETREATS, LAST, 1, j, 1) * H, rows, WIDTH * H, H, row, w,
                    entry(RETREATS, LAST, 1, j, 2), length(RETREATS, LAST, 1, j, 0), K, PARTS, AHEAD, ALONE,
                )  # fmt: skip
                g = with_sum(g, INTO[j], p)
            t -= 1
        store_lanes(carried + n * plane + own, N * plane, g, mask)
        store_lanes(sums + n * plane + own, N * plane, total, mask)
        item += groups
