"""Biases with which units keep a wanted share of their past."""

from typing import Any, cast

from torch import Tensor

from multistable.cells.base import KeepGate
from multistable.dynamics.prepare.drawn import New
from multistable.networks.gates import Gates

KEEPS = "a gate that keeps the past (Cell.keep_gate)"


def keeps(cell: Any) -> bool:
    """Whether a cell, or a kind of cell, has such a gate."""
    return cell.keep_gate is not None


def keep_gate_at(logits: Tensor, gates: Gates) -> New:
    """The biases with which a cell without input and state keeps the share sigmoid(``logits (..., hidden)``).

    A gate that says how much of the candidate a unit takes is set to the share that it does not keep. Of two biases of
    a gate the second becomes zero.
    """
    keep, biases = cast(KeepGate, gates.cell.keep_gate), gates.biases()
    wanted = {keep.place: keep.sign * logits} | ({} if keep.input is None else {keep.input: -logits})
    for place, value in wanted.items():
        first, *second = biases[place]
        yield first, value
        for bias in second:
            yield bias, 0.0
