"""Agents of sb3-contrib: the recurrent networks of a ``RecurrentPPO`` on the histories that the agent lives through."""

from typing import Any

import torch
from torch.utils._pytree import tree_map

from multistable.arguments import positive_integer
from multistable.dynamics.measure import measure
from multistable.dynamics.system.reading import global_randomness_kept
from multistable.dynamics.warmup import warmup
from multistable.extras import missing

try:
    from sb3_contrib.common.recurrent.type_aliases import RNNStates
except ImportError as error:
    raise missing("warming up agents of sb3-contrib", "sb3-contrib") from error


def warm_up_agent(agent: Any, *, env_steps: int = 2048, **options: Any) -> Any:
    """Warm up the recurrent networks of a ``RecurrentPPO``, in place, on episodes of its present policy.

    Call it before ``agent.learn``. The environments are played and reset; nothing else of the agent changes.

    Args:
        agent: the agent.
        env_steps: how many steps each of its environments is played. Every episode is a sequence.
        options: see :func:`multistable.warmup`.

    Returns:
        What :func:`multistable.warmup` returns, for the networks of actor and critic a dict.
    """
    return warmup(agent.policy, [episodes(agent, env_steps)], forward=run, **options)


def measure_agent(agent: Any, *, env_steps: int = 2048, **options: Any) -> Any:
    """Measure the VAA of the recurrent networks of a ``RecurrentPPO``; arguments as for :func:`warm_up_agent`."""
    return measure(agent.policy, [episodes(agent, env_steps)], forward=run, **options)


def episodes(agent: Any, steps: int) -> dict[str, Any]:
    """What a batch of the agent's training has: ``steps`` steps in each environment, environment by environment."""
    positive_integer("steps", steps)
    env, modes = agent.get_env(), [(module, module.training) for module in agent.policy.modules()]
    if env is None:
        raise ValueError("agent must have an environment to play in: agent.set_env(env)")
    seen, acted, starts = [], [], []
    state, start = None, torch.ones(env.num_envs)
    with global_randomness_kept():
        observation = env.reset()
        for _ in range(steps):
            action, state = agent.predict(observation, state, start.numpy().astype(bool))
            seen.append(agent.policy.obs_to_tensor(observation)[0])
            acted.append(torch.as_tensor(action))
            starts.append(start)
            observation, _, done, _ = env.step(action)
            start = torch.as_tensor(done).float()
        env.reset()
    for module, training in modes:
        module.training = training
    agent._last_obs = None  # so that learning begins with a reset of the environments

    def by_environment(*values: Any) -> Any:
        return torch.stack(values, dim=1).flatten(0, 1)

    lstm = agent.policy.lstm_actor
    zero = next(lstm.parameters()).new_zeros(lstm.num_layers, env.num_envs, lstm.hidden_size)
    return {
        "obs": tree_map(by_environment, *seen),
        "actions": by_environment(*acted),
        "lstm_states": RNNStates((zero, zero), (zero, zero)),
        "episode_starts": by_environment(*starts),
    }


def run(policy: Any, batch: dict[str, Any]) -> Any:
    """Run a policy on a batch of :func:`episodes`, as in training."""
    return policy.evaluate_actions(**batch)
