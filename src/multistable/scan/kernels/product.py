"""Products with a recurrent matrix that stays on chip, and the meeting of programs that share one.

A tile of weights is ``(K, J)``: all ``K`` inputs (padded to a power of two) of ``J`` outputs. It is loaded into
registers once and used at every step.
"""

import triton
import triton.language as tl


@triton.jit
def load_weights(weight, k, j, H, G: tl.constexpr):
    """The tiles ``(K, J)`` of ``G`` matrices ``(H, H)`` that lie one after the other in memory."""
    w = ()
    for g in tl.static_range(G):
        tile = weight + g * H * H + k[:, None] * H + j[None, :]
        w = w + (tl.load(tile, mask=(k < H)[:, None] & (j < H)[None, :], other=0.0),)
    return w


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
def times_one(tile, w, K: tl.constexpr, MATRIX: tl.constexpr):
    """A tile of states held in registers, ``(rows, K)``, times one tile of weights."""
    if MATRIX == "rows":
        # A single row: each weight is used once, so multiply-adds where the weights are beat matrix units, and
        # they are exact float32.
        return tl.sum(w * tl.reshape(tile, (K,))[:, None], axis=0)[None, :]
    return tl.dot(tile, w, input_precision=MATRIX)


@triton.jit
def times_each(source, rows, H, k, w, G: tl.constexpr, ROWS: tl.constexpr, J: tl.constexpr, MATRIX: tl.constexpr):
    """States in memory, ``rows`` of stride ``H`` from ``source``, times each of ``G`` tiles of weights.

    Read past the first-level cache (.cg): other multiprocessors wrote them a moment ago.
    """
    index = tl.arange(0, ROWS)
    p = ()
    if MATRIX != "rows":
        mask = (index < rows)[:, None] & (k < H)[None, :]
        tile = tl.load(source + index[:, None] * H + k[None, :], mask=mask, other=0.0, cache_modifier=".cg")
        for g in tl.static_range(G):
            p = p + (tl.dot(tile, w[g], input_precision=MATRIX),)
        return p
    row = tl.load(source + k, mask=k < H, other=0.0, cache_modifier=".cg")
    if ROWS == 1:
        for g in tl.static_range(G):
            p = p + (tl.sum(w[g] * row[:, None], axis=0)[None, :],)
        return p
    for g in tl.static_range(G):
        p = p + (tl.zeros((ROWS, J), tl.float32),)
    i = 0
    while i < rows:
        # The next row is asked for before this one is used, so that the products hide the wait.
        following = tl.load(
            source + (i + 1) * H + k, mask=(k < H) & (i + 1 < rows), other=0.0, cache_modifier=".cg"
        )
        q = ()
        for g in tl.static_range(G):
            q = q + (tl.where((index == i)[:, None], tl.sum(w[g] * row[:, None], axis=0)[None, :], p[g]),)
        p = q
        row = following
        i += 1
    return p
