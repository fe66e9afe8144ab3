"""Measure how many attractors a recurrent network can reach, and create them before training."""

from multistable.cells import BRC, CELLS, GRU, LSTM, MGU, NBRC, Cell, ChronoLSTM, Hidden, HiddenAndMemory
from multistable.dynamics.advise import Advice, advise
from multistable.dynamics.measure import (
    Attractors,
    Change,
    Continuation,
    DivergedError,
    FixedPoints,
    Lyapunov,
    Measure,
    Portrait,
    attractors,
    continuation,
    fixed_points,
    lyapunov,
    measure,
    reachable_states,
    vaa,
    vaa_star,
)
from multistable.dynamics.system import backends, recurrent_parts
from multistable.dynamics.warmup import WarmupDivergedError, WarmupHistory, WarmupStep, WarmupWarning, warmup
from multistable.networks import RNN, Bidirectional, Double, Ensemble, doubled, from_torch, precompile, to_torch
from multistable.scan import check, engine

__version__ = "0.1.0"

__all__ = [
    "BRC",
    "CELLS",
    "GRU",
    "LSTM",
    "MGU",
    "NBRC",
    "RNN",
    "Advice",
    "Attractors",
    "Bidirectional",
    "Cell",
    "Change",
    "ChronoLSTM",
    "Continuation",
    "DivergedError",
    "Double",
    "Ensemble",
    "FixedPoints",
    "Hidden",
    "HiddenAndMemory",
    "Lyapunov",
    "Measure",
    "Portrait",
    "WarmupDivergedError",
    "WarmupHistory",
    "WarmupStep",
    "WarmupWarning",
    "advise",
    "attractors",
    "backends",
    "check",
    "continuation",
    "doubled",
    "engine",
    "fixed_points",
    "from_torch",
    "lyapunov",
    "measure",
    "precompile",
    "reachable_states",
    "recurrent_parts",
    "to_torch",
    "vaa",
    "vaa_star",
    "warmup",
]
