"""How agents stay at what they have learned in a long T-Maze: with advantage learning or without, by which weights.

    python docs/figures/staying.py --train gru 0.9         # one case, stored in staying.json as it goes
    python docs/figures/staying.py                         # table, gaps and picture from what is stored

Warmed-up agents with the defaults of the authors' command line (two layers of 32 units). All policies of a case are
those of the same agents: a mean of the weights has no influence on how they learn. The case of ``gru 0`` was stored
with two policies and without gaps.
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
from action_gap import LEFT, RIGHT, gap, on_the_way
from matplotlib.figure import Figure

from multistable.experiments.archive import rounded
from multistable.experiments.figures import png
from multistable.experiments.paper.tmaze import of_the_command_line
from multistable.rl import Evaluator, Maze, TMaze, network_vaa
from multistable.rl.group import AgentGroup

RESULTS = Path(__file__).parents[1] / "results"
STORED = RESULTS / "staying.json"
LENGTH = 100
NAMES = {1: "as they are", 33: "mean of 33", 100: "mean of 100", 300: "mean of 300"}
"""The policies, by the episodes of the running means of their weights."""
COLOURS = {1: "tab:orange", 33: "tab:blue", 100: "tab:green", 300: "black"}


def warmed_up(cell: str, advantage: float, seeds: int) -> AgentGroup:
    """Agents that have not played yet."""
    config = replace(of_the_command_line(Maze(LENGTH), cell, "warmup"), advantage_learning=advantage)
    group = AgentGroup([replace(config, seed=seed) for seed in range(seeds)], torch.device("cpu"))
    group.initialise(lambda *_: None)
    return group


def course(cell: str, advantage: float, seeds: int, episodes: int) -> Iterator[dict[str, Any]]:
    """The evaluations of all policies, every 20 episodes."""
    group = warmed_up(cell, advantage, seeds)
    policies = {window: averaged(group.agents, window) for window in NAMES}
    evaluators = {window: Evaluator(agents) for window, agents in policies.items()}
    for episode in group.agents.train(episodes):
        for agents in policies.values():
            agents.episode = episode.number
            agents.average()
        if episode.number % group.shared.evaluate_every == 0:
            found = {window: evaluator.evaluate(warn=False) for window, evaluator in evaluators.items()}
            yield {"cell": cell, "advantage": advantage, "episode": episode.number} | {
                str(window): {"return": each.returns, "length": each.lengths} | gaps(policies[window])
                for window, each in found.items()
            }


def averaged(agents: Any, window: int) -> Any:
    """The same agents with the policy of a running mean of their weights."""
    own = copy.copy(agents)
    own.settings = replace(agents.settings, averaged_episodes=window)
    own.acting = copy.deepcopy(agents.network).requires_grad_(False)
    return own


@torch.no_grad()
def gaps(agents: Any) -> dict[str, list[float]]:
    """The mean gap of each agent in the first quarter of the way of the optimal policy."""
    inputs = on_the_way(LENGTH, reward_input=True).unsqueeze(1).expand(-1, len(agents), -1, -1)
    values = agents.acting.all_values(inputs)[1 : LENGTH // 4 + 1]
    found = values[..., RIGHT] - values[..., LEFT]
    return {"gap": found.mean(dim=(0, 2)).tolist()}


def train(cell: str, advantage: float, seeds: int, episodes: int) -> None:
    """A case, in place of what is stored of it."""
    torch.set_num_threads(1)
    others = [row for row in stored() if case(row) != (cell, advantage)]
    rows = [json.dumps(row, separators=(",", ":")) for row in others]
    for row in course(cell, advantage, seeds, episodes):
        rows.append(json.dumps(rounded(row, 4), separators=(",", ":")))
        STORED.write_text("[\n" + ",\n".join(rows) + "\n]\n")


def case(row: dict[str, Any]) -> tuple[str, float]:
    """What distinguishes agents."""
    return row["cell"], row["advantage"]


def stored() -> list[dict[str, Any]]:
    """All rows there are."""
    rows: list[dict[str, Any]] = json.loads(STORED.read_text()) if STORED.exists() else []
    return rows


def cases(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, float], list[dict[str, Any]]]:
    """The rows of each cell and share."""
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(case(row), []).append(row)
    return dict(sorted(found.items()))


def column(rows: Sequence[dict[str, Any]], window: int, name: str) -> np.ndarray:
    """One number of a policy, ``(evaluations, agents)``."""
    return np.array([row[str(window)][name] for row in rows], dtype=float)


def full_and_optimal(rows: Sequence[dict[str, Any]], window: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the return is the highest, and where in addition no step is needless."""
    full = column(rows, window, "return") > TMaze.treasure - 1e-3
    return full, full & (column(rows, window, "length") == LENGTH + 1)


def later(found: np.ndarray) -> np.ndarray:
    """The share of evaluations after the first that ``found (evaluations, agents)`` one; NaN for agents without."""
    after = [own[int(own.argmax()) + 1 :] if own.any() else [] for own in found.T]
    return np.array([np.mean(own) if len(own) else np.nan for own in after])


def said(shares: np.ndarray) -> str:
    """Mean and standard deviation over the agents that have a share, in percent, and how many have."""
    there = 100 * shares[~np.isnan(shares)]
    if not len(there):
        return "none"
    error = f" ± {there.std(ddof=1):.0f}" if len(there) > 1 else ""
    return f"{there.mean():.0f}{error}% ({len(there)})"


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each case and policy."""
    lines = [
        "| agents | α | weights | full return, last third | after the first | optimal, last third | after the first "
        "| steps |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (cell, advantage), some in cases(rows).items():
        last = [row for row in some if row["episode"] > some[-1]["episode"] * 2 / 3]
        for window in windows(some):
            (full, optimal), (full_last, optimal_last) = (full_and_optimal(part, window) for part in (some, last))
            steps = column(last, window, "length")[full_last]
            shares = full_last.mean(axis=0), later(full), optimal_last.mean(axis=0), later(optimal)
            lines.append(
                f"| {cell.upper()} | {advantage:g} | {NAMES[window]} | {' | '.join(map(said, shares))} "
                f"| {f'{np.median(steps):g}' if len(steps) else 'none'} |"
            )
    return lines


def windows(rows: Sequence[dict[str, Any]]) -> list[int]:
    """The policies that are stored of a case."""
    return [window for window in NAMES if str(window) in rows[0]]


def of_gaps(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The gap of each agent's weights as they are, in the course of training."""
    lines = [f"gap, {1 / (1 - TMaze.discount * 0.9) * gap(LENGTH)[1 : LENGTH // 4 + 1].mean():.2f} with α = 0.9:"]
    for (cell, advantage), some in cases(rows).items():
        for row in some:
            if row["episode"] % 100 == 0 and "gap" in row["1"]:
                gaps = ", ".join(f"{value:.2f}" for value in row["1"]["gap"])
                lines.append(f"{cell}, {advantage:g}, episode {row['episode']}: {gaps}")
    return lines


def picture(rows: Sequence[dict[str, Any]]) -> Figure:
    """The return of each agent, a row for each case; a dot above where the policy is optimal."""
    found = cases(rows)
    agents = max(len(row["1"]["return"]) for row in rows)
    size = (2.1 * agents, 1.9 * len(found))
    figure, axes = plt.subplots(len(found), agents, figsize=size, layout="constrained", sharey=True, squeeze=False)
    for line, ((cell, advantage), some) in zip(axes, found.items(), strict=True):
        episodes = np.array([row["episode"] for row in some])
        line[0].set_ylabel(f"return, α = {advantage:g}")
        for index, axis in enumerate(line):
            if index >= len(some[0]["1"]["return"]):
                axis.set_axis_off()
                continue
            axis.set(title=f"{cell.upper()}, seed {index}", ylim=(-12, 9.5), xlim=(0, episodes[-1]))
            for place, window in enumerate(windows(some)):
                colour, returns = COLOURS[window], column(some, window, "return")
                axis.plot(episodes, returns[:, index], color=colour, linewidth=0.9, label=NAMES[window])
                there = episodes[full_and_optimal(some, window)[1][:, index]]
                axis.plot(there, np.full(len(there), 5.2 + place), ".", color=colour, markersize=3)
    for axis in axes[-1]:
        axis.set_xlabel("episodes")
    handles, names = axes[-1, 0].get_legend_handles_labels()
    figure.legend(handles, names, title="weights", loc="outside right upper", fontsize=8)
    return figure


def main() -> None:
    """Train where asked for; draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs=2, metavar=("CELL", "ALPHA"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=600)
    parser.add_argument("--warmups", metavar="CELL", help="print the VAA of the agents after their warmup")
    asked = parser.parse_args()
    if asked.warmups:
        group = warmed_up(asked.warmups, 0.0, asked.seeds)
        print(network_vaa(group.agents, **group.measure_options))
        return
    if asked.train:
        train(asked.train[0], float(asked.train[1]), asked.seeds, asked.episodes)
    rows = stored()
    png(picture(rows), RESULTS / "tmaze_staying.png")
    print("\n".join([*table(rows), "", *of_gaps(rows)]))


if __name__ == "__main__":
    main()
