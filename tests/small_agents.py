"""An agent whose training takes a moment."""

from multistable.rl import AgentConfig, Maze

# In float64: the compiled loop of float32 takes seconds to load.
SMALL = {
    "task": Maze(2),
    "cell": "gru",
    "hidden_size": 6,
    "num_layers": 1,
    "episodes": 5,
    "evaluate_every": 2,
    "vaa_every": 4,
    "capacity": 40,
    "target_period": 3,
    "gradient_steps": 2,
    "batch_size": 5,
    "vaa_batches": 2,
    "vaa_batch_size": 4,
    "stabilisation": 50,
    "warmup_steps": 3,
    "warmup_batch_size": 8,
    "max_stabilisation": 10,
    "dtype": "float64",
}


def small_agent(**changes):
    return AgentConfig(**SMALL | changes)
