"""Warmup: the paper's procedure (Algorithm 3), the default, a wanted VAA, and how each is verified."""

from multistable.dynamics.warmup.gradient_steps import WarmupDivergedError
from multistable.dynamics.warmup.history import WarmupCheck, WarmupHistory, WarmupStep
from multistable.dynamics.warmup.keep import Keep, KeepLook
from multistable.dynamics.warmup.run_warmup import WarmupWarning, warmup

__all__ = [
    "Keep",
    "KeepLook",
    "WarmupCheck",
    "WarmupDivergedError",
    "WarmupHistory",
    "WarmupStep",
    "WarmupWarning",
    "warmup",
]
