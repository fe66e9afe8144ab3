"""A network as a dynamical system: reachable states, VAA and VAA*, warmup."""

from multistable.dynamics.history import WarmupHistory, WarmupStep
from multistable.dynamics.measure import DivergedError, Measure, measure
from multistable.dynamics.states import reachable_states
from multistable.dynamics.system import backends
from multistable.dynamics.vaa import vaa, vaa_star
from multistable.dynamics.warmup import WarmupDivergedError, WarmupWarning, warmup

__all__ = [
    "DivergedError",
    "Measure",
    "WarmupDivergedError",
    "WarmupHistory",
    "WarmupStep",
    "WarmupWarning",
    "backends",
    "measure",
    "reachable_states",
    "vaa",
    "vaa_star",
    "warmup",
]
