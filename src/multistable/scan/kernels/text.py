"""Nodes as functions in Triton's language, which kernels are given."""

import hashlib
import linecache
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from multistable.scan.kernels import functions
from multistable.scan.program.nodes import Node, ancestors

OPERATORS = {
    **{"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|"},
    **{"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="},
}
CALLS = {
    **{name: name for name in ("sigmoid", "tanh", "exp", "expm1", "log1p", "sqrt", "maximum", "minimum")},
    **{"log": "tl.log", "abs": "tl.abs", "where": "tl.where", "pow": "power"},
}


class Writer:
    """Writes functions of the same leaves, each of which takes what those before it have kept.

    Attributes:
        given: the expression of each leaf.
        used: the expressions that were needed.
    """

    def __init__(self) -> None:
        self.given: dict[Node, str] = {}
        self.used: set[str] = set()
        self.text: list[str] = []
        self._kept: dict[Node, str] = {}

    def function(self, name: str, arguments: str, groups: Sequence[Sequence[Node]], ends: Iterable[Node]) -> None:
        """The values of a group for each stage, and what is kept of them for later groups and for the ``ends``."""
        lines = []
        for stage, group in enumerate(groups):
            later = [node for other in groups[stage + 1 :] for node in other] + list(ends)
            here = [*ancestors(group, self._known)]
            left = {node for node in here if node.args and not node.cheap and not self._known(node)}
            needed = set(ancestors(later, lambda node, left=left: self._known(node) or node in left))  # type: ignore[misc]
            new = [node for node in here if node in left and node in needed]
            body, names = self._body(group)
            lines += [f"    {'el' if stage else ''}if STAGE == {stage}:", *(f"    {line}" for line in body)]
            kept = "".join(f"{names[node]}, " for node in new)
            lines.append(f"        result = {self._tuple(group, names)}, kept + ({kept})")
            self._kept |= {node: f"kept[{len(self._kept) + index}]" for index, node in enumerate(new)}
        self._write(name, f"{arguments}, STAGE: tl.constexpr", lines or ["    result = (), kept"])

    def ending(self, name: str, arguments: str, groups: Sequence[Sequence[Node]]) -> None:
        """The values of all groups."""
        body, names = self._body([node for group in groups for node in group])
        self._write(name, arguments, [*body, f"    result = {', '.join(self._tuple(g, names) for g in groups)}"])

    @staticmethod
    def module(*writers: "Writer") -> tuple[str, str]:
        """The name and the text of a module with all functions; it is named after what it has."""
        names = ", ".join(sorted({name for name in CALLS.values() if not name.startswith("tl.")}))
        head = [f'"""Written by {__name__}."""', "import triton", "import triton.language as tl"]
        head.append(f"from {functions.__name__} import {names}")
        text = "\n".join([*head, *(line for writer in writers for line in writer.text)]) + "\n"
        return f"multistable_step_{_digest(text)}", text

    def _known(self, node: Node) -> bool:
        return node in self.given or node in self._kept

    def _body(self, roots: Iterable[Node]) -> tuple[list[str], dict[Node, str]]:
        """A line for each value, and the name of each."""
        lines, names = [], {}
        for node in ancestors(roots, self._known):
            if node in self._kept:
                names[node] = self._kept[node]
            elif node in self.given:
                names[node] = f"({self.given[node]})" if " " in self.given[node] else self.given[node]
                self.used.add(self.given[node])
            elif node.op == "const":
                names[node] = repr(node.value) if abs(node.value) < float("inf") else f'float("{node.value}")'
            else:
                names[node] = f"v{len(names)}"
                lines.append(f"    {names[node]} = {_expression(node, [names[arg] for arg in node.args])}")
        return lines, names

    def _tuple(self, group: Iterable[Node], names: dict[Node, str]) -> str:
        """The names as a tuple; a number as a tile."""
        like = "g[0]" if any("g[" in expression for expression in self.given.values()) else "s[0]"
        tiles = (f"tl.where({like} == {like}, {names[n]}, {names[n]})" if n.op == "const" else names[n] for n in group)
        return f"({''.join(f'{tile}, ' for tile in tiles)})"

    def _write(self, name: str, arguments: str, lines: list[str]) -> None:
        self.text += ["", "", "@triton.jit", f"def {name}({arguments}):", *lines, "    return result"]


def _expression(node: Node, args: list[str]) -> str:
    if node.op in OPERATORS:
        return f"{args[0]} {OPERATORS[node.op]} {args[1]}"
    if node.op in ("neg", "not", "detach"):
        return {"neg": "-{}", "not": "{} == 0", "detach": "{}"}[node.op].format(*args)
    return f"{CALLS[node.op]}({', '.join(args)})"


def _digest(text: str) -> str:
    """Of all that decides what the functions compute: Triton may know a kernel by their names alone."""
    read = Path(functions.__file__).read_text(encoding="utf-8")
    return hashlib.sha256((text + read).encode()).hexdigest()[:16]


@cache
def module_of(name: str, text: str) -> ModuleType:
    """The functions, which Triton compiles from their text; it asks ``linecache`` for it."""
    module = ModuleType(name)
    place = f"<{name}>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    sys.modules[name] = module
    exec(compile(text, place, "exec"), module.__dict__)
    return module
