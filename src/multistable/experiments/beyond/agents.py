"""PPO with classic networks, warmed-up ones and double layers, where people try agents with a memory."""

from dataclasses import replace
from itertools import product
from typing import Any

from multistable.experiments.course_pictures import Beside
from multistable.experiments.experiment import Experiment
from multistable.experiments.paper.grids import THREE_VERSIONS
from multistable.experiments.scales import Scale
from multistable.rl import (
    AgentConfig,
    AgentTask,
    MaskedCartPole,
    Maze,
    PassiveMaze,
    RepeatFirst,
    RepeatPrevious,
)

NEEDS: dict[AgentTask, str] = {
    PassiveMaze(100): "the first input",
    RepeatFirst(): "the first input, at every step",
    RepeatPrevious(): "the last four inputs, in order",
    PassiveMaze(50): "the first input",
    Maze(10): "the first input, and to walk",
    MaskedCartPole(): "the last two inputs",
    PassiveMaze(500): "the first input",
}
"""What is played, in the order in which it is run, and what playing it well takes."""

USUAL: dict[str, Any] = {
    **{"algorithm": "ppo", "num_layers": 1, "hidden_size": 128, "action_input": False},
    **{"episodes": 2560, "copies": 64, "evaluate_every": 320, "vaa_every": 640, "learning_rate": 3e-3},
    **{"warmup_algorithm": "fast", "warmup_batch_size": 32},
}
"""Settings of all agents. The previous action is no input: an agent could note in it what it has seen."""

OTHERWISE: dict[AgentTask, dict[str, Any]] = {
    MaskedCartPole(): {
        **{"episodes": 1280, "copies": 16, "evaluate_every": 160, "vaa_every": 320, "learning_rate": 1e-2},
        **{"value_weight": 0.005, "entropy_weight": 0.0},
    },
}
"""Settings of the agents of a task that are not those of the others. Values of CartPole are large, up to 100."""

LONGEST = 100
"""The longest corridor at the scale small."""

MEASURE = {"vaa_batches": 2, "stabilisation": 1000, "max_stabilisation": 200}

SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "agent_seeds": 5,
        "agents": MEASURE,
        "tasks": lambda task: task,
        "keeps": lambda config: getattr(config.task, "L", 0) <= LONGEST,
    },
    "smoke": {
        "agents": {
            **{"episodes": 4, "evaluate_every": 2, "vaa_every": 2, "copies": 2, "passes": 1, "minibatches": 2},
            **{"vaa_batches": 1, "vaa_batch_size": 2, "stabilisation": 50},
            **{"warmup_steps": 4, "warmup_batch_size": 8, "max_stabilisation": 10},
        },
        "tasks": lambda task: replace(task, L=3) if hasattr(task, "L") else task,
    },
}
"""What is not as at the shared scale, by the name of the scale."""


def sized(scale: Scale) -> Scale:
    """The sizes at a scale: at the scale small five seeds, and what is played as at the paper's scale."""
    own = SIZES.get(scale.name, {})
    precision = {"precision": scale.agents["precision"]} if "precision" in scale.agents else {}
    return replace(scale, **own | {"agents": own.get("agents", {}) | precision})


EXPERIMENTS = (
    Experiment(
        name="agents",
        order=2,
        labels=(),
        title="Agents that learn by PPO: tasks that need long memory and tasks that do not",
        runs=tuple(
            AgentConfig(task, cell, version, **USUAL | OTHERWISE.get(task, {}))
            for task, cell, version in product(NEEDS, ("gru", "lstm"), THREE_VERSIONS)
        ),
        pictures=(
            Beside(
                name="learning",
                caption="Return of the greedy policy, and VAA for new episodes: mean and standard deviation.",
                needs=NEEDS,
            ),
        ),
        claims=(),
        sized=sized,
    ),
)
