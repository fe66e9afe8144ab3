"""Warm up the recurrent part of an agent of sb3-contrib and of one of torchrl, before they learn.

Run: pip install sb3-contrib torchrl, then python examples/warm_up_other_agents.py

What is warmed up is an ordinary ``torch.nn.LSTM``; what it takes is the sequences that it will see, here those of an
agent that acts at random.
"""

import gymnasium
import torch
from torch import Tensor

import multistable as ms


def random_observations(env: gymnasium.Env, episodes: int, steps: int) -> list[Tensor]:
    """Observations of random episodes, each ``(time, size)``, discrete ones as one-hot vectors."""
    sequences = []
    for seed in range(episodes):
        env.action_space.seed(seed)
        observations = [env.reset(seed=seed)[0]]
        while len(observations) < steps:
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            observations.append(observation)
            if terminated or truncated:
                break
        flat = [gymnasium.spaces.flatten(env.observation_space, o) for o in observations]
        sequences.append(torch.stack([torch.as_tensor(o, dtype=torch.float32) for o in flat]))
    return sequences


def with_sb3(observations: list[Tensor]) -> None:
    """``RecurrentPPO`` keeps an LSTM for the actor, and one more for the critic."""
    from sb3_contrib import RecurrentPPO  # type: ignore[import-not-found]

    env = gymnasium.make("multistable.rl.environment:multistable/TMaze-v0", length=20)
    model = RecurrentPPO("MlpLstmPolicy", env, n_steps=64, seed=0)
    lstm = model.policy.lstm_actor  # a torch.nn.LSTM
    before = ms.measure(lstm, observations).vaa
    ms.warmup(lstm, observations)
    print(f"sb3-contrib, lstm_actor: VAA {before:.3f} -> {ms.measure(lstm, observations).vaa:.3f}")
    model.learn(total_timesteps=128)
    print("  and it learns as before")


def with_torchrl(observations: list[Tensor]) -> None:
    """``LSTMModule`` keeps its LSTM as ``.lstm``; ``GRUModule`` its GRU as ``.gru``."""
    from tensordict import TensorDict  # type: ignore[import-not-found]
    from torchrl.modules import LSTMModule  # type: ignore[import-not-found]

    torch.manual_seed(0)
    module = LSTMModule(input_size=4, hidden_size=128, in_key="observation", out_key="embedding")
    before = ms.measure(module.lstm, observations).vaa
    ms.warmup(module.lstm, observations)
    print(f"torchrl, LSTMModule.lstm: VAA {before:.3f} -> {ms.measure(module.lstm, observations).vaa:.3f}")
    state = torch.zeros(1, 1, 128)
    step = TensorDict(
        {
            "observation": observations[0][:1],
            "recurrent_state_h": state,
            "recurrent_state_c": state,
            "is_init": torch.ones(1, 1, dtype=torch.bool),
        },
        [1],
    )
    print(f"  and it embeds as before: {tuple(module(step)['embedding'].shape)}")


def main() -> None:
    """Both, on a T-Maze of length 20."""
    env = gymnasium.make("multistable.rl.environment:multistable/TMaze-v0", length=20)
    observations = random_observations(env, episodes=300, steps=60)
    with_sb3(observations)
    with_torchrl(observations)


if __name__ == "__main__":
    main()
