"""A pass of a program over buffers: compiled where llvmlite is installed, else in operations of PyTorch."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from multistable.scan.program.nodes import TORCH, Node, ancestors
from multistable.scan.program.stages import Pass, Place

Buffers = dict[tuple[str, int], Tensor]
"""By their names: ``(times, [N,] n, columns)``; but weights, which have no time, and 1 in place of n or nothing."""

Run = Callable[[int, int, int], None]
"""Runs a pass at times from the first to the one to stop before, this far apart."""

WORTH_A_THREAD = 4_000_000
"""Elements times steps of a pass over all times for each thread: some milliseconds, since PyTorch's own threads still
hold the processors for as long after an operation, waiting for the next."""

SPREAD_BY_PYTORCH = 32_768
"""Elements above which PyTorch's own operations, with more threads than ``FEW_THREADS``, beat one compiled pass."""

FEW_THREADS = 4


class Shape(NamedTuple):
    """Of a field of the state."""

    members: int
    rows: int
    units: int


def make_pass(each: Pass, buffers: Buffers, shape: Shape) -> Run:
    """The pass over these buffers."""
    many = shape.members * shape.rows * shape.units > SPREAD_BY_PYTORCH and torch.get_num_threads() > FEW_THREADS
    compiler = compiler_of_passes()
    return _interpreted(each, buffers, shape) if compiler is None or many else _compiled(compiler, each, buffers, shape)


@cache
def compiler_of_passes() -> Any:
    """The module that compiles passes; None without llvmlite, or with one that is too old."""
    try:
        from multistable.scan.cpu import compiled
    except ImportError:
        return None
    return compiled if compiled.usable() else None


def _interpreted(each: Pass, buffers: Buffers, shape: Shape) -> Run:
    """As a function of Python that has one operation a line; views and constants are made once."""
    names: dict[Any, str] = {}
    known: dict[str, Any] = {f"do_{op}": function for op, function in TORCH.items()}
    lines = ["def run(start, stop, step):", " for t in range(start, stop, step):"]

    def part(place: Place) -> str:
        """The expression of a lane at time t."""
        name, number, lane = place
        tensor, view = buffers[name, number].detach(), "_".join(map(str, place))
        if name != "weight" or (tensor.dim() and tensor.shape[-1] >= shape.units):
            tensor = tensor[..., lane * shape.units : (lane + 1) * shape.units]
        known[view] = tensor if name == "weight" else tensor.unbind(0)
        return view if name == "weight" else f"{view}[(t + {int(name == 'after')}) % {len(tensor)}]"

    def memory(place: Place) -> tuple[Any, ...]:
        name, number, lane = place
        return buffers[name, number].data_ptr(), lane, name == "after"

    like = next(iter(buffers.values()))
    read = {memory(place) for place in each.loads.values()}
    targets: dict[Node, Place] = {}
    copied: list[tuple[Place, Node]] = []
    for place, node in each.stores:
        # At once where that overwrites nothing that is still to be read, else after all has been computed.
        at_once = node.op in TORCH and not node.of_row and place[0] != "sum" and memory(place) not in read
        if at_once and node.op not in ("sum", "detach") and node not in each.loads and node not in targets:
            targets[node] = place
        else:
            copied.append((place, node))
    for node in ancestors([node for _, node in each.stores], each.loads.__contains__):
        value = names[node] = f"v{len(names)}"
        if node in each.loads:
            lines.append(f"  {value} = {part(each.loads[node])}")
        elif node.op == "const":
            known[value] = like.new_full((), node.value)
        else:
            given = [names[arg] for arg in node.args]
            if node.op == "pow":
                given[1] = repr(node.args[1].value)
            given += [f"out={part(targets[node])}"] if node in targets else []
            lines.append(f"  {value} = do_{node.op}({', '.join(given)})")
    lines += [f"  {names[node]} = {names[node]}.clone()" for _, node in copied if node in each.loads]
    for place, node in copied:
        lines.append(f"  {part(place)}.{'add_' if place[0] == 'sum' else 'copy_'}({names[node]})")
    exec("\n".join(lines), known)
    run: Run = known["run"]
    return run


def _compiled(compiler: Any, each: Pass, buffers: Buffers, shape: Shape) -> Run:
    used = [(name, _in_rows(name, buffers[name, number], shape)) for name, number in compiler.buffers_of(each)]
    size = used[0][1].element_size()
    function = compiler.compiled(each, double=size == 8)
    fields = [shape.units, shape.rows]
    for name, tensor in used:
        apart, times = (0, 1) if name == "weight" else (tensor.stride(0), len(tensor))
        fields += [tensor.data_ptr(), apart * size, times, tensor.stride(-2) * size]
    description = np.array(fields, dtype=np.int64)
    address, rows = description.ctypes.data, shape.members * shape.rows
    threads = min(torch.get_num_threads(), rows)

    def run(start: int, stop: int, step: int, alive: Any = (description, used)) -> None:
        if threads == 1 or rows * shape.units * abs(stop - start) < 2 * WORTH_A_THREAD:
            function(address, start, stop, step, 0, rows)
        else:
            spread(start, stop, step)

    def spread(*times: int) -> None:
        count = min(threads, rows * shape.units * abs(times[1] - times[0]) // WORTH_A_THREAD)
        limits = [rows * part // count for part in range(count + 1)]
        # Not saved for the next call: threads do not survive a fork.
        with ThreadPoolExecutor(count - 1) as pool:
            first, *others = pairwise(limits)
            parts = [pool.submit(function, address, *times, *other) for other in others]
            function(address, *times, *first)
            for part in parts:
                part.result()

    return run


def _in_rows(name: str, tensor: Tensor, shape: Shape) -> Tensor:
    """Rows that lie behind each other, copied only if they do not; of weights one for each member."""
    if name == "weight":
        width = tensor.shape[-1] if tensor.dim() else 1
        return tensor.detach().reshape(-1, width).contiguous().expand(shape.members, width)
    return tensor.contiguous()
