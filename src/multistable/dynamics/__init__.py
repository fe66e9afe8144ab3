"""A network as a dynamical system: reachable states, VAA and VAA*, fixed points and cycles, exponents, warmup."""

from multistable.dynamics.attractors import Attractors, attractors
from multistable.dynamics.history import WarmupCheck, WarmupHistory, WarmupStep
from multistable.dynamics.lyapunov import Lyapunov, lyapunov
from multistable.dynamics.measure import DivergedError, Measure, measure
from multistable.dynamics.states import reachable_states
from multistable.dynamics.system import backends
from multistable.dynamics.vaa import vaa, vaa_star
from multistable.dynamics.warming import WarmupDivergedError
from multistable.dynamics.warmup import WarmupWarning, warmup

__all__ = [
    "Attractors",
    "DivergedError",
    "Lyapunov",
    "Measure",
    "WarmupCheck",
    "WarmupDivergedError",
    "WarmupHistory",
    "WarmupStep",
    "WarmupWarning",
    "attractors",
    "backends",
    "lyapunov",
    "measure",
    "reachable_states",
    "vaa",
    "vaa_star",
    "warmup",
]
