"""The longest passive T-Maze that a warmed-up network learns by PPO within some minutes, from its first weights on.

Each length, twice the one before, is given the same minutes to new agents; the first that no agent learns is the last
one tried. A cue is to be remembered through a corridor in which every step has noise. An agent has learned a maze when
its greedy policy turns right in 99% of some hundred mazes that it has not played in, twice in a row.

The warmup reads mazes of length 100 at most: attractors are those of the network, whatever the length of a corridor. So
it is done once, and its seconds count for each length. All that was seen is stored at each look. A length that was
stopped on the way is begun anew.

Run: python benchmarks/record.py --minutes 10 --device cuda --output record_h200.json
     python benchmarks/record.py --minutes 10 --clock cpu --seeds 1 --copies 32 --output record_cpu.json
     with --classic, the same without warmup; with --alone, one agent after the other, each with all the minutes
"""

import argparse
import json
import platform
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import multistable as ms
from multistable.rl import PPO, PassiveTMaze, PPOSettings, input_size
from multistable.rl.play import Chance, Player
from multistable.training.seeds import generator

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
LEARNED, JUDGED = 0.99, 256
WARMUP_LENGTH = 100


class Judge:
    """The share of mazes in which greedy policies turn right: ``JUDGED`` mazes of a seed that no agent has."""

    def __init__(self, agents: PPO) -> None:
        self.pomdp = agents.pomdp
        self._player = Player(agents.network, len(agents), agents.pomdp, JUDGED, **agents.settings.inputs)
        starts = torch.rand(JUDGED, generator=generator(0, "judge"), dtype=torch.float64).expand(len(agents), -1)
        never = torch.zeros(self.pomdp.horizon, len(agents), JUDGED, dtype=torch.long)
        self._chance = Chance(starts, never.bool(), never)

    def __call__(self) -> list[float]:
        """Of each agent."""
        self._player.play(self._chance)
        return self._player.rewards.sum(dim=0).mean(dim=-1).tolist()


def seeds_of(asked: argparse.Namespace) -> list[int]:
    """The seeds of all agents."""
    return list(range(asked.first_seed, asked.first_seed + asked.seeds))


def networks(asked: argparse.Namespace, settings: PPOSettings) -> list[ms.RNN]:
    """The networks before training, warmed up on episodes of a short maze."""
    maze = PassiveTMaze(min(asked.first, WARMUP_LENGTH), noise=asked.noise, device=asked.device)
    seeds, features = seeds_of(asked), input_size(maze, **settings.inputs)
    made = [
        ms.RNN(asked.cell, features, asked.hidden, generator=generator(s, "weights")).to(maze.device) for s in seeds
    ]
    agents = PPO(maze, made, seeds=seeds, warm=not asked.classic, settings=settings)
    agents.prepare()
    return [member for member in agents.members() if isinstance(member, ms.RNN)]


def attempt(
    length: int, made: dict[int, ms.RNN], warmed: float, settings: PPOSettings, asked: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Train new agents in mazes of one length until all have learned, or time is up: what is known at each look.

    ``made`` are their networks by seed, whose warmup took ``warmed`` seconds.
    """
    now = CLOCKS[asked.clock]
    began = now() - warmed
    maze = PassiveTMaze(length, noise=asked.noise, device=asked.device)
    agents = PPO(maze, list(made.values()), seeds=list(made), settings=settings)
    judge, seen = Judge(agents), list[dict[str, Any]]()
    learned: list[dict[str, float] | None] = [None] * len(made)
    before = [0.0] * len(made)
    over = False
    while not over:
        for _ in range(asked.every):
            update = agents.update()
        right, seconds = judge(), round(now() - began, 1)
        for index, (a, b) in enumerate(zip(before, right, strict=True)):
            if learned[index] is None and min(a, b) >= LEARNED and seconds <= 60 * asked.minutes:
                learned[index] = {"episodes": agents.episode, "seconds": seconds}
        before = right
        played = update.returns.tolist()
        seen.append({"episodes": agents.episode, "seconds": seconds, "right": right, "right when playing": played})
        print(
            f"L = {length}, seeds {list(made)}: {agents.episode} episodes, {seconds:.0f} s, right {right}", flush=True
        )
        over = None not in learned or seconds >= 60 * asked.minutes
        yield {
            **{"length": length, "seeds": list(made), "over": over, "warmup_seconds": round(warmed, 1)},
            **{"learned": list(learned), "seen": seen},
        }


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each length, warmup included")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS), help="cpu: the time of the processor")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--first", type=int, default=100, help="the first length")
    parser.add_argument("--cell", default="gru", choices=list(ms.CELLS))
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=3, help="agents, trained together but with --alone")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="one agent after the other, each with all the minutes")
    parser.add_argument("--copies", type=int, default=64, help="episodes of an update")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--noise", type=float, default=1.0, help="standard deviation in each step of the corridor")
    parser.add_argument("--every", type=int, default=5, help="updates between two looks at the greedy policy")
    parser.add_argument("--classic", action="store_true", help="no warmup")
    parser.add_argument("--precision", default="ieee", choices=["ieee", "tf32"], help="of products in training")
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    """Try one length after the other."""
    asked = parse()
    settings = {name: value for name, value in vars(asked).items() if name != "output"}
    on_gpu = torch.device(asked.device).type == "cuda"
    settings |= {"where": torch.cuda.get_device_name() if on_gpu else platform.machine(), "torch": torch.__version__}
    tried: list[dict[str, Any]] = []
    of_ppo = PPOSettings(copies=asked.copies, lr=asked.lr, action_input=False)
    if asked.output.exists():
        stored = json.loads(asked.output.read_text())
        if stored["settings"] != settings:
            raise SystemExit(f"{asked.output} is of other arguments: name another output")
        tried = [one for one in stored["tried"] if one["over"]]
    warnings.simplefilter("ignore", ms.WarmupWarning)
    began = CLOCKS[asked.clock]()
    made = dict(zip(seeds_of(asked), networks(asked, of_ppo), strict=True))
    warmed = (CLOCKS[asked.clock]() - began) / (asked.seeds if asked.alone else 1)
    length = asked.first
    while True:
        for seeds in [[seed] for seed in made] if asked.alone else [list(made)]:
            if any((one["length"], one["seeds"]) == (length, seeds) for one in tried):
                continue
            with ms.engine(precision=asked.precision):
                for known in attempt(length, {seed: made[seed] for seed in seeds}, warmed, of_ppo, asked):
                    lines = ",\n".join(json.dumps(one) for one in [*tried, known])
                    asked.output.write_text(f'{{"settings": {json.dumps(settings)},\n"tried": [\n{lines}\n]}}\n')
            tried.append(known)
        if not any(any(one["learned"]) for one in tried if one["length"] == length):
            break
        length *= 2
    for one in tried:
        told = ["not" if x is None else f"{x['episodes']} episodes, {x['seconds']} s" for x in one["learned"]]
        print(f"L = {one['length']}, seeds {one['seeds']}: {'; '.join(told)}")


if __name__ == "__main__":
    main()
