"""Warmup: the paper's procedure (Algorithm 3), the default, a wanted VAA, and how each is verified."""

from multistable.dynamics.warmup.entry import WarmupWarning, warmup
from multistable.dynamics.warmup.history import WarmupCheck, WarmupHistory, WarmupStep
from multistable.dynamics.warmup.warming import WarmupDivergedError

__all__ = ["WarmupCheck", "WarmupDivergedError", "WarmupHistory", "WarmupStep", "WarmupWarning", "warmup"]
