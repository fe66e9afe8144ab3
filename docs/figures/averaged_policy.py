"""How agents stay at what they have learned in a long T-Maze: their weights as they are, and a running mean of them.

    python docs/figures/averaged_policy.py --train         # stored in averaged_policy.json as it goes
    python docs/figures/averaged_policy.py                 # from what is stored

Warmed-up agents with the defaults of the authors' command line (two layers of 32 units). Both policies are those of the
same agents: a mean of the weights has no influence on how they learn.
"""

import argparse
import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from multistable.experiments.archive import rounded
from multistable.experiments.figures import png
from multistable.experiments.paper.tmaze import of_the_command_line
from multistable.rl import Evaluator, Maze
from multistable.rl.group import AgentGroup

RESULTS = Path(__file__).parents[1] / "results"
STORED = RESULTS / "averaged_policy.json"
POLICIES = {"as they are": "tab:orange", "running mean": "tab:blue"}
SETTLED = 1000
"""The table is about what comes after so many episodes."""


def course(cell: str, length: int, seeds: int, episodes: int, averaged: int) -> Iterator[dict[str, Any]]:
    """The evaluations of both policies, every 20 episodes."""
    config = replace(of_the_command_line(Maze(length), cell, "warmup"), averaged_episodes=averaged)
    group = AgentGroup([replace(config, seed=seed) for seed in range(seeds)], torch.device("cpu"))
    group.initialise(lambda *_: None)
    plain = copy.copy(group.agents)
    plain.acting = plain.network
    evaluators = dict(zip(POLICIES, (Evaluator(plain), Evaluator(group.agents)), strict=True))
    for episode in group.agents.train(episodes):
        if episode.number % config.evaluate_every == 0:
            found = {name: evaluator.evaluate() for name, evaluator in evaluators.items()}
            yield {"episode": episode.number} | {
                name: {"return": each.returns, "length": each.lengths, "optimal": each.optimal}
                for name, each in found.items()
            }


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each policy, of the evaluations after ``SETTLED`` episodes."""
    late = [row for row in rows if row["episode"] > SETTLED]
    lines = [
        "| weights | mean return | lowest | return of 4 | steps | optimal |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in POLICIES:
        values = {key: np.array([row[name][key] for row in late]) for key in ("return", "length", "optimal")}
        returns, reached = values["return"], values["return"] > 3.999
        lines.append(
            f"| {name} | {returns.mean():.2f} | {returns.min():.2f} | {reached.sum()} of {reached.size} "
            f"| {np.median(values['length'][reached]):.1f} | {values['optimal'].sum()} of {reached.size} |"
        )
    return lines


def picture(rows: Sequence[dict[str, Any]]) -> Figure:
    """The return of each agent by both policies."""
    agents = len(rows[0]["as they are"]["return"])
    figure, axes = plt.subplots(1, agents, figsize=(2.6 * agents, 2.4), layout="constrained", sharey=True)
    for index, axis in enumerate(axes):
        for name, colour in POLICIES.items():
            returns = [row[name]["return"][index] for row in rows]
            axis.plot([row["episode"] for row in rows], returns, color=colour, linewidth=1, label=name)
        axis.set(title=f"seed {index}", xlabel="episodes", ylim=(-12, 5))
    axes[0].set_ylabel("return of the greedy policy")
    axes[0].legend(title="weights", fontsize=7, title_fontsize=7)
    return figure


def main() -> None:
    """Train where asked for, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--cell", default="gru")
    parser.add_argument("--L", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=1500)
    parser.add_argument("--averaged", type=int, default=33)
    asked = parser.parse_args()
    if asked.train:
        torch.set_num_threads(1)
        rows = []
        for row in course(asked.cell, asked.L, asked.seeds, asked.episodes, asked.averaged):
            rows.append(json.dumps(rounded(row, 4), separators=(",", ":")))
            STORED.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    rows = json.loads(STORED.read_text())
    png(picture(rows), RESULTS / "tmaze_averaged_policy.png")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
