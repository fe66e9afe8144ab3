"""Why agents do not stay optimal in a long T-Maze: what a needless step costs there, and how far the values are off.

    python docs/figures/action_gap.py --runs runs       # from run folders of tmaze-32, stored in action_gap.json first
    python docs/figures/action_gap.py                   # from what is stored

On the way of the optimal policy the values are known: gamma^(L - x) times the treasure for a step to the right, and
gamma^2 of that for a step to the left, which takes two steps more; at x = 0 the wall costs one step and a penalty.
Their difference is the gap that an agent has to resolve. The table and the picture compare it with the gap that each
agent's network computes at the end of its training.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from multistable.experiments.archive import rounded
from multistable.experiments.figures import png
from multistable.rl.tmaze import ACTIONS, OBSERVATIONS, TMaze
from multistable.training.store import config_of
from multistable.training.trained import load

RESULTS = Path(__file__).parents[1] / "results"
STORED = RESULTS / "action_gap.json"
RIGHT, LEFT = ACTIONS.index("right"), ACTIONS.index("left")
CORRIDOR, JUNCTION = OBSERVATIONS.index("corridor"), OBSERVATIONS.index("junction")


def on_the_way(length: int, *, reward_input: bool) -> torch.Tensor:
    """The inputs of the optimal policy from its start to the junction, in both layouts, ``(L + 1, 2, features)``."""
    previous, seen = torch.zeros(length + 1, 2, len(ACTIONS)), torch.zeros(length + 1, 2, len(OBSERVATIONS))
    previous[1:, :, RIGHT] = 1
    seen[0, [0, 1], [0, 1]] = 1
    seen[1:length, :, CORRIDOR] = 1
    seen[length, :, JUNCTION] = 1
    return torch.cat([previous, seen, torch.zeros(length + 1, 2, int(reward_input))], dim=-1)


def gap(length: int) -> np.ndarray:
    """What a step to the left costs at each place of the corridor."""
    value = TMaze.treasure * TMaze.discount ** (length - np.arange(length))
    gaps = value * (1 - TMaze.discount**2)
    gaps[0] = value[0] * (1 - TMaze.discount) - TMaze.penalty
    return gaps


@torch.no_grad()
def agent(folder: Path) -> dict[str, Any]:
    """What the network of a finished agent computes for its two steps at each place, and at the junction."""
    config = config_of(json.loads((folder / "config.json").read_text()))
    length = config.task.L
    values = load(folder)(on_the_way(length, reward_input=config.reward_input))
    values = values[0] if isinstance(values, tuple) else values
    turns = values[length, [0, 1], [ACTIONS.index("up"), ACTIONS.index("down")]]
    wrong = values[length, [0, 1], [ACTIONS.index("down"), ACTIONS.index("up")]]
    return {
        "agent": folder.name,
        "L": length,
        "gap": (values[:length, :, RIGHT] - values[:length, :, LEFT]).T.tolist(),
        "right turn": turns.tolist(),
        "wrong turn": wrong.tolist(),
    }


def table(agents: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each length."""
    lines = [
        "| L | agents | gap at x = 1 | error of the agents in x = 1 to L / 4 | steps to the left there | right turns |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for length, some in by_length(agents).items():
        gaps = np.array([row["gap"] for row in some]).reshape(-1, length)
        quarter = slice(1, length // 4 + 1)
        error = np.sqrt(np.mean((gaps - gap(length))[:, quarter] ** 2))
        turns = [r > w for row in some for r, w in zip(row["right turn"], row["wrong turn"], strict=True)]
        lines.append(
            f"| {length} | {len(some)} | {gap(length)[1]:.3f} | {error:.3f} "
            f"| {np.mean(gaps[:, quarter] < 0):.1%} | {sum(turns)} of {len(turns)} |"
        )
    return lines


def by_length(agents: Sequence[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The agents of each length, the shortest first."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(agents, key=lambda row: row["L"]):
        found[row["L"]].append(row)
    return found


def picture(agents: Sequence[dict[str, Any]]) -> Figure:
    """The gap at each place: as it is, and as the agents have it."""
    lengths = by_length(agents)
    figure, axes = plt.subplots(1, len(lengths), figsize=(3.6 * len(lengths), 3), layout="constrained", squeeze=False)
    for axis, (length, some) in zip(axes[0], lengths.items(), strict=True):
        gaps, places = np.array([row["gap"] for row in some]).reshape(-1, length), np.arange(length)
        low, middle, high = np.quantile(gaps, [0.1, 0.5, 0.9], axis=0)
        axis.fill_between(places, low, high, alpha=0.3, linewidth=0, label="agents, 10% to 90%")
        axis.plot(places, middle, label="agents, median")
        axis.plot(places, gap(length), color="black", linestyle="--", label="as it is")
        axis.axhline(0, color="grey", linewidth=0.6)
        axis.set(title=f"L = {length}", xlabel="place in the corridor", ylim=(-0.1, 0.3))
    axes[0, 0].set_ylabel("value: right less left")
    axes[0, 0].legend(fontsize=7)
    return figure


def main() -> None:
    """Store, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="a folder of runs")
    asked = parser.parse_args()
    if asked.runs:
        finished = sorted(path.parent for path in asked.runs.glob("tmaze-*/weights.safetensors"))
        rows = [json.dumps(rounded(agent(folder), 3), separators=(",", ":")) for folder in finished]
        STORED.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    agents = json.loads(STORED.read_text())
    png(picture(agents), RESULTS / "tmaze_action_gap.png")
    print("\n".join(table(agents)))


if __name__ == "__main__":
    main()
