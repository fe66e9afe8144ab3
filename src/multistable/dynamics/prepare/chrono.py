"""Chrono initialisation: time scales that spread up to T_max (Tallec and Ollivier, 2018)."""

from multistable.arguments import positive_number
from multistable.dynamics.prepare.drawn import Drawn, New
from multistable.dynamics.prepare.keeping import KEEPS, keep_gate_at, keeps
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.sequences import SequenceSet
from multistable.networks.gates import Gates


def draw(gates: Gates, draws: Draws, data: SequenceSet, *, t_max: float | None = None) -> New:
    """b = log U(1, T_max - 1) for the gate that keeps the past, -b for a gate that lets the input in, else 0.

    A unit whose gate keeps a share k of its past forgets within 1 / (1 - k) steps, here within 1 + exp(b), if nothing
    else holds its value.

    Args:
        gates: the weights of the cell.
        draws: where the time scales are drawn from.
        data: the sequences.
        t_max: T_max; the length of the longest sequence when not given.
    """
    if t_max is None:
        t_max = float(data.lengths.max())
        if not t_max > 2:
            raise ValueError(f"sequences must be longer than 2 steps where t_max is not given, got {t_max:g}")
    elif not (t_max := positive_number("t_max", t_max)) > 2:
        raise ValueError(f"t_max must be greater than 2, got {t_max!r}")
    logits = (1 + (t_max - 2) * draws.uniform(gates.cell.hidden_size)).log()
    zero = [(bias, 0.0) for of_gate in gates.biases() for bias in of_gate]
    return [*zero, *keep_gate_at(logits, gates)]


chrono = Drawn(
    "chrono",
    needs=KEEPS,
    fits=keeps,
    draw=draw,
)
