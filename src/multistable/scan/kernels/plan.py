"""How a recurrence is laid over a GPU: how many rows and units a program has, and how many share a recurrence."""

from dataclasses import dataclass, replace
from functools import lru_cache
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

HELD_FORWARD = {1: 160, 2: 144}
HELD_BACKWARD = {1: 120, 2: 72}
HELD_HALVES = {1: 128, 2: 112}
"""Weights that a thread holds in registers, with one tile of states at a time or two; the others are in shared memory.

The first two are for TF32, the third is for halves, whose products have more results.
"""

UNITS_OF_TWO = 64
"""The most units of a program with two tiles at a time: with more, registers have no place for both."""

ROWS_FOR_MATRIX = 4
"""Rows for each group from which the matrix units are faster than multiply-adds, a row at a time."""

EXCHANGE, PRODUCT = 1.5, 1.5
"""Microseconds of a step on an H200: until programs have each other's states, and for all else in a program that has
``WEIGHTS_PER_PROGRAM`` weights. They decide how many programs share a tile, and how many tiles these have at a time.
"""


@dataclass(frozen=True)
class Plan:
    """The division of one launch.

    ``span`` rows of a recurrence make a tile, which has place for ``rows``. ``splits`` programs, each with ``units``
    of the hidden units, advance ``tiles`` tiles of a recurrence together, and ``groups`` such groups share all.
    ``inputs`` are the hidden units, padded, in ``parts``. ``matrix`` says that products are on the matrix units
    (``matrix.py``), not a row at a time (``product.py``); ``halves`` says that they are almost float32 there
    (``matrix_halves.py``).
    """

    rows: int
    span: int
    tiles: int
    inputs: int
    units: int
    splits: int
    groups: int
    parts: int
    warps: int
    matrix: bool
    halves: bool

    @property
    def grid(self) -> tuple[int]:
        return (self.groups * self.splits,)

    @property
    def constants(self) -> dict[str, Any]:
        """The compile-time arguments of the kernels that follow from the plan."""
        own = {"TILES": self.tiles} if self.matrix else {"PARTS": self.parts, "AHEAD": min(self.rows, ROWS_AHEAD)}
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


@dataclass(frozen=True)
class Division:
    """How many units a program on the matrix units has, how many share a tile, and how many tiles these have at once.

    With more units in a program, fewer wait for each other, but a step takes longer. With two tiles, one waits while
    the other is multiplied.
    """

    units: int
    splits: int
    tiles: int = 1

    def time(self, members: int, tiles: int, programs: int, of_unit: float) -> float:
        """Microseconds of a step of all ``members``, each of so many tiles, with so many programs at once."""
        product = of_unit * self.units
        turns = -(-members * -(-tiles // self.tiles) // max(1, programs // self.splits))
        return turns * max(self.tiles * product, product + (EXCHANGE if self.splits > 1 else 0))

    def shared(self, gates: int, inputs: int, warps: int, thrice: bool) -> int:
        """Bytes of shared memory: weights that registers have no place for, the left operand, and sums over parts."""
        held = (HELD_HALVES if thrice else HELD_BACKWARD)[self.tiles] // MATRIX_ROWS * MATRIX_ROWS
        weights = max(0, gates * inputs * self.units - held * 32 * warps)
        parts = warps // min(warps, self.units // 8)
        return 4 * (weights + MATRIX_ROWS * (inputs + (gates * parts * self.units if parts > 1 else 0)))


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
    matrix = (
        matrix_units
        and (precision == "tf32" or thrice)
        and inputs <= MATRIX_INPUTS
        and units >= 16
        and members * rows > ROWS_FOR_MATRIX * groups_at_once
        and Division(units, splits).shared(gates, inputs, warps, thrice) <= shared_memory
    )
    tiles = 1
    if matrix:
        span = -(-rows // -(-rows // MATRIX_ROWS))
        wider = [Division(units, splits), Division(2 * units, -(-hidden // (2 * units)))]
        choices = wider if splits > 1 and warps == WARPS else wider[:1]
        few = [each for each in choices if each.splits > 1 and each.units <= UNITS_OF_TWO]
        choices += [replace(each, tiles=2) for each in few if rows > span]
        choices = [each for each in choices if each.shared(gates, inputs, warps, thrice) <= shared_memory]
        of_unit = PRODUCT * gates * inputs / WEIGHTS_PER_PROGRAM
        at_once = processors * (WARPS // warps_at_most)
        best = min(choices, key=lambda each: each.time(members, -(-rows // span), at_once, of_unit))
        units, splits, tiles = best.units, best.splits, best.tiles
        groups_at_once = max(1, at_once // splits)
    elif splits > 1:
        # As many tiles as there are groups, so that each advances as few rows as possible.
        span = min(MOST_ROWS, -(-rows // max(1, groups_at_once // members)))
        if span > ROWS_AHEAD:
            span = -(-span // ROWS_AHEAD) * ROWS_AHEAD
    elif members * rows <= processors:
        span = 1
    else:
        span = min(rows, 4 if inputs >= 128 else 8)
    items = members * -(-rows // (span * tiles))
    return Plan(
        rows=MATRIX_ROWS if matrix else triton.next_power_of_2(span),
        span=span,
        tiles=tiles,
        inputs=inputs,
        units=units,
        splits=splits,
        groups=items if splits == 1 else min(groups_at_once, items),
        parts=parts,
        warps=warps,
        matrix=matrix,
        halves=matrix and thrice,
    )
