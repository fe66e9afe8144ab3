"""The arguments of agents, checked."""

import operator
from collections.abc import Iterable
from typing import Any

from torch import nn

from multistable.networks import RNN
from multistable.rl.pomdp import input_size


def seeds_of(given: Any) -> list[int]:
    """The seeds of agents, as they are given, checked."""
    try:
        return [operator.index(seed) for seed in given]
    except TypeError:
        raise TypeError(f"seeds must be a list of integers, one for each agent, got {given!r}") from None


def flags_of(given: Any) -> list[bool]:
    """``warm`` of agents, where it is not one value for all, checked."""
    flags: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(flag, bool) for flag in flags):
        raise TypeError(f"warm must be True or False, or a list of these, one for each agent, got {given!r}")
    return flags


def check_agents(network: nn.Module, count: int, agents: Any) -> None:
    """Check that the arguments of ``agents`` fit each other, and ``count`` networks such as ``network``."""
    also = agents.settings.inputs
    inputs = input_size(agents.pomdp, **also)
    read = "the previous action, " * also["action_input"] + "the observation"
    read += " and the previous reward" * also["reward_input"]
    for name, values in (("seeds", agents.seeds), ("warm", agents.warm)):
        if len(values) != count:
            raise ValueError(f"{name} must have one entry for each of {count} agents, got {len(values)}")
    given = getattr(network, "input_size", inputs)
    if given != inputs:
        raise ValueError(f"networks must have input_size = {inputs}, for {read}, got {given}")
    like = next(network.parameters())
    if (like.device, like.dtype) != (agents.pomdp.device, agents.pomdp.dtype):
        raise ValueError(
            f"networks must be {agents.pomdp.dtype} on {agents.pomdp.device} as the pomdp is, "
            f"got {like.dtype} on {like.device}"
        )


def networks_of(given: Any) -> list[RNN]:
    """The networks of :class:`DRQN`."""
    members = list(given) if isinstance(given, Iterable) else []
    if not members or not all(isinstance(member, RNN) for member in members):
        kinds = ", ".join(sorted({type(member).__name__ for member in members})) or "nothing"
        got = f"{type(given).__name__} of {kinds}" if isinstance(given, Iterable) else type(given).__name__
        raise TypeError(f"networks must be a list of ms.RNN, one for each agent, or an ms.Ensemble of them, got {got}")
    return members
