"""Ways to prepare a network for training, side by side: the warmups, and initialisations that others proposed."""

from multistable.dynamics.prepare.run_prepare import Preparation, prepare

__all__ = ["Preparation", "prepare"]
