"""The program of a step in the form that kernels take: pointwise functions in Triton's language, and how to call them.

A step forward is a few *stages*. In each, programs make the operands that it needs, give them to each other, and
multiply them; after the last comes the new state. A step back is a few stages, too: in each, programs make gradients of
products, give them to each other, and multiply them by the matrices; the products with fields of the state come last.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property

from multistable.scan.kernels.text import Writer
from multistable.scan.program import Program, RefusedError
from multistable.scan.program.nodes import Node, ancestors
from multistable.scan.program.stages import Levels, layout, needed_back, worth_saving

Slots = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Slot:
    """The product of one operand, a lane, with blocks of matrices side by side.

    Attributes:
        product: which of the program's.
        lane: of the product's operand.
        field: the field of the state that the operand is, or None where it is computed.
        first: the place of its first block among all blocks.
        blocks: how many there are.
        start: the lane of gradients at which those of its blocks begin.
        order: the order of the blocks there.
    """

    product: int
    lane: int
    field: int | None
    first: int
    blocks: int
    start: int
    order: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Form:
    """What a loop must know of a step. Lanes are ``hidden`` columns wide.

    Attributes:
        program: where it comes from.
        slots: the products.
        saved: the values that the backward pass needs, a lane each.
        gradients: the lanes of gradients, which may be written over those that were saved.
        of_x: the first of them that is of the projected input, whose lanes follow each other.
        of_units: for each weight of units the lane of gradients that is its own, or None where there is none.
        functions: the name and the text of the module with the functions of the kernels.
        stages: of a step: how many operands are computed, and for each product its operand (a field, or, below zero,
            the computed one from -1 on), its first block and how many there are.
        retreats: of a step back: the lanes of gradients that are written, and for each product that is taken then which
            of all gradients written so far it takes, its first lane, and its first block in ``order``.
        into: for each product of the last stage the field that its result belongs to.
        order: in which order a step back has the blocks of matrices.
        before, after: the fields of the state before and after a step that the step back reads.
    """

    program: Program
    slots: tuple[Slot, ...]
    saved: tuple[Node, ...]
    gradients: tuple[Node, ...]
    of_x: int
    of_units: tuple[int | None, ...]
    functions: tuple[str, str]
    stages: tuple[tuple[int, Slots], ...]
    retreats: tuple[tuple[tuple[int, ...], tuple[tuple[tuple[int, ...], int, int], ...]], ...]
    into: tuple[int, ...]
    order: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @cached_property
    def fields(self) -> int:
        """How many fields the state has."""
        return len(self.program.states)

    @cached_property
    def blocks(self) -> int:
        """How many blocks of matrices there are, each ``(hidden, hidden)``."""
        return sum(slot.blocks for slot in self.slots)

    @cached_property
    def width(self) -> int:
        """The lanes of the memory that holds the projected input, then what is saved, then gradients."""
        return max(len(self.saved), len(self.gradients), self.of_x + self.program.lanes)

    @cached_property
    def computes_operands(self) -> bool:
        """Whether an operand is no field of the state."""
        return any(slot.field is None for slot in self.slots)

    @cached_property
    def sums(self) -> int:
        """How many weights of units have their gradients summed on the way."""
        return self.of_units.count(None)

    @cached_property
    def fits_matrix_units(self) -> bool:
        """Whether the kernels of the matrix units have this form."""
        return bool(self.into) and not self.sums


@cache
def form_of(program: Program) -> Form:
    """The form of a program; ``RefusedError`` where kernels cannot have it."""
    return _Making(program).form()


class _Making:
    """Takes a program apart."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.level = Levels(program)
        gradients, windows, self.of_x = layout(program)
        self.gradients = tuple(gradients)
        self.slots: list[Slot] = []
        for index, (product, window) in enumerate(zip(program.products, windows, strict=True)):
            for lane in range(len(product.operand)):
                first = sum(slot.blocks for slot in self.slots)
                blocks = len(product.lanes)
                self.slots.append(Slot(index, lane, product.field, first, blocks, window.start, window.order))
        self.of_units = tuple(
            self.gradients.index(program.of_u[unit]) if program.of_u[unit] in self.gradients else None
            for unit in program.units
        )
        operands = [self.operand(slot) for slot in self.slots if slot.field is None]
        wanted = needed_back(program, again=True) | worth_saving(program, operands, again=True)
        self.saved = tuple(wanted)
        sums = [program.of_u[unit] for unit, lane in zip(program.units, self.of_units, strict=True) if lane is None]
        if any(node.op == "sum" for node in ancestors([*self.gradients, *program.of_s, *sums, *self.saved])):
            raise RefusedError("its step takes sums over units, which the kernels on a GPU do not have")
        self.sums = tuple(sums)

    def operand(self, slot: Slot) -> Node:
        return self.program.products[slot.product].operand[slot.lane]

    def form(self) -> Form:
        """All of it."""
        program, forward = self.program, Writer()
        levels = sorted({self.level(self.operand(slot)) for slot in self.slots})
        at = [[slot for slot in self.slots if self.level(self.operand(slot)) == level] for level in levels]
        place = {slot: index for index, slot in enumerate(slot for slots in at for slot in slots)}
        results: dict[Node, list[str]] = {}
        for slot in self.slots:
            before = sum(other.blocks for other in place if place[other] < place[slot])
            for block, leaf in enumerate(program.products[slot.product].lanes):  # those of many lanes are added
                results.setdefault(leaf, []).append(f"p[{before + block}]")
        forward.given = {leaf: " + ".join(terms) for leaf, terms in results.items()}
        forward.given |= {program.nodes.leaf("x", lane): f"x[{lane}]" for lane in range(program.lanes)}
        forward.given |= {program.nodes.leaf("s", f): f"s[{f}]" for f in range(len(program.states))}
        forward.given |= {unit: f"u[{index}]" for index, unit in enumerate(program.units)}
        computed = [[slot for slot in slots if slot.field is None] for slots in at]
        ends = (*program.states, *self.saved)
        forward.function(
            "operands", "x, s, u, p, kept", [[self.operand(slot) for slot in slots] for slots in computed], ends
        )
        forward.ending("finish", "x, s, u, p, kept", [program.states, self.saved])
        stages = tuple(
            (len(own), tuple((self._place(slot, own), slot.first, slot.blocks) for slot in slots))
            for slots, own in zip(at, computed, strict=True)
        )
        return self._with_way_back(forward, stages)

    @staticmethod
    def _place(slot: Slot, computed: list[Slot]) -> int:
        return -1 - computed.index(slot) if slot.field is None else slot.field

    def _with_way_back(self, forward: Writer, stages: tuple[tuple[int, Slots], ...]) -> Form:
        program, back = self.program, Writer()
        computed = [slot for slot in self.slots if slot.field is None]
        level_of = {slot: max(map(self.level, self._gradients_of(slot))) for slot in computed}
        levels = sorted({*level_of.values()})
        at = [[slot for slot in computed if level_of[slot] == level] for level in levels]
        direct = [slot for slot in self.slots if slot.field is not None]
        received = {slot: index for index, slot in enumerate(slot for slots in at for slot in slots)}
        back.given = {node: f"saved[{index}]" for index, node in enumerate(self.saved)}
        for index, node in enumerate(program.states):
            if node.op not in ("s", "const"):
                back.given.setdefault(node, f"after[{index}]")
        back.given |= {program.nodes.leaf("s", f): f"before[{f}]" for f in range(len(program.states))}
        back.given |= {unit: f"u[{index}]" for index, unit in enumerate(program.units)}
        for name, op in (("g", "g"), ("up", "up")):
            back.given |= {program.nodes.leaf(op, f): f"{name}[{f}]" for f in range(len(program.states))}
        for slot, index in received.items():
            back.given[program.nodes.leaf("o", (slot.product, slot.lane))] = f"o[{index}]"
        written: list[int] = []
        lanes: list[tuple[int, ...]] = []
        for slots in at:
            needed = dict.fromkeys(lane for slot in slots for lane in range(slot.start, slot.start + slot.blocks))
            lanes.append(tuple(lane for lane in needed if lane not in written))
            written += lanes[-1]
        lanes.append(tuple(lane for lane in range(len(self.gradients)) if lane not in written))
        written += lanes[-1]
        arguments = "saved, before, after, u, g, up, o, kept"
        last = [[self.gradients[lane] for lane in lanes[-1]], program.of_s, self.sums]
        groups = [[self.gradients[lane] for lane in each] for each in lanes[:-1]]
        back.function("retreat", arguments, groups, [node for group in last for node in group])
        back.ending("finish_retreat", arguments, last)
        order = [(slot, block) for slots in (*at, direct) for slot in slots for block in range(slot.blocks)]
        taken = {slot: order.index((slot, 0)) for slot in self.slots}
        retreats = tuple(
            (each, tuple((self._among(slot, written), slot.start, taken[slot]) for slot in slots))
            for each, slots in zip(lanes, (*at, direct), strict=True)
        )
        used = back.used
        return Form(
            program,
            tuple(self.slots),
            self.saved,
            self.gradients,
            self.of_x,
            self.of_units,
            Writer.module(forward, back),
            stages,
            retreats,
            tuple(slot.field for slot in direct if slot.field is not None),
            tuple(slot.first + slot.order[block] for slot, block in order),
            tuple(f for f in range(len(program.states)) if f"before[{f}]" in used),
            tuple(f for f in range(len(program.states)) if f"after[{f}]" in used),
        )

    def _gradients_of(self, slot: Slot) -> Iterable[Node]:
        return (self.program.of_p[lane] for lane in self.program.products[slot.product].lanes)

    @staticmethod
    def _among(slot: Slot, written: list[int]) -> tuple[int, ...]:
        return tuple(written.index(lane) for lane in range(slot.start, slot.start + slot.blocks))
