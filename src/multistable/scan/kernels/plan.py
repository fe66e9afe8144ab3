"""How a recurrence is laid over a GPU: how many rows and units a program has, and how many share a recurrence."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import triton

WEIGHTS_PER_PROGRAM = 49_152
"""Weights a program holds: 192 registers in each of 256 threads, of the 255 a thread may have."""

INPUTS_PER_THREAD = 32
"""How many states of a row a thread holds beside its weights during a product."""

WARPS = 8

ROWS_AHEAD = 4
"""How many rows ahead reads begin: the products of so many last longer than a read from the second-level cache."""

MOST_ROWS = 16
"""The most rows of a tile: with more, states and gates push weights out of registers."""

MATRIX_ROWS = 16
"""Rows of a tile on the matrix units, the least that they take."""

MATRIX_INPUTS = 512
"""The most units of a layer on the matrix units: with more, a group has too many programs."""

HELD_FORWARD = 160
HELD_BACKWARD = 120
HELD_HALVES = 128
"""Weights that a thread holds in registers beside the results of the matrix units; the others are in shared memory.

The first two are for TF32, the third is for halves, whose products have more results.
"""

STATES_SHARED = 64 * 1024
"""The most bytes of shared memory beside the weights that registers have no place for.

They are states on the way to the matrix units, and weights that would fill a part of a tile.
"""

ROWS_FOR_MATRIX = 4
"""Rows for each group from which the matrix units are faster than multiply-adds, a row at a time."""


@dataclass(frozen=True)
class Plan:
    """The division of one launch.

    ``span`` rows of a recurrence make a tile, which has place for ``rows``. ``splits`` programs, each with ``units``
    of the hidden units, advance one tile together, and ``groups`` such groups share all tiles. ``inputs`` are the
    hidden units, padded, in ``parts``. ``matrix`` says that products are on the matrix units (``matrix.py``), not a row
    at a time (``product.py``); ``halves`` says that they are almost float32 there (``matrix_halves.py``).
    """

    rows: int
    span: int
    inputs: int
    units: int
    splits: int
    groups: int
    parts: int
    warps: int
    matrix: bool
    halves: bool

    @cached_property
    def grid(self) -> tuple[int]:
        return (self.groups * self.splits,)

    @property
    def constants(self) -> dict[str, Any]:
        """The compile-time arguments of the kernels that follow from the plan."""
        own = {} if self.matrix else {"PARTS": self.parts, "AHEAD": min(self.rows, ROWS_AHEAD)}
        return {
            "ROWS": self.rows,
            "K": self.inputs,
            "J": self.units,
            "SPLITS": self.splits,
            **own,
            "num_warps": self.warps,
            # Programs that wait for each other must all be running.
            **({"launch_cooperative_grid": True} if self.splits > 1 else {}),
        }


@lru_cache
def plan(
    *, hidden: int, gates: int, members: int, rows: int, processors: int, shared_memory: int, matrix_units: bool,
    precision: str, backward: bool = True,
) -> Plan:  # fmt: skip
    """The division for ``members`` recurrences of ``rows`` rows on a GPU, with a ``backward`` pass to follow or not.

    The GPU has ``processors`` multiprocessors, ``shared_memory`` bytes for a program, and perhaps matrix units.

    The precision is the least: where matrix units gain nothing, products are plain float32. They gain on many rows in
    TF32, and, where no backward pass follows, with three products in place of one.

    Nothing in it depends on the length of the sequence, and the kernels it compiles to are few: the number of rows
    only decides the size of tiles, a power of two.
    """
    inputs = max(16, triton.next_power_of_2(hidden))
    # A program is given as few units as registers demand, and no fewer: splitting costs a meeting at every step.
    alone = gates * inputs * inputs <= WEIGHTS_PER_PROGRAM
    warps_at_most = WARPS if alone or inputs >= 256 else WARPS // 2
    weights_at_most = WEIGHTS_PER_PROGRAM * warps_at_most // WARPS
    units = inputs
    while gates * inputs * units > weights_at_most and units > 8 and -(-hidden // (units // 2)) <= processors:
        units //= 2
    splits = -(-hidden // units)
    warps = triton.next_power_of_2(gates * inputs * units // 2048 + 1) // 2
    warps = max(1, min(warps, warps_at_most, inputs // 16))
    parts = max(1, inputs // INPUTS_PER_THREAD)

    groups_at_once = max(1, processors * (WARPS // warps_at_most) // splits)
    thrice = precision == "tf32x3" and not backward
    held = HELD_HALVES if thrice else HELD_BACKWARD
    matrix = (
        matrix_units
        and (precision == "tf32" or thrice)
        and inputs <= MATRIX_INPUTS
        and units >= 16
        and members * rows > ROWS_FOR_MATRIX * groups_at_once
        and _shared(gates * inputs * units, held, warps) <= shared_memory
    )
    if matrix:
        tiles = -(-rows // MATRIX_ROWS)
        wide = _shared(gates * inputs * units * 2, held, warps) <= shared_memory
        if splits > 1 and warps == WARPS and members * tiles > groups_at_once and wide:
            # Fewer programs for a tile: with weights in shared memory a step takes longer, but less than two steps.
            units *= 2
            splits = -(-hidden // units)
            groups_at_once = max(1, processors // splits)
        span = -(-rows // tiles)
    elif splits > 1:
        # As many tiles as there are groups, so that each advances as few rows as possible.
        span = min(MOST_ROWS, -(-rows // max(1, groups_at_once // members)))
        if span > ROWS_AHEAD:
            span = -(-span // ROWS_AHEAD) * ROWS_AHEAD
    elif members * rows <= processors:
        span = 1
    else:
        span = min(rows, 4 if inputs >= 128 else 8)
    tiles = members * -(-rows // span)
    return Plan(
        rows=MATRIX_ROWS if matrix else triton.next_power_of_2(span),
        span=span,
        inputs=inputs,
        units=units,
        splits=splits,
        groups=tiles if splits == 1 else min(groups_at_once, tiles),
        parts=parts,
        warps=warps,
        matrix=matrix,
        halves=matrix and thrice,
    )


def _shared(weights: int, held: int, warps: int) -> int:
    """Bytes of shared memory that a program on the matrix units takes at most: so many weights, so many held each."""
    return 4 * max(0, weights - held * 32 * warps) + STATES_SHARED
