"""Whether to warm up a network for the task at hand: probes of the network and of its targets, and what they say."""

from multistable.dynamics.advise.advice import Advice
from multistable.dynamics.advise.run_advise import advise

__all__ = ["Advice", "advise"]
