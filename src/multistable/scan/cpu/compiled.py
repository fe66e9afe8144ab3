"""Passes of a program as machine code: written in LLVM's language, compiled by llvmlite in a tenth of a second, stored.

Imported late: llvmlite need not be there.
"""

import contextlib
import ctypes
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from multistable.scan.cpu.functions import Instructions
from multistable.scan.program.nodes import Node, ancestors
from multistable.scan.program.stages import Pass

Buffer = tuple[str, int]
Compiled = Callable[[int, int, int, int, int, int], None]
"""Takes the address of a description, the first time, the one to stop before, the difference, and the same of rows."""

HEADER = 2
FIELDS = 4
"""A description is of int64: units, rows of a member; of each buffer its address, bytes between times, the number of
times, bytes between rows (of weights: between members)."""

OLDEST = (17,)
"""The version of LLVM from which on pointers have no types, as in what is written here."""

DIGEST = hashlib.sha256().digest_size
"""Bytes before stored code."""


def usable() -> bool:
    """Whether the llvmlite that is installed, which other packages choose too, is new enough."""
    return bool(llvm.llvm_version_info >= OLDEST)


@cache
def buffers_of(each: Pass) -> list[Buffer]:
    """The buffers of a pass, in the order of its description."""
    places = [*each.loads.values(), *(place for place, _ in each.stores)]
    return list(dict.fromkeys((name, number) for name, number, _ in places))


@cache
def compiled(each: Pass, *, double: bool) -> Compiled:
    """A pass as a function, which is called without the lock of the interpreter."""
    return _compiled(Writer(each, double=double, fused=_has_fused()).text())


class Writer:
    """Writes a pass: for each time, for each row, a loop over units, and one before it for each sum that it needs."""

    def __init__(self, each: Pass, *, double: bool, fused: bool) -> None:
        self.each = each
        self.code = Instructions(double=double, fused=fused)
        self.buffers = buffers_of(each)
        self.bytes = 8 if double else 4
        self.phases: dict[Node, int] = {}

    def text(self) -> str:
        """The module."""
        code, emit = self.code, self.code.emit
        units, rows_of_member, *fields = (self._described(i) for i in range(HEADER + FIELDS * len(self.buffers)))
        starts = [fields[at : at + FIELDS] for at in range(0, len(fields), FIELDS)]
        code.lines += ["  br label %times", "times:", "  %t = phi i64 [%t0, %entry], [%next_t, %after_rows]"]
        later = emit("add i64 %t, 1")
        times = []
        for (name, _), (start, apart, count, _) in zip(self.buffers, starts, strict=True):
            turn = emit(f"urem i64 {later if name == 'after' else '%t'}, {count}")
            times.append(self._moved(start, turn, apart))
        code.lines += ["  br label %rows", "rows:", "  %row = phi i64 [%r0, %times], [%next_row, %after_units]"]
        member = emit(f"udiv i64 %row, {rows_of_member}")
        self.rows: dict[Buffer, str] = {}
        for buffer, time, (_, _, _, apart) in zip(self.buffers, times, starts, strict=True):
            self.rows[buffer] = self._moved(time, member if buffer[0] == "weight" else "%row", apart)
        self._units(units)
        tail = [
            *("  %next_row = add i64 %row, 1", "  %more_rows = icmp slt i64 %next_row, %r1"),
            *("  br i1 %more_rows, label %rows, label %after_rows", "after_rows:", "  %next_t = add i64 %t, %dt"),
            *("  %more_times = icmp ne i64 %next_t, %t1", "  br i1 %more_times, label %times, label %end"),
            *("end:", "  ret void", "}"),
        ]
        kind, name = self.code.type, f"f{64 if self.bytes == 8 else 32}"
        declared = [f"declare {kind} @llvm.{op}.{name}({kind})" for op in ("sqrt", "fabs")]
        declared.append(f"declare {kind} @llvm.fma.{name}({kind}, {kind}, {kind})")
        head = "define void @pass(ptr %d, i64 %t0, i64 %t1, i64 %dt, i64 %r0, i64 %r1) {\nentry:"
        return "\n".join([head, *code.lines, *tail, *declared, *self._loops])

    def _described(self, index: int) -> str:
        place = self.code.emit(f"getelementptr i64, ptr %d, i64 {index}")
        return self.code.emit(f"load i64, ptr {place}")

    def _moved(self, start: str, index: str, apart: str) -> str:
        return self.code.emit(f"add i64 {start}, {self.code.emit(f'mul i64 {index}, {apart}')}")

    def _units(self, units: str) -> None:
        """The loops over units: those that sum, in turn, then the one that writes."""
        roots = [node for _, node in self.each.stores]
        inside = [*ancestors(roots, self.each.loads.__contains__)]
        sums = [node for node in inside if node.op == "sum" and node not in self.each.loads]
        places = {*self.each.loads.values(), *(place for place, _ in self.each.stores)}
        lane_bytes = self.code.emit(f"mul i64 {units}, {self.bytes}")
        self.lanes = {}
        for name, number, lane in sorted(places):
            address = self._moved(self.rows[name, number], str(lane), lane_bytes)
            self.lanes[name, number, lane] = self.code.emit(f"inttoptr i64 {address} to ptr")
        # Said of the memory of each loop: no unit reads what another one writes.
        self._loops = ["!0 = distinct !{}", '!1 = !{!"llvm.loop.parallel_accesses", !0}']
        self._loops.append('!2 = !{!"llvm.loop.vectorize.enable", i1 true}')
        of_row: dict[Node, str] = {}
        last = max(map(self._phase, roots), default=0)
        before = "rows"
        for phase in range(last + 1):
            wanted = [node for node in sums if self._phase(node) == phase + 1] if phase < last else []
            before = self._loop(phase, before, units, wanted, of_row, write=phase == last)
        self.code.lines += ["  br label %after_units", "after_units:"]

    def _phase(self, node: Node) -> int:
        """How many loops must be over before a value can be computed in one."""
        if node in self.each.loads:
            return 0
        if node not in self.phases:
            self.phases[node] = max(map(self._phase, node.args), default=0) + (node.op == "sum")
        return self.phases[node]

    def _loop(
        self, phase: int, before: str, units: str, sums: list[Node], of_row: dict[Node, str], *, write: bool
    ) -> str:
        code, name = self.code, f"units{phase}"
        roots = [node for _, node in self.each.stores] if write else [node.args[0] for node in sums]
        inside = [*ancestors(roots, lambda node: node in self.each.loads or node in of_row)]
        for node in inside:
            if node.of_row and node not in of_row:
                self._value(node, of_row, "")
        code.lines += [f"  br label %before_{name}", f"before_{name}:", f"  br label %{name}", f"{name}:"]
        code.lines.append(f"  %j{phase} = phi i64 [0, %before_{name}], [%next_j{phase}, %{name}]")
        for index, _ in enumerate(sums):
            zero = code.number(0)
            total = f"%sum{phase}_{index}"
            code.lines.append(f"  {total} = phi {code.type} [{zero}, %before_{name}], [{total}_next, %{name}]")
        known = dict(of_row)
        for node in inside:
            if node not in known:
                self._value(node, known, f"%j{phase}")
        for index, node in enumerate(sums):
            value = known[node.args[0]]
            total = f"%sum{phase}_{index}"
            code.lines.append(f"  {total}_next = fadd reassoc {code.type} {total}, {value}")
        for place, node in self.each.stores if write else ():
            value = known[node]
            if place[0] == "sum":
                value = code.add(value, self._load(place, f"%j{phase}"))
            code.lines.append(f"  store {code.type} {value}, ptr {self._unit(place, f'%j{phase}')}, {self._tagged}")
        mark = len(self._loops)
        self._loops.append(f"!{mark} = distinct !{{!{mark}, !1, !2}}")
        code.lines += [
            f"  %next_j{phase} = add nuw nsw i64 %j{phase}, 1",
            f"  %more_j{phase} = icmp slt i64 %next_j{phase}, {units}",
            f"  br i1 %more_j{phase}, label %{name}, label %after_{name}, !llvm.loop !{mark}",
            f"after_{name}:",
        ]
        of_row |= {node: f"%sum{phase}_{index}_next" for index, node in enumerate(sums)}
        return f"after_{name}"

    def _value(self, node: Node, known: dict[Node, str], unit: str) -> None:
        """Compute a node from those it is made of."""
        code = self.code
        if node in self.each.loads:
            known[node] = self._load(self.each.loads[node], "0" if node.of_row else unit)
        elif node.op == "const":
            known[node] = code.number(node.value)
        elif node.op in ("add", "sub"):
            known[node] = self._sum_of(node, known, unit)
        else:
            known[node] = code.by_name[node.op](*(known[arg] for arg in node.args))

    def _sum_of(self, node: Node, known: dict[Node, str], unit: str) -> str:
        """A sum with a product is one operation, whoever else needs the product: the same in every pass."""
        code, (a, b) = self.code, node.args
        minus = node.op == "sub"
        if a.op == "mul" and a not in self.each.loads:
            x, y = (known[arg] for arg in self._factors(a, known, unit))
            return code.fma(x, y, code.neg(known[b]) if minus else known[b])
        if b.op == "mul" and b not in self.each.loads:
            x, y = (known[arg] for arg in self._factors(b, known, unit))
            return code.fma(code.neg(x) if minus else x, y, known[a])
        return code.by_name[node.op](known[a], known[b])

    def _factors(self, node: Node, known: dict[Node, str], unit: str) -> tuple[Node, ...]:
        for arg in node.args:
            if arg not in known:
                self._value(arg, known, unit)
        return node.args

    def _load(self, place: tuple[str, int, int], unit: str) -> str:
        tag = "" if unit == "0" else f", {self._tagged}"
        return self.code.emit(f"load {self.code.type}, ptr {self._unit(place, unit)}{tag}")

    def _unit(self, place: tuple[str, int, int], unit: str) -> str:
        return self.code.emit(f"getelementptr {self.code.type}, ptr {self.lanes[place]}, i64 {unit}")

    @property
    def _tagged(self) -> str:
        return f"align {self.bytes}, !llvm.access.group !0"


@cache
def _processor() -> dict[str, str]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten()}


@cache
def _has_fused() -> bool:
    """Without it a fused multiplication and addition is a function, and slow."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("fma") or features.get("neon"))


@cache
def _compiled(text: str) -> Compiled:
    processor = _processor()
    module = llvm.parse_assembly(text)
    module.verify()
    # One for each function: it is disposed of with the engine.
    machine = llvm.Target.from_default_triple().create_target_machine(**processor, opt=3, jit=True)
    made_for = f"{llvm.llvm_version_info} {machine.triple} {processor} {text}"
    folder = cache_folder()
    stored = folder and folder / hashlib.sha256(made_for.encode()).hexdigest()
    # Read once, before it is decided whether to optimise: what is compiled here is stored, and must be the fast code.
    code = _read(stored) if stored else None
    if code is None:
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = True
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    if stored:
        engine.set_object_cache(lambda _, made: _store(stored, made), lambda _: code)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *(ctypes.c_int64 for _ in range(5)))
    function: Any = kind(engine.get_function_address("pass"))
    function.engine = engine  # which has the memory of the code
    return function


def cache_folder() -> Path | None:
    """Where machine code is stored for other processes: ``multistable/code`` in the user's folder for caches.

    A folder of its own, since no one else may write to it, which need not hold for the other files that are kept.
    None where the user has no home, as in a container with a user that the system does not know.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not given.is_absolute():  # the XDG specification has relative paths ignored
        try:
            given = Path.home() / ".cache"
        except RuntimeError:
            return None
    return given / "multistable" / "code"


def _only_ours(folder: Path) -> bool:
    """Whether only this user can have put code there: whoever else could would have it run as this user."""
    if not hasattr(os, "geteuid"):
        return True
    about = folder.stat()
    return about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _store(path: Path, code: bytes) -> None:
    """Store code after its digest, in place of what is there, which other processes may be reading."""
    # Where nothing may be written, each process compiles for itself.
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _only_ours(path.parent):
            return
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    """The code that was stored, None where there is none that can be trusted: LLVM aborts at code that is damaged."""
    with contextlib.suppress(OSError):
        if _only_ours(path.parent):
            content = path.read_bytes()
            digest, code = content[:DIGEST], content[DIGEST:]
            if hashlib.sha256(code).digest() == digest:
                return code
    return None
