"""Warm up the networks of sb3-contrib's RecurrentPPO before it learns.

pip install ".[sb3]"
python examples/warm_up_sb3.py
"""

from typing import Any

from sb3_contrib import RecurrentPPO

from multistable.integrations.sb3 import measure_agent, warm_up_agent


def main(timesteps: int = 2000, hidden_size: int = 32, env_steps: int = 2048, **warmup: Any) -> Any:
    """Warm up an agent, and let it learn. Further arguments are those of the warmup."""
    agent = RecurrentPPO(
        "MlpLstmPolicy", "CartPole-v1", seed=0, device="cpu", policy_kwargs={"lstm_hidden_size": hidden_size}
    )
    histories = warm_up_agent(agent, env_steps=env_steps, **warmup)  # of lstm_actor and lstm_critic
    agent.learn(timesteps)
    print({name: (histories[name].vaa, after.vaa) for name, after in measure_agent(agent, env_steps=env_steps).items()})
    return agent


if __name__ == "__main__":
    main()
