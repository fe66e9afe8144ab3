"""Two agents of one seed in a T-Maze, one of them warmed up: they play and learn together.

Run: python examples/t_maze.py [length] [episodes] [seed]
"""

import sys
import warnings

import torch

import multistable as ms
from multistable.rl import DRQN, Settings, TMaze, first_optimal, input_size, watch


def main(length: int = 10, episodes: int = 150, seed: int = 0) -> None:
    """Print return and optimality of both as they learn."""
    maze = TMaze(length)
    networks = [ms.RNN("gru", input_size(maze), 64, generator=torch.Generator().manual_seed(seed)) for _ in range(2)]
    # In a short maze targets may follow sooner, and steps be larger, than the paper's 20 episodes and 1e-3.
    settings = Settings(target_period=3, lr=3e-3)
    agents = DRQN(maze, networks, seeds=[seed, seed], warm=[False, True], settings=settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ms.WarmupWarning)  # the short histories of a maze are few: VAA cannot reach 1
        agents.prepare()
    print(f"T-Maze of length {length}: an optimal policy has return {maze.optimal_return} in {length + 1} steps")
    print("episode      classic    warmed up   VAA of both")
    evaluations = []
    for evaluation in watch(agents, episodes, evaluate_every=10, measure_every=50, stabilisation=2000):
        evaluations.append(evaluation)
        scores = "".join(
            f"{value:12.2f}{'*' if optimal else ' '}"
            for value, optimal in zip(evaluation.returns, evaluation.optimal or (), strict=True)
        )
        vaa = "" if evaluation.vaa is None else "   " + ", ".join(f"{value:.2f}" for value in evaluation.vaa)
        print(f"{evaluation.episode:7d}{scores}{vaa}", flush=True)
    print(f"first optimal (*) after episodes {first_optimal(evaluations)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
