"""PPO with classic networks, warmed-up ones and double layers where people try agents with a memory.

Run: python docs/figures/agents_elsewhere.py                         draw and print from what is stored
     python docs/figures/agents_elsewhere.py --train passive-100     train what is not in --runs, store, draw and print
     with --cells gru --seeds 3 --episodes 2560, where less or more is wanted
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import multistable as ms
from multistable.experiments.figures import curve, figure, name_axes, png
from multistable.experiments.pictures import legend_below
from multistable.experiments.styles import Style
from multistable.palette import BLUE, GREEN, VERMILLION
from multistable.rl import POMDP, PPO, PassiveTMaze, PPOSettings, TMaze, input_size, watch
from multistable.training.seeds import generator

RESULTS = Path(__file__).resolve().parents[1] / "results"
STORED = RESULTS / "agents_elsewhere.json"
STYLES = {
    "classic": Style("classic", VERMILLION, "o"),
    "warmup": Style("warmed up", BLUE, "s"),
    "double": Style("double layers, one half warmed up", GREEN, "^"),
}
"""The versions, and what they are drawn with."""
MEASURE = {"batches": 4, "stabilisation": 2000}


def masked_cartpole() -> POMDP:
    """CartPole without its velocities: position and angle remain."""
    import gymnasium
    from gymnasium.wrappers import TransformObservation

    from multistable.rl.gym_agent import GymPOMDP

    def make() -> Any:
        env = gymnasium.make("CartPole-v1")
        seen = gymnasium.spaces.Box(-np.inf, np.inf, (2,), dtype=np.float32)
        return TransformObservation(env, lambda observation: observation[[0, 2]], seen)

    return GymPOMDP(make, horizon=500, discount=0.99)


def popgym(name: str, steps: int) -> POMDP:
    """An environment of POPGym with a deck of 52 cards; its rewards sum to 1 at most."""
    import popgym  # noqa: F401 (it registers its environments)

    from multistable.rl.gym_agent import GymPOMDP

    return GymPOMDP(f"popgym-{name}-v0", horizon=steps, discount=0.99)


@dataclass(frozen=True)
class Task:
    """What is played, and for how many episodes."""

    title: str
    process: Callable[[], POMDP]
    best: float
    """The return that counts as learned."""
    episodes: int
    copies: int = 64


TASKS = {
    **{
        f"passive-{length}": Task(f"passive T-Maze, L = {length}", partial(PassiveTMaze, length, noise=1.0), 1.0, 2560)
        for length in (50, 100, 200, 500, 1000)
    },
    "tmaze-10": Task("T-Maze, L = 10", lambda: TMaze(10), 4.0, 5120),
    "repeat-first": Task("RepeatFirst, easy", lambda: popgym("RepeatFirstEasy", 51), 0.95, 3840),
    "repeat-previous": Task("RepeatPrevious, easy", lambda: popgym("RepeatPreviousEasy", 51), 0.95, 3840),
    "cartpole": Task("CartPole without velocities", masked_cartpole, 475.0, 1280, copies=16),
}


def train(name: str, cell: str, versions: Sequence[str], asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train agents of one architecture together: of each its warmup, and its evaluations."""
    task, began = TASKS[name], time.process_time()
    pomdp, kinds = task.process(), [(version, seed) for version in versions for seed in range(asked.seeds)]
    settings = PPOSettings(copies=task.copies, action_input=False)
    features, double = input_size(pomdp, **settings.inputs), "double" in versions
    networks = [
        ms.RNN(cell, features, asked.hidden, double=double, generator=generator(seed, "weights")) for _, seed in kinds
    ]
    warm = [version != "classic" for version, _ in kinds]
    agents = PPO(pomdp, networks, seeds=[seed for _, seed in kinds], warm=warm, settings=settings)
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        agents.prepare()
    warmed, every = time.process_time(), 5 * task.copies
    found = []
    episodes = asked.episodes or task.episodes
    for seen in watch(agents, episodes, evaluate_every=every, measure_every=2 * every, **MEASURE):
        found.append(seen)
        print(f"{name} {cell} {seen.episode:6d}", *(f"{value:.2f}" for value in seen.returns), flush=True)
    seconds = (time.process_time() - warmed) / len(kinds)
    for index, (version, seed) in enumerate(kinds):
        history = agents.warmups[index]
        yield {
            **{"task": name, "cell": cell, "version": version, "seed": seed, "hidden": asked.hidden},
            "warmup": None if history is None else {"outcome": history.outcome, "vaa": history.vaa},
            "warmup_seconds": round((warmed - began) / sum(warm), 1) if warm[index] else 0.0,
            "seconds": round(seconds, 1),
            "episode": [e.episode for e in found],
            "return": [round(e.returns[index], 4) for e in found],
            "vaa": [None if e.vaa is None or e.vaa[index] is None else round(e.vaa[index], 4) for e in found],
        }


def learn(name: str, asked: argparse.Namespace) -> None:
    """Train the agents of a task whose results are not there, a file in ``--runs`` for each architecture."""
    for cell in asked.cells.split(","):
        for versions in (["classic", "warmup"], ["double"]):
            path = asked.runs / f"{name}-{cell}-{versions[-1]}-{asked.seeds}-{asked.hidden}-{asked.episodes}.json"
            if not path.exists():
                rows = list(train(name, cell, versions, asked))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            add([json.loads(line) for line in path.read_text().splitlines()], asked.output)


def add(rows: Sequence[dict[str, Any]], stored: Path) -> None:
    """Store rows in place of those of the same agents."""
    before = json.loads(stored.read_text()) if stored.exists() else []
    identity = ("task", "cell", "version", "seed")
    by_agent = {tuple(row[k] for k in identity): row for row in [*before, *rows]}
    lines = ",\n".join(json.dumps(row) for row in by_agent.values())
    stored.write_text(f"[\n{lines}\n]\n")


def draw(rows: Sequence[dict[str, Any]], name: str, path: Path) -> None:
    """The returns of the greedy policies on a task, and VAA beside them, a row of panels for each cell."""
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    drawn, grid = figure(6.4, 2.4 * len(cells) + 0.4, columns=2, rows=len(cells))
    panels = list(np.ravel(grid))
    for index, cell in enumerate(cells):
        for quantity, axes in zip(("return", "vaa"), panels[2 * index : 2 * index + 2], strict=True):
            for version, style in STYLES.items():
                curves = [row for row in rows if (row["cell"], row["version"]) == (cell, version)]
                if curves:
                    known = [i for i, value in enumerate(curves[0][quantity]) if value is not None]
                    values = [[row[quantity][i] for i in known] for row in curves]
                    curve(axes, [curves[0]["episode"][i] for i in known], values, style)
            name_axes(axes, "episodes", "return" if quantity == "return" else "VAA")
            axes.set_title(f"{TASKS[name].title}: {cell.upper()}", fontsize=10)
    legend_below(drawn, panels)
    png(drawn, path)


def first_at(best: float, row: dict[str, Any]) -> str:
    """After how many episodes an agent first had such a return."""
    return next((str(e) for e, r in zip(row["episode"], row["return"], strict=True) if r >= best), "never")


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Print a line for each task, cell and version."""
    print("| task | cell | version | return at the end, by seed | learned after, episodes | VAA before and after | s |")
    print("|---" * 7 + "|")
    for key in dict.fromkeys((row["task"], row["cell"], row["version"]) for row in rows):
        mine = [row for row in rows if (row["task"], row["cell"], row["version"]) == key]
        task, cell, version = TASKS[key[0]], key[1].upper(), STYLES[key[2]].label
        ends = ", ".join(f"{row['return'][-1]:.2f}" for row in mine)
        learned = ", ".join(first_at(task.best, row) for row in mine)
        looks = [[value for value in row["vaa"] if value is not None] for row in mine]
        vaa = ", ".join(f"{look[0]:.2f} to {look[-1]:.2f}" for look in looks if look)
        seconds = sum(row["seconds"] + row["warmup_seconds"] for row in mine) / len(mine)
        print(f"| {task.title} | {cell} | {version} | {ends} | {learned} | {vaa} | {seconds:.0f} |")


def main() -> None:
    """Train what is asked for, and draw and print all that is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default="", help=f"names of tasks with commas, of {', '.join(TASKS)}")
    parser.add_argument("--cells", default="gru,lstm")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--episodes", type=int, default=0, help="of each agent; 0 for those of the task")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where finished agents are kept")
    parser.add_argument("--output", type=Path, default=STORED)
    asked = parser.parse_args()
    for name in filter(None, asked.train.split(",")):
        learn(name, asked)
    rows = json.loads(asked.output.read_text())
    for name in dict.fromkeys(row["task"] for row in rows):
        path = asked.output.with_name(f"{asked.output.stem}_{name.replace('-', '_')}.png")
        draw([row for row in rows if row["task"] == name], name, path)
    report(rows)


if __name__ == "__main__":
    main()
