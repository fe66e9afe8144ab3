"""Products of almost float32 with weights in registers: three of halves in place of one, see ``thrice.py``.

Both halves of a weight together are no larger than the one number in TF32, and lie where it would. The states of all
cells with a recurrent matrix lie between -1 and 1 once they do, within the range of half precision.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from multistable.scan.kernels.matrix_product import (
    keep,
    keep_factor,
    length_of,
    parts_of,
    product_layout,
    run_of,
    tiles_of,
    weight_places,
)
from multistable.scan.kernels.thrice import REST, halves

HALF_FACTOR = gl.constexpr(gl.SwizzledSharedLayout(8, 1, 8, [2, 1, 0]))
HALF_WEIGHTS = gl.constexpr(gl.SwizzledSharedLayout(8, 4, 2, [1, 2, 0]))


@gluon.jit
def keep_halves(shared, x):
    """Write a left operand ``(ROWS, K)``, a float32, where :func:`multiply_halves` reads it."""
    high, low = halves(x)
    keep_factor(shared[0], high)
    keep_factor(shared[1], low)


@gluon.jit
def load_halves(
    weight, k_stride, j_first, H: gl.constexpr, rooms, G: gl.constexpr, K: gl.constexpr,
    J: gl.constexpr,
):  # fmt: skip
    """The tiles of ``G`` gates, ``H`` apart, as their halves: in registers, or the first in rooms."""
    WARPS: gl.constexpr = gl.num_warps()
    k, j = weight_places(0, j_first, K, J, 2)
    high = ()
    low = ()
    for g in gl.static_range(G):
        for c in gl.static_range(tiles_of(K, J, WARPS)):
            i = k + c * length_of(K, J, WARPS)
            tile = gl.load(weight + g * H + i * k_stride + j, mask=(i < H) & (j < H), other=0.0)
            a, b = halves(tile)
            high = high + (keep(a, rooms[0], len(high)),)
            low = low + (keep(b, rooms[1], len(low)),)
    return high, low


@gluon.constexpr_function
def totals_of(G, J, WARPS):
    """How many totals a gate has: one for each kind of product, or, with many gates, one for both that are divided.

    Additions to the same total wait for each other.
    """
    return 3 if G * run_of(J, WARPS) < 3 else 2


@gluon.jit
def operand(tile, LAYOUT: gl.constexpr):
    """A tile of weights in registers."""
    if isinstance(tile, gl.shared_memory_descriptor):
        tile = tile.load(LAYOUT)
    return tile


@gluon.jit
def add_products(v, w, totals, kind: gl.constexpr, G: gl.constexpr):
    """The left operand times a tile of each gate, added to the totals of this kind."""
    EACH: gl.constexpr = len(totals) // G
    added = ()
    for i in gl.static_range(len(totals)):
        added = added + (mma_v2(v, w[i // EACH], totals[i]) if i % EACH == kind else totals[i],)
    return added


@gluon.jit
def multiply_halves(shared, w, first: gl.constexpr, G: gl.constexpr, ROWS: gl.constexpr, J: gl.constexpr):
    """The left operand in ``shared`` times the weights of ``G`` gates from ``first``: a total for each."""
    WARPS: gl.constexpr = gl.num_warps()
    P: gl.constexpr = product_layout(J, WARPS)
    A: gl.constexpr = gl.DotOperandLayout(0, P, 2)
    B: gl.constexpr = gl.DotOperandLayout(1, P, 2)
    EACH: gl.constexpr = totals_of(G, J, WARPS)
    LENGTH: gl.constexpr = length_of(shared[0].shape[0] * shared[0].shape[2], J, WARPS)
    TILES: gl.constexpr = shared[0].shape[2] // LENGTH
    gl.static_assert(LENGTH == 16)
    totals = ()
    for _ in gl.static_range(G * EACH):
        totals = totals + (gl.full([parts_of(J, WARPS), ROWS, J], 0.0, gl.float32, P),)
    for c in gl.static_range(TILES):
        high = ()
        low = ()
        for g in gl.static_range(first, first + G):
            high = high + (operand(w[0][g * TILES + c], B),)
            low = low + (operand(w[1][g * TILES + c], B),)
        v = shared[0].slice(c * LENGTH, LENGTH, dim=2).load(A)
        rest = shared[1].slice(c * LENGTH, LENGTH, dim=2).load(A)
        totals = add_products(v, high, totals, 0, G)
        totals = add_products(v, low, totals, 1, G)
        totals = add_products(rest, high, totals, EACH - 1, G)
    whole = ()
    for g in gl.static_range(G):
        missing = totals[g * EACH + 1]
        if EACH == 3:
            missing += totals[g * EACH + 2]
        whole = whole + (totals[g * EACH] + missing * (1 / REST),)
    return whole
