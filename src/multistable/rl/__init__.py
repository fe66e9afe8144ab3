"""Reinforcement learning under partial observability (section 4.3, appendices B to D): T-Maze, replay, DRQN, PPO."""

from multistable.rl.agent_tasks import AgentTask, MaskedCartPole, Maze, PassiveMaze, RepeatFirst, RepeatPrevious
from multistable.rl.config import AgentConfig
from multistable.rl.drqn import DRQN, Episode
from multistable.rl.evaluation import Evaluation, Evaluator, first_optimal, greedy_policy, network_vaa, watch
from multistable.rl.group import AgentGroup
from multistable.rl.histories import collect
from multistable.rl.passive_tmaze import PassiveTMaze
from multistable.rl.pomdp import POMDP, Outcome, input_size
from multistable.rl.ppo import PPO, PPOSettings, Update
from multistable.rl.replay import Replay
from multistable.rl.settings import Settings
from multistable.rl.tmaze import TMaze

__all__ = [
    "DRQN",
    "POMDP",
    "PPO",
    "AgentConfig",
    "AgentGroup",
    "AgentTask",
    "Episode",
    "Evaluation",
    "Evaluator",
    "MaskedCartPole",
    "Maze",
    "Outcome",
    "PPOSettings",
    "PassiveMaze",
    "PassiveTMaze",
    "RepeatFirst",
    "RepeatPrevious",
    "Replay",
    "Settings",
    "TMaze",
    "Update",
    "collect",
    "first_optimal",
    "greedy_policy",
    "input_size",
    "network_vaa",
    "watch",
]
