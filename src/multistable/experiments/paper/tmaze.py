"""T-Maze, in sections 5.3 and 6.2: agents that have to remember, without and with warmup."""

from itertools import product

from multistable.experiments.agent_pictures import Courses, FirstOptimal
from multistable.experiments.experiment import Experiment, cell_of
from multistable.experiments.paper.grids import MAZES, WARMED
from multistable.experiments.pictures import Curves
from multistable.rl import AgentConfig, Maze

KINDS = (*product(WARMED, ("classic", "warmup")), ("brc", "classic"), ("nbrc", "classic"))
"""The cells and versions of fig:tmaze_warmup."""

WINDOW = 10

PICTURES = (
    Courses(
        name="return",
        caption="Mean non-discounted return of the greedy policy, of both layouts; of each agent the running "
        f"mean over {WINDOW} evaluations.",
        window=WINDOW,
    ),
    Courses(name="vaa", caption="VAA for the histories of the replay buffer.", quantity="vaa"),
    FirstOptimal(
        name="first_optimal",
        caption="Episodes until an evaluation first saw the optimal policy; paler, and a lower bound, where an "
        "agent never had it (a cross at its last episode).",
    ),
)


def of_the_command_line(maze: Maze, cell: str, version: str) -> AgentConfig:
    """An agent with the defaults of the command line of the authors' code, where these are not in the paper's text.

    T_max is three times the length of the paper's maze, also at scales with shorter ones.
    """
    options = {"t_max": maze.horizon} if cell == "chrono" else {}
    return AgentConfig(
        maze, cell, version, hidden_size=32, reward_input=True, warmup_batch_size=32, cell_options=options
    )


EXPERIMENTS = (
    Experiment(
        name="tmaze-gru",
        order=15,
        labels=("fig:tmaze200_gru",),
        title="T-Maze, L = 200: return and VAA of GRU agents, episode by episode",
        runs=(AgentConfig(MAZES[-1], "gru"),),
        pictures=(
            Curves(
                name="return_vaa",
                caption="Mean non-discounted return of the greedy policy, and VAA for the histories of the buffer.",
                quantities=("return", "vaa"),
                series=cell_of,
            ),
            Curves(
                name="each",
                caption="Each agent by itself.",
                quantities=("return", "vaa"),
                series=lambda config: f"seed {config.seed}",
            ),
        ),
        claims=("C7",),
    ),
    Experiment(
        name="tmaze-warmup",
        order=23,
        labels=("fig:tmaze_warmup",),
        title="T-Maze with and without warmup: return, and episodes until the policy is optimal",
        runs=tuple(AgentConfig(maze, cell, version=version) for maze in MAZES for cell, version in KINDS),
        pictures=PICTURES,
        claims=("C12",),
    ),
    # In the same place of the paper's order, after it. It bears on no claim: these are other agents than the paper's.
    Experiment(
        name="tmaze-32",
        order=23,
        labels=("fig:tmaze_warmup",),
        title="T-Maze with the defaults of the original command line: 32 units, the previous reward as an input, "
        "n = 32, T_max = 3 L",
        runs=tuple(of_the_command_line(maze, cell, version) for maze in MAZES for cell, version in KINDS),
        pictures=PICTURES,
        claims=(),
    ),
)
