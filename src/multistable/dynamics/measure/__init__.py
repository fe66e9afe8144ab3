"""Reachable states (Algorithm 2), VAA and VAA*, their measure (Algorithm 1), attractors and Lyapunov exponents."""

from multistable.dynamics.measure.algorithm_1 import DivergedError, Measure, measure
from multistable.dynamics.measure.algorithm_2 import reachable_states
from multistable.dynamics.measure.exponents import Lyapunov, lyapunov
from multistable.dynamics.measure.settled_states import Attractors, attractors
from multistable.dynamics.measure.variability import vaa, vaa_star

__all__ = [
    "Attractors",
    "DivergedError",
    "Lyapunov",
    "Measure",
    "attractors",
    "lyapunov",
    "measure",
    "reachable_states",
    "vaa",
    "vaa_star",
]
