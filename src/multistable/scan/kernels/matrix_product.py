"""Products on the matrix units with weights in registers.

**Weights.** A weight is loaded as what the matrix units take it for, the right operand of a product, and stays in the
registers of its thread; as many as do not fit (``HELD``) are in shared memory. A product leaves the matrix units with
pairs of columns in a thread. Which units these are is a matter of where their weights are: here, neighbours. States,
gates and their places in memory lie over threads the same way, so that nothing but the left operand, 16 rows of states,
goes from thread to thread.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

FACTOR = gl.constexpr(gl.SwizzledSharedLayout(4, 1, 8, [2, 1, 0]))
SUMS = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0]))
WEIGHTS = gl.constexpr(gl.SwizzledSharedLayout(8, 1, 4, [2, 1, 0]))


# How tiles lie over threads.


@gluon.constexpr_function
def across_of(J, WARPS):
    """Warps side by side over ``J`` units, eight units each at least."""
    return min(WARPS, J // 8)


@gluon.constexpr_function
def parts_of(J, WARPS):
    """Warps that would have no units take a part of the inputs each."""
    return WARPS // across_of(J, WARPS)


@gluon.constexpr_function
def run_of(J, WARPS):
    """Pairs of columns of a product that a thread has in a row."""
    return J // (8 * across_of(J, WARPS))


@gluon.constexpr_function
def tile_layout(J, WARPS):
    """The layout of tiles of states: the units of a thread are neighbours."""
    return gl.BlockedLayout([1, 2 * run_of(J, WARPS)], [8, 4], [parts_of(J, WARPS), across_of(J, WARPS)], [1, 0])


@gluon.constexpr_function
def pair_layout(J, WARPS):
    """The layout of tiles of states with a pair of units as one element."""
    return gl.BlockedLayout([1, run_of(J, WARPS)], [8, 4], [parts_of(J, WARPS), across_of(J, WARPS)], [1, 0])


@gluon.constexpr_function
def product_layout(J, WARPS):
    return gl.NVMMADistributedLayout([2, 0], [parts_of(J, WARPS), 1, across_of(J, WARPS)], [1, 16, 8])


@gluon.jit
def unit_of(column, J: gl.constexpr):
    """The unit in a column of a product.

    The matrix units give a thread pairs of columns that are far apart. They hold the units that follow one another.
    """
    RUN: gl.constexpr = run_of(J, gl.num_warps())
    in_run = column // (J // RUN)
    pair = column % (J // RUN) // 2
    return (pair * RUN + in_run) * 2 + column % 2


@gluon.jit
def own_places(split, ROWS: gl.constexpr, J: gl.constexpr):
    """The row and the unit of each element of a tile of states."""
    TILE: gl.constexpr = tile_layout(J, gl.num_warps())
    row = gl.arange(0, ROWS, gl.SliceLayout(1, TILE))[:, None]
    return row, split * J + gl.arange(0, J, gl.SliceLayout(0, TILE))[None, :]


@gluon.jit
def pairs(ROWS: gl.constexpr, J: gl.constexpr):
    """The row of each pair, and the first of its units."""
    PAIR: gl.constexpr = pair_layout(J, gl.num_warps())
    row = gl.arange(0, ROWS, gl.SliceLayout(1, PAIR))[:, None]
    return row, gl.arange(0, J // 2, gl.SliceLayout(0, PAIR))[None, :] * 2


# Weights and products. A product has K inputs, in tiles of LENGTH, and J units; backward, it is the other way round.


@gluon.constexpr_function
def length_of(K, J, WARPS):
    """Inputs of a tile of weights."""
    return min(16, K // parts_of(J, WARPS))


@gluon.constexpr_function
def tiles_of(K, J, WARPS):
    """Tiles of weights of a gate."""
    return K // parts_of(J, WARPS) // length_of(K, J, WARPS)


@gluon.constexpr_function
def shared_tiles(G, K, J, WARPS, HELD):
    """How many tiles, the first ones, are in shared memory: a thread holds no more than ``HELD`` weights."""
    tile = length_of(K, J, WARPS) * parts_of(J, WARPS) * J // (32 * WARPS)
    return max(0, G * tiles_of(K, J, WARPS) - HELD // tile)


@gluon.jit
def rooms(n: gl.constexpr, SHAPE: gl.constexpr, LAYOUT: gl.constexpr, TYPE: gl.constexpr = gl.float32):
    """Shared memory for ``n`` tiles."""
    r = ()
    for _ in gl.static_range(n):
        r = r + (gl.allocate_shared_memory(TYPE, SHAPE, LAYOUT),)
    return r


@gluon.jit
def to_tf32(x):
    return gl.inline_asm_elementwise("cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], gl.float32, True, 1)


@gluon.jit
def weight_places(k_first, j_first, K: gl.constexpr, J: gl.constexpr, WIDTH: gl.constexpr):
    """The input and the unit of each element of the first tile of weights, of which ``WIDTH`` share a register."""
    WARPS: gl.constexpr = gl.num_warps()
    B: gl.constexpr = gl.DotOperandLayout(1, product_layout(J, WARPS), WIDTH)
    PARTS: gl.constexpr = parts_of(J, WARPS)
    LENGTH: gl.constexpr = length_of(K, J, WARPS)
    part = gl.arange(0, PARTS, gl.SliceLayout(1, gl.SliceLayout(2, B)))[:, None, None]
    k = k_first + part * (K // PARTS) + gl.arange(0, LENGTH, gl.SliceLayout(0, gl.SliceLayout(2, B)))[None, :, None]
    return k, j_first + unit_of(gl.arange(0, J, gl.SliceLayout(0, gl.SliceLayout(1, B)))[None, None, :], J)


@gluon.jit
def load_weights(
    weight, k_first, k_stride, j_first, j_stride, H: gl.constexpr, rooms, G: gl.constexpr, K: gl.constexpr,
    J: gl.constexpr,
):  # fmt: skip
    """The tiles of ``G`` gates, ``H`` apart: in registers, or the first in ``rooms``."""
    WARPS: gl.constexpr = gl.num_warps()
    k, j = weight_places(k_first, j_first, K, J, 1)
    w = ()
    for g in gl.static_range(G):
        for c in gl.static_range(tiles_of(K, J, WARPS)):
            i = k + c * length_of(K, J, WARPS)
            tile = gl.load(weight + g * H + i * k_stride + j * j_stride, mask=(i < H) & (j < H), other=0.0)
            w = w + (keep(to_tf32(tile), rooms, len(w)),)
    return w


@gluon.jit
def keep(tile, rooms, i: gl.constexpr):
    """Tile ``i``, or the place in ``rooms`` that it is written to if there is one."""
    if i < len(rooms):
        rooms[i].store(tile)
        kept = rooms[i]
    else:
        kept = tile
    return kept


@gluon.constexpr_function
def chains_of(G, J, WARPS):
    """How many totals a gate has: two if there are few, since additions to the same total wait for each other."""
    return 2 if G * run_of(J, WARPS) < 3 else 1


@gluon.jit
def no_totals(G: gl.constexpr, ROWS: gl.constexpr, J: gl.constexpr):
    """Zeros to which :func:`multiply` adds: the totals of ``G`` gates, those of a gate side by side."""
    WARPS: gl.constexpr = gl.num_warps()
    totals = ()
    for _ in gl.static_range(G * chains_of(G, J, WARPS)):
        totals = totals + (gl.full([parts_of(J, WARPS), ROWS, J], 0.0, gl.float32, product_layout(J, WARPS)),)
    return totals


@gluon.jit
def keep_factor(shared, x):
    """Write a left operand ``(ROWS, K)`` where :func:`multiply` reads it, ``(PARTS, ROWS, K / PARTS)``."""
    PARTS: gl.constexpr = shared.shape[0]
    shared.store(gl.permute(gl.reshape(x, [x.shape[0], PARTS, x.shape[1] // PARTS]), [1, 0, 2]))


@gluon.jit
def multiply(shared, w, first: gl.constexpr, G: gl.constexpr, totals, J: gl.constexpr):
    """The left operand in ``shared`` times the weights of ``G`` gates from ``first``, added to their ``totals``."""
    P: gl.constexpr = product_layout(J, gl.num_warps())
    LENGTH: gl.constexpr = length_of(shared.shape[0] * shared.shape[2], J, gl.num_warps())
    TILES: gl.constexpr = shared.shape[2] // LENGTH
    CHAINS: gl.constexpr = len(totals) // G
    for c in gl.static_range(TILES):
        v = shared.slice(c * LENGTH, LENGTH, dim=2).load(gl.DotOperandLayout(0, P, 1))
        added = ()
        for i in gl.static_range(len(totals)):
            if i % CHAINS == c % CHAINS:
                tile = w[(first + i // CHAINS) * TILES + c]
                if isinstance(tile, gl.shared_memory_descriptor):
                    tile = tile.load(gl.DotOperandLayout(1, P, 1))
                added = added + (mma_v2(v, tile, totals[i], "tf32"),)
            else:
                added = added + (totals[i],)
        totals = added
    return totals


@gluon.jit
def as_states(totals, G: gl.constexpr, sums, J: gl.constexpr):
    """Products as tiles of states, summed over the totals of a gate and the parts of the inputs."""
    WARPS: gl.constexpr = gl.num_warps()
    TILE: gl.constexpr = tile_layout(J, WARPS)
    PARTS: gl.constexpr = parts_of(J, WARPS)
    RUN: gl.constexpr = run_of(J, WARPS)
    ROWS: gl.constexpr = totals[0].shape[1]
    EACH: gl.constexpr = gl.BlockedLayout([PARTS, 1, 2], [1, 8, 4], [1, PARTS, across_of(J, WARPS)], [2, 1, 0])
    CHAINS: gl.constexpr = len(totals) // G
    p = ()
    for g in gl.static_range(G):
        total = totals[g * CHAINS]
        for i in gl.static_range(1, CHAINS):
            total += totals[g * CHAINS + i]
        if PARTS == 1:
            runs = gl.permute(gl.reshape(total, [ROWS, RUN, J // RUN // 2, 2]), [0, 2, 1, 3])
            p = p + (gl.convert_layout(gl.reshape(runs, [ROWS, J]), TILE),)
        else:
            sums[g].store(total)
    if PARTS > 1:
        for g in gl.static_range(G):
            p = p + (gl.convert_layout(gl.sum(sums[g].load(EACH), axis=0), TILE),)
    return p
