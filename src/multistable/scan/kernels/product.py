"""Products with a recurrent matrix that stays on chip, and the meeting of programs that share one.

One row of states at a time, float32 multiply-adds. A tile of weights is ``(PARTS, J, K / PARTS)``: a thread holds
``K / PARTS`` inputs of one or two of ``J`` units for each gate, and neighbouring lanes the other parts of the same
unit, so that a product is a sum inside each thread and a few shuffles, without a barrier. A tile of states is
``(PARTS, J, ROWS / PARTS)``, in the same threads.

Weights are loaded into registers once and used at every step. Triton lays a tile over threads by the addresses it
is loaded from, and would give a thread neighbouring units. Multiplying the indices by ``one``, an argument it
knows nothing of, hides that units are neighbours. Then Triton gives neighbouring lanes what follows along the first
axis, and from version 3.7 on along the last: there, tiles have their axes in the reverse order.
"""

import triton
import triton.language as tl

REVERSED = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 7)
PART = tl.constexpr(2 if REVERSED else 0)
"""The axis of lanes that have parts of the same unit."""
WITHIN = tl.constexpr(0 if REVERSED else 2)
"""The axis that a thread has whole."""


@triton.jit
def along(x, axis: tl.constexpr):
    """``(n,)`` as a tile of that length along one of three axes."""
    return x[:, None, None] if axis == 0 else x[None, None, :]


@triton.jit
def indices(split, one, ROWS: tl.constexpr, K: tl.constexpr, J: tl.constexpr, PARTS: tl.constexpr):
    """The row of each element of a tile of states, its unit, and the input of each element of a tile of weights."""
    LINES: tl.constexpr = ROWS // PARTS if ROWS > PARTS else 1
    part = along(tl.arange(0, PARTS), PART)
    # With fewer rows than parts, lanes repeat them.
    row = (along(tl.arange(0, LINES), WITHIN) * PARTS + part) % ROWS
    unit = (split * J + tl.arange(0, J)[None, :, None]) * one
    k = part * (K // PARTS) + along(tl.arange(0, K // PARTS), WITHIN)
    return row, unit, k


@triton.jit
def load_weights(weight, gate_stride, row_stride, k, unit, H, G: tl.constexpr):
    """The weights of ``G`` gates, a tile for each."""
    w = ()
    for g in tl.static_range(G):
        w = w + (load_tile(weight + g * gate_stride, row_stride, k, unit, H),)
    return w


@triton.jit
def load_blocks(weight, gate_stride, row_stride, k, unit, H, order: tl.constexpr):
    """The same in another order."""
    w = ()
    for i in tl.static_range(len(order)):
        w = w + (load_tile(weight + order[i] * gate_stride, row_stride, k, unit, H),)
    return w


@triton.jit
def load_tile(weight, row_stride, k, unit, H):
    return tl.load(weight + k * row_stride + unit, mask=(k < H) & (unit < H), other=0.0)


@triton.jit
def meet(arrivals, expected, SPLITS: tl.constexpr):
    """Wait until all programs of the group have come here: what each wrote before, all can read after."""
    tl.debug_barrier()
    if SPLITS > 1:
        tl.atomic_add(arrivals, 1, sem="release")
        while tl.atomic_add(arrivals, 0, sem="acquire") < expected:
            pass
        tl.debug_barrier()


@triton.jit
def spread(row, K: tl.constexpr, PARTS: tl.constexpr):
    """A row of inputs ``(K,)`` as ``(PARTS, 1, K / PARTS)``, each where its weights are."""
    parts = tl.reshape(row, (PARTS, K // PARTS))
    return (parts if PART == 0 else tl.trans(parts))[:, None, :]


@triton.jit
def pick(tile, i, K: tl.constexpr, PARTS: tl.constexpr):
    """Row ``i`` of a tile of states that a program has whole, as ``(K,)``."""
    LINES: tl.constexpr = tile.shape[WITHIN]
    place = along(tl.arange(0, LINES), WITHIN) * PARTS + along(tl.arange(0, PARTS), PART)
    own = tl.sum(tl.where(place == i, tile, 0.0), axis=WITHIN, keep_dims=True)
    return tl.reshape(tl.sum(own, axis=PART), (K,))


@triton.jit
def partial(v, w, K: tl.constexpr, PARTS: tl.constexpr):
    """A row of inputs ``(K,)`` times a tile of weights, not yet summed over parts."""
    return tl.sum(spread(v, K, PARTS) * w, axis=WITHIN, keep_dims=True)


@triton.jit
def complete(p):
    return tl.sum(p, axis=PART, keep_dims=True)


@triton.jit
def read(source, i, rows, row_stride, H, K: tl.constexpr):
    """Row ``i`` from memory, past the first-level cache (.cg): other multiprocessors have just written it."""
    k = tl.arange(0, K)
    return tl.load(source + i * row_stride + k, mask=(k < H) & (i < rows), other=0.0, cache_modifier=".cg")


@triton.jit
def to_each(
    tile, source, rows, row_stride, H, row, w, first: tl.constexpr, G: tl.constexpr, ROWS: tl.constexpr,
    K: tl.constexpr, PARTS: tl.constexpr, AHEAD: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """States times the weights of ``G`` gates from ``first``: a product, a tile, for each gate.

    The states are ``tile`` where the program has all units (``ALONE``), else ``rows`` rows at ``source``.
    """
    p = ()
    if ROWS == 1:
        v = pick(tile, 0, K, PARTS) if ALONE else read(source, 0, rows, row_stride, H, K)
        for g in tl.static_range(first, first + G):
            p = p + (complete(partial(v, w[g], K, PARTS)),)
    else:
        for _ in tl.static_range(G):
            p = p + (tl.zeros_like(tile),)
        # AHEAD rows at a time, asked for that long before their use: products hide the wait, and each other's.
        ready = ()
        if not ALONE:
            for a in tl.static_range(AHEAD):
                ready = ready + (read(source, a, rows, row_stride, H, K),)
        i = 0
        while i < rows:
            coming = ()
            if not ALONE:
                for a in tl.static_range(AHEAD):
                    coming = coming + (read(source, i + AHEAD + a, rows, row_stride, H, K),)
            for a in tl.static_range(AHEAD):
                v = pick(tile, i + a, K, PARTS) if ALONE else ready[a]
                kept = ()
                for g in tl.static_range(G):
                    q = complete(partial(v, w[first + g], K, PARTS))
                    kept = kept + (tl.where(row == i + a, q, p[g]),)
                p = kept
            ready = coming
            i += AHEAD
    return p


@triton.jit
def read_blocks(source, i, rows, row_stride, H, G: tl.constexpr, K: tl.constexpr):
    """:func:`read` for each of ``G`` blocks, ``H`` apart."""
    v = ()
    for g in tl.static_range(G):
        v = v + (read(source + g * H, i, rows, row_stride, H, K),)
    return v


@triton.jit
def from_all(
    tiles, source, rows, row_stride, H, row, w, first: tl.constexpr, G: tl.constexpr, K: tl.constexpr,
    PARTS: tl.constexpr, AHEAD: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """``G`` tiles of states, each times the weights of its gate, from ``first``: the sum of the products.

    The states are ``tiles``, or ``rows`` rows at ``source``, as in :func:`to_each` and :func:`read_blocks`.
    """
    total = tl.zeros_like(tiles[0])
    ready = ()
    if not ALONE:
        for a in tl.static_range(AHEAD):
            ready = ready + (read_blocks(source, a, rows, row_stride, H, G, K),)
    i = 0
    while i < rows:
        coming = ()
        if not ALONE:
            for a in tl.static_range(AHEAD):
                coming = coming + (read_blocks(source, i + AHEAD + a, rows, row_stride, H, G, K),)
        for a in tl.static_range(AHEAD):
            # One factor after the other, so that only one takes up registers beside the weights.
            v = pick(tiles[0], i + a, K, PARTS) if ALONE else ready[a][0]
            q = partial(v, w[first], K, PARTS)
            for g in tl.static_range(1, G):
                v = pick(tiles[g], i + a, K, PARTS) if ALONE else ready[a][g]
                q += partial(v, w[first + g], K, PARTS)
            total = tl.where(row == i + a, complete(q), total)
        ready = coming
        i += AHEAD
    return total
