"""Reachable states (Algorithm 2), VAA and VAA*, their measure (Algorithm 1), attractors and Lyapunov exponents."""

from multistable.dynamics.measure.algorithm_1_measure import DivergedError, Measure, measure
from multistable.dynamics.measure.algorithm_2_reachable_states import reachable_states
from multistable.dynamics.measure.course_of_attractors import Change, Continuation, continuation
from multistable.dynamics.measure.labels import Portrait
from multistable.dynamics.measure.lyapunov_exponents import Lyapunov, lyapunov
from multistable.dynamics.measure.named_attractors import Attractors, attractors
from multistable.dynamics.measure.noise import Robustness, robustness
from multistable.dynamics.measure.search_fixed_points import FixedPoints, fixed_points
from multistable.dynamics.measure.vaa_and_vaa_star import vaa, vaa_star

__all__ = [
    "Attractors",
    "Change",
    "Continuation",
    "DivergedError",
    "FixedPoints",
    "Lyapunov",
    "Measure",
    "Portrait",
    "Robustness",
    "attractors",
    "continuation",
    "fixed_points",
    "lyapunov",
    "measure",
    "reachable_states",
    "robustness",
    "vaa",
    "vaa_star",
]
