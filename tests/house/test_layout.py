"""How the source is laid out: what may import what, and names that mean one thing."""

import ast
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import multistable

SOURCE = Path(multistable.__file__).parent

# Each may import itself and what stands before it. What is not listed (arguments, extras, memory) serves all.
ROOMS = [
    "cells",
    "scan",
    "networks",
    "dynamics.system",
    "dynamics.measure",
    "dynamics.warmup",
    "dynamics.prepare",
    "dynamics.advise",
    "integrations",
    "tasks",
    "training",
    "rl",
    "experiments",
    "cli",
]


def modules() -> list[str]:
    """The names of all modules and packages, but for kernels, which need a GPU or an interpreter of their own."""
    found = pkgutil.walk_packages(multistable.__path__, "multistable.")
    return [module.name for module in found if ".kernels" not in module.name]


def room(module: str) -> int | None:
    """The place in ROOMS of the room that a module is in, or of the room that it is."""
    inside = [place for place, name in enumerate(ROOMS) if f"{module}.".startswith(f"multistable.{name}.")]
    return inside[0] if inside else None


def imports(path: Path) -> set[str]:
    """What a file imports, also inside functions; of ``from a import b`` both a and a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def test_no_file_imports_upward():
    upward = []
    for path in SOURCE.rglob("*.py"):
        own = room(".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"))
        for name in imports(path):
            other = room(name)
            if own is not None and other is not None and other > own:
                upward.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert not upward


def test_no_module_is_shadowed():
    """What a package calls by a module's name is that module: no function of the same name hides it."""
    shadowed = []
    for name in modules():
        package, _, last = name.rpartition(".")
        found = getattr(importlib.import_module(package), last, None)
        if found is not None and not isinstance(found, ModuleType):
            shadowed.append(name)
    assert not shadowed


def test_no_public_name_is_that_of_a_file():
    files = {path.stem for path in SOURCE.rglob("*.py")}
    assert not files & {name for name in multistable.__all__ if name.islower()}


def test_no_test_reaches_the_library_around_a_shadow():
    """No test takes a module by its name out of ``sys.modules``, or from ``import_module``."""
    around = []
    for path in Path(__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            key = None
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules":
                key = node.slice
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
                key = node.args[0]
            if isinstance(key, ast.Constant) and str(key.value).startswith("multistable"):
                around.append(f"{path.name}:{node.lineno}")
    assert not around
