"""The passes over units of which a fused loop is made: between products, one for each that must wait for another."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from multistable.scan.program import Program
from multistable.scan.program.nodes import COMPARISONS, Node, ancestors

Place = tuple[str, int, int]
"""A buffer, its number, and a lane in it.

``projected`` and ``saved`` have the lanes of one time. ``state`` and ``after`` are a field of the state before and
after the step, ``gradient`` that of such a field and ``upstream`` what comes to it from outside. ``operand`` and
``through`` are the operand of a product and its gradient, ``weight`` is a weight of units. ``gradients`` are those of
the input and the products, and what is stored in ``sum`` is added to it.
"""


@dataclass(eq=False)
class Pass:
    """One pass over all units: what it reads and, once all is read, writes.

    Attributes:
        loads: where leaves, and what earlier passes left, are found.
        stores: what is written where.
        then: the products that are taken after it.
    """

    then: list[int]
    stores: list[tuple[Place, Node]] = field(default_factory=list)
    loads: dict[Node, Place] = field(default_factory=dict)


@dataclass(frozen=True)
class Window:
    """Where the gradients of a product lie side by side: the first lane, and the order of the product's own lanes."""

    start: int
    order: tuple[int, ...]


class Levels:
    """After how many products in turn a value of a step, or of a step back, can be computed."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._levels: dict[Node, int] = {}

    def __call__(self, node: Node) -> int:
        """The level of a node."""
        if node not in self._levels:
            args: Iterable[Node] = node.args
            if node.op == "p":
                args = next(product.operand for product in self._program.products if node in product.lanes)
            elif node.op == "o":
                args = (self._program.of_p[lane] for lane in self._program.products[node.value[0]].lanes)
            self._levels[node] = max(map(self, args), default=0) + (node.op in ("p", "o"))
        return self._levels[node]


def needed_back(program: Program, *, again: bool = False) -> dict[Node, None]:
    """What a step back needs of a step, but for states and weights: no more than can be had without much work.

    With ``again``, what is made of states and weights alone is computed again, not saved.
    """
    roots = [*program.of_x, *program.of_s, *program.of_u.values(), *program.of_p.values()]
    back: set[Node] = set()
    for node in ancestors(roots):
        if node.op in ("g", "up", "o") or not back.isdisjoint(node.args):
            back.add(node)
    return worth_saving(program, roots, back, again=again)


def worth_saving(
    program: Program, roots: Iterable[Node], back: Container[Node] = (), *, again: bool
) -> dict[Node, None]:
    """What must be kept of a step for the sake of the roots, of which those in ``back`` are made after it."""
    given: set[Node] = set()

    def at_hand(node: Node) -> bool:
        if node in program.states or node.op in ("const", "u", "s"):
            return True
        return again and bool(node.args) and all(arg in given for arg in node.args)

    wanted: dict[Node, None] = {}
    for node in ancestors(roots):
        if node not in back and at_hand(node):
            given.add(node)
    for node in ancestors(roots, lambda node: node in given or (node not in back and _is_worth_saving(node))):
        if node not in back and node not in given and _is_worth_saving(node):
            wanted[node] = None
    return wanted


def _is_worth_saving(node: Node) -> bool:
    """Rather than what it is made of: inputs and products are not saved for its sake."""
    at_input = node.op in ("x", "p") or any(arg.op in ("x", "p") for arg in node.args)
    return not node.cheap or (at_input and node.op not in COMPARISONS and not node.of_row)


def layout(program: Program) -> tuple[list[Node], list[Window], int]:
    """The lanes of gradients, the window of each product in them, and where those of the projected input begin.

    The lanes of the projected input lie side by side in their order, and those of each product side by side in any
    order, some of them both.
    """
    lanes, of_x = list(program.of_x), 0
    windows: list[Window] = []
    for product in program.products:
        own = [program.of_p[lane] for lane in product.lanes]
        new = [node for node in own if node not in lanes]
        shared = len(own) - len(new)
        if len({*own}) == len(own) and 0 < shared < len(own) and {*lanes[:shared]} <= {*own}:
            lanes, of_x = new + lanes, of_x + len(new)
            windows = [Window(window.start + len(new), window.order) for window in windows]
        elif len({*own}) == len(own) and 0 < shared < len(own) and {*lanes[-shared:]} <= {*own}:
            lanes = lanes + new
        starts = range(len(lanes) - len(own) + 1)
        start = next((at for at in starts if {*lanes[at : at + len(own)]} == {*own}), -1)
        if start < 0 or len({*own}) < len(own):
            start, lanes = len(lanes), lanes + own
        windows.append(Window(start, tuple(own.index(node) for node in lanes[start : start + len(own)])))
    return lanes, windows, of_x


class Stages:
    """The passes of a step, and of a step back.

    The buffer ``saved`` begins with the products, in their order. What must be saved beside takes the place of a
    product that is not needed any more, or a lane of its own. In ``gradients`` the lanes of the projected input lie
    side by side in their order, and those of each product side by side in any order, some of them both.

    Attributes:
        direct: the products that are taken before any pass: of a field of the state as it is.
        forward, backward: the passes, in order.
        columns: the first lane of each product in ``saved``.
        width: the lanes of ``saved``.
        gradients: what the lanes of ``gradients`` are.
        windows: where the gradients of each product are in it.
        of_x: where those of the projected input begin in it.
        in_place: whether ``gradients`` may be the memory of ``saved``: nothing is read after it was written over.

    Args:
        gradient: whether a step keeps what a step back needs.
    """

    def __init__(self, program: Program, *, gradient: bool) -> None:
        self.program = program
        self._level = Levels(program)
        self.direct = [index for index, product in enumerate(program.products) if product.field is not None]
        self._computed = [index for index, product in enumerate(program.products) if product.field is None]
        leaves = [leaf for product in program.products for leaf in product.lanes]
        self._lane_of = {leaf: lane for lane, leaf in enumerate(leaves)}
        self.columns = [self._lane_of[product.lanes[0]] for product in program.products]
        self.width = len(leaves)
        self._wanted = needed_back(program) if gradient else {}
        self._saved = {node: self._lane_of[node] for node in self._wanted if node.op == "p"}
        self.forward = self._passes_forward()
        self.gradients, self.windows, self.of_x = layout(program)
        self.backward = self._passes_back() if gradient else []
        self.in_place = self._may_write_over()

    def _passes_forward(self) -> list[Pass]:
        program = self.program
        levels = {i: max(map(self._level, program.products[i].operand)) for i in self._computed}
        last = max([*map(self._level, program.states), *map(self._level, self._lane_of)])
        given = {i: program.products[i].operand for i in self._computed}
        operands = {i: [(("operand", i, lane), n) for lane, n in enumerate(given[i])] for i in given}
        passes: list[Pass] = []
        found: dict[Node, Place] = {}
        for level in sorted({*levels.values(), last}):
            made = Pass([i for i in levels if levels[i] == level])
            made.stores = [store for i in made.then for store in operands[i]]
            wanted: Iterable[Node] = []
            if level == last:
                made.stores += [(("after", index, 0), node) for index, node in enumerate(program.states)]
                wanted = self._wanted
            here = [*ancestors([*(node for _, node in made.stores), *wanted], found.__contains__)]
            later = [node for i in levels if levels[i] > level for _, node in operands[i]]
            later += program.states if level < last else ()
            left = {node for node in here if node.args and not node.cheap}
            needed = set(ancestors(later, {*found, *left}.__contains__))
            for node in here:
                if node not in self._saved and (node in self._wanted or node in needed & left) and node.op != "p":
                    self._saved[node] = self._room(level, needed)
                    made.stores.append((("saved", 0, self._saved[node]), node))
            made.loads = self._loads(made, found)
            found |= {node: ("saved", 0, self._saved[node]) for node in left & self._saved.keys()}
            passes.append(made)
        return passes

    def _room(self, level: int, needed: set[Node]) -> int:
        """A lane of a product that is not needed after this pass, or a new one."""
        taken = {*self._saved.values()}
        for leaf, lane in self._lane_of.items():
            if lane not in taken and leaf not in needed and self._level(leaf) <= level:
                return lane
        self.width += 1
        return self.width - 1

    def _passes_back(self) -> list[Pass]:
        program = self.program
        levels = {i: max(self._level(program.of_p[lane]) for lane in program.products[i].lanes) for i in self._computed}
        last = max([*map(self._level, [*program.of_s, *self.gradients]), *(level + 1 for level in levels.values())])
        found: dict[Node, Place] = {node: ("saved", 0, self._saved[node]) for node in self._wanted}
        found |= {
            node: ("after", index, 0) for index, node in enumerate(program.states) if node.op not in ("s", "const")
        }
        passes: list[Pass] = []
        done: set[int] = set()
        for level in sorted({*levels.values(), last}):
            made = Pass([i for i in levels if levels[i] == level])
            first = {program.of_p[lane] for i in made.then for lane in program.products[i].lanes}
            for lane, node in enumerate(self.gradients):
                if lane not in done and (node in first or level == last):
                    done.add(lane)
                    made.stores.append((("gradients", 0, lane), node))
            if level == last:
                made.stores += [(("gradient", index, 0), node) for index, node in enumerate(program.of_s)]
                made.stores += [(("sum", 0, lane), program.of_u[unit]) for lane, unit in enumerate(program.units)]
            made.loads = self._loads(made, found)
            passes.append(made)
        return passes

    def _may_write_over(self) -> bool:
        written: set[int] = set()
        for each in self.backward:
            if not written.isdisjoint(lane for buffer, _, lane in each.loads.values() if buffer == "saved"):
                return False
            written |= {lane for (buffer, _, lane), _ in each.stores if buffer == "gradients"}
        return True

    def _loads(self, made: Pass, found: dict[Node, Place]) -> dict[Node, Place]:
        buffers = {"x": "projected", "s": "state", "u": "weight", "g": "gradient", "up": "upstream", "o": "through"}
        loads = {}
        for node in ancestors([node for _, node in made.stores], found.__contains__):
            if node in found:
                loads[node] = found[node]
            elif node.op == "p":
                loads[node] = ("saved", 0, self._lane_of[node])
            elif node.op == "x":
                loads[node] = ("projected", 0, node.value)
            elif node.op in buffers:
                number, lane = node.value if isinstance(node.value, tuple) else (node.value, 0)
                loads[node] = (buffers[node.op], number, lane)
        return loads
