"""What an agent of any kind sees in an environment: the sequences of its warmup and its measure."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from multistable.arguments import check_callable, count, positive_integer

Act = Callable[[Any, Any], tuple[Any, Any]]
"""``(observation, memory) -> (action, memory)``; the memory is ``None`` at the start of an episode."""


def collect(environment: Any, act: Act | None = None, *, steps: int = 2048, seed: int = 0) -> list[Tensor]:
    """The observations of episodes in a Gymnasium environment, for :func:`warmup` and :func:`measure`.

    A network that reads observations is warmed up on them, a model with other parts around its recurrent ones while it
    plays, whatever these parts read::

        ms.warmup(rnn, collect(environment))
        ms.warmup(model, [environment], forward=lambda model, environment: collect(environment, model.act))

    Args:
        environment: one environment, not a vector of them. It is reset, played and reset again.
        act: the policy. When not given, actions are drawn at random.
        steps: how many steps are played; the last episode may be cut off.
        seed: of the first reset, and of random actions.

    Returns:
        Of each episode the observations that were acted on, flattened: ``(time, features)``.
    """
    from gymnasium import spaces  # Only here: the rest of multistable.rl does without.

    steps, seed = positive_integer("steps", steps), count("seed", seed)
    if not all(hasattr(environment, name) for name in ("reset", "step", "observation_space", "action_space")):
        raise TypeError(f"environment must be a Gymnasium environment, got {type(environment).__name__}")
    if hasattr(environment, "num_envs"):
        raise TypeError(f"environment must be a single environment, got {environment.num_envs} in a vector")
    if act is None:
        actions = copy.deepcopy(environment.action_space)
        actions.seed(seed)
        act = lambda observation, memory: (actions.sample(), memory)  # noqa: E731
    check_callable("act", act, "called as act(observation, memory)")
    episodes: list[list[Tensor]] = []
    over, memory = True, None
    for step in range(steps):
        if over:
            observation, _ = environment.reset(seed=None if step else seed)
            episodes.append([])
            memory = None
        seen = spaces.flatten(environment.observation_space, observation)
        episodes[-1].append(torch.as_tensor(seen, dtype=torch.float32).reshape(-1))
        action, memory = act(observation, memory)
        observation, _, terminated, truncated, _ = environment.step(action)
        over = terminated or truncated
    environment.reset()
    return [torch.stack(episode) for episode in episodes]
