"""Uniform gate initialisation: the shares that units keep are uniform (Gu et al., 2020)."""

from multistable.dynamics.prepare.drawn import Drawn, New
from multistable.dynamics.prepare.keeping import KEEPS, keep_gate_at, keeps
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.sequences import SequenceSet
from multistable.networks.gates import Gates


def draw(gates: Gates, draws: Draws, data: SequenceSet) -> New:
    """Biases with which the share of its past that each of d units keeps is drawn from U(1/d, 1 - 1/d).

    They are those of the gate that keeps the past, and of the gate that lets the input in, its complement; other biases
    stay as they are.
    """
    d = gates.cell.hidden_size
    if d < 2:
        raise ValueError(f"method 'uniform-gates' is for two units or more, got hidden_size = {d}")
    return keep_gate_at((1 / d + (1 - 2 / d) * draws.uniform(d)).logit(), gates)


uniform_gates = Drawn(
    "uniform-gates",
    needs=KEEPS,
    fits=keeps,
    draw=draw,
)
