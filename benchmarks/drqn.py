"""DRQN on the T-Maze: how many seconds an episode takes to play and to learn from, here and by the plain approach.

The plain approach is Algorithm 4 as the paper writes it, for one agent after the other: a pass of a ``torch.nn.GRU``
for each sampled transition, and one of the target network. When it acts it carries the hidden state, as ours does.

Run: python benchmarks/drqn.py [--threads N]          L = 20 on the CPU, both approaches
     python benchmarks/drqn.py --clock cpu --threads 1   the same where other processes disturb the wall clock
     python benchmarks/drqn.py --device cuda --length 200 --episodes 2000 --hidden 256 --layers 2 --evaluate-every 50
     with --precision tf32, the products of our approach in TF32
"""

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import multistable as ms
from multistable.rl import DRQN, Evaluator, Settings, TMaze, first_optimal, input_size
from multistable.rl.evaluation import Evaluation
from multistable.rl.replay import Episodes, Transitions

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
PLAIN_CELLS: dict[str, Callable[..., Any]] = {"gru": nn.GRU, "lstm": nn.LSTM}


class PlainAgent:
    """One agent of Algorithm 4, one pass for each transition."""

    def __init__(self, maze: TMaze, settings: Settings, cell: str, hidden: int, layers: int) -> None:
        self.maze, self.settings = maze, settings
        self.rnn, self.target_rnn = (PLAIN_CELLS[cell](input_size(maze), hidden, layers) for _ in range(2))
        self.readout, self.target_readout = (nn.Linear(hidden, maze.actions) for _ in range(2))
        self.optimiser = torch.optim.Adam([*self.rnn.parameters(), *self.readout.parameters()], lr=settings.lr)

    @torch.no_grad()
    def play(self) -> int:
        """An episode with the epsilon-greedy policy; returns its length."""
        state, observation = self.maze.reset(torch.rand(()))
        previous, memory = torch.zeros(self.maze.actions), None
        for t in range(self.maze.horizon):
            output, memory = self.rnn(torch.cat([previous, observation]).view(1, 1, -1), memory)
            action = self.readout(output[0, 0]).argmax()
            if torch.rand(()) < self.settings.epsilon:
                action = torch.multinomial(torch.tensor(self.maze.exploration), 1)[0]
            state, observation, _, terminated, _ = self.maze.step(state, action)
            previous = torch.eye(self.maze.actions)[action]
            if terminated:
                return t + 1
        return self.maze.horizon

    def learn(self, batch: Transitions, agent: int) -> None:
        """A gradient step on the transitions of one agent."""
        loss = torch.zeros(())
        for row, t in enumerate(batch.times[agent].tolist()):
            inputs = batch.inputs[:, agent, row : row + 1]
            y = batch.rewards[agent, row]
            if not batch.terminal[agent, row]:
                with torch.no_grad():
                    y = y + self.maze.discount * self.target_readout(self.target_rnn(inputs[: t + 2])[0][-1, 0]).max()
            values = self.readout(self.rnn(inputs[: t + 1])[0][-1, 0])
            loss = loss + (y - values[batch.actions[agent, row]]) ** 2
        self.optimiser.zero_grad()
        loss.backward()
        if self.settings.max_norm is not None:
            nn.utils.clip_grad_norm_([*self.rnn.parameters(), *self.readout.parameters()], self.settings.max_norm)
        self.optimiser.step()


class Stopwatch:
    """Measures by the wall clock, or by the time of the processor that this process alone had."""

    def __init__(self, clock: str, device: torch.device) -> None:
        self._now, self._device = CLOCKS[clock], device

    def __call__(self, work: Callable[[], object]) -> float:
        """Seconds that ``work`` takes, what it asks of a GPU included."""
        start = self._now()
        work()
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return self._now() - start


class TimedDRQN(DRQN):
    """Knows how many seconds its agents have played."""

    seconds: Stopwatch
    played = 0.0

    def play(self) -> Episodes:
        """The next episode of each agent."""
        self.played += self.seconds(super().play)
        return self.player.episodes()


def make_agents(arguments: argparse.Namespace) -> TimedDRQN:
    """As many agents as asked for, with seeds 0, 1, ..."""
    maze = TMaze(arguments.length, device=arguments.device)
    networks = [
        ms.RNN(
            arguments.cell,
            input_size(maze),
            arguments.hidden,
            arguments.layers,
            generator=torch.Generator().manual_seed(seed),
        ).to(maze.device)
        for seed in range(arguments.agents)
    ]
    seeds = list(range(arguments.agents))
    settings = Settings(max_norm=arguments.max_norm)
    agents = TimedDRQN(maze, networks, seeds=seeds, warm=arguments.warmup, settings=settings)
    agents.seconds = Stopwatch(arguments.clock, maze.device)
    return agents


def health(agents: DRQN, losses: list[torch.Tensor]) -> str:
    """Each agent's mean loss since the last evaluation, and whether its weights are finite."""
    weights = torch.stack([p.flatten(1).isfinite().all(dim=1) for p in agents.parameters.values()]).all(dim=0)
    lost = [str(agent) for agent, finite in enumerate(weights.tolist()) if not finite]
    means = ", ".join(f"{loss:.3g}" for loss in torch.stack(losses).mean(dim=0).tolist())
    return f"loss {means}  weights {'not finite of ' + ', '.join(lost) if lost else 'finite'}"


def ours(agents: TimedDRQN, episodes: int, evaluate_every: int | None = None) -> tuple[float, float, list[Evaluation]]:
    """Mean seconds of an episode of all agents, to play and to learn; and evaluations on the way, not timed."""
    agents.played = both = 0.0
    evaluations, losses = [], list[torch.Tensor]()
    evaluator, training = Evaluator(agents), agents.train(agents.episode + episodes)
    for _ in range(episodes):
        both += agents.seconds(lambda: losses.append(next(training).loss))
        if evaluate_every and agents.episode % evaluate_every == 0:
            evaluations.append(evaluator.evaluate())
            returns = ", ".join(f"{value:.2f}" for value in evaluations[-1].returns)
            print(f"  {agents.episode:5d}  {both:6.1f} s  returns {returns}  {health(agents, losses)}", flush=True)
            losses.clear()
    return agents.played / episodes, (both - agents.played) / episodes, evaluations


def plain(agents: TimedDRQN, arguments: argparse.Namespace) -> tuple[float, float]:
    """Mean seconds of an episode of all agents, one after the other; they learn from the buffer of ours."""
    maze, settings = agents.pomdp, agents.settings
    assert isinstance(maze, TMaze)
    alone = [PlainAgent(maze, settings, arguments.cell, arguments.hidden, arguments.layers) for _ in range(len(agents))]

    def batch() -> Transitions:
        slots = agents.replay.sample(torch.rand(len(agents), settings.batch_size, dtype=torch.float64))
        longest = int(agents.replay.lengths(slots).max())
        return agents.replay.transitions(slots, slots, torch.arange(settings.batch_size).expand_as(slots), longest + 1)

    play = learn = 0.0
    for _ in range(arguments.plain_episodes):
        for index, agent in enumerate(alone):
            play += agents.seconds(agent.play)
            batches: list[Transitions] = [batch() for _ in range(settings.gradient_steps)]
            learn += agents.seconds(lambda a=agent, i=index, b=batches: [a.learn(x, i) for x in b])  # type: ignore[misc]
    return play / arguments.plain_episodes, learn / arguments.plain_episodes


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--cell", default="gru", choices=list(ms.CELLS))
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=20, help="a multiple of the target period is the fair mean")
    parser.add_argument("--plain-episodes", type=int, default=2, help="of the plain approach; 0 for none")
    parser.add_argument("--warmup", action="store_true")
    parser.add_argument("--evaluate-every", type=int)
    parser.add_argument("--max-norm", type=float, help="the largest norm of an agent's gradient; no limit by default")
    parser.add_argument("--precision", default="ieee", choices=["ieee", "tf32"])
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    """Print the table, and store it as JSON where asked."""
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore", ms.WarmupWarning)
    torch.manual_seed(0)
    agents = make_agents(arguments)
    on_gpu = agents.pomdp.device.type == "cuda"
    where = torch.cuda.get_device_name() if on_gpu else f"{platform.machine()}, {torch.get_num_threads()} threads"
    size = f"{arguments.agents} x {arguments.cell}, {arguments.layers} x {arguments.hidden}"
    print(f"torch {torch.__version__}, {where}: T-Maze L = {arguments.length}, {size}, H = {agents.pomdp.horizon}")
    print(f"time loop: {', '.join(ms.backends(agents.network.rnn))}")
    filled, warmed = agents.seconds(agents.fill), agents.seconds(agents.warm_up)
    agents.prepared = True
    print(f"filling the buffer {filled:.2f} s, warmup {warmed:.2f} s")
    with ms.engine(precision=arguments.precision):
        first = ours(agents, 2)[:2]
        print(f"the first two episodes, with all that is compiled: play {first[0]:.3f}, learn {first[1]:.3f}")
        play, learn, evaluations = ours(agents, arguments.episodes, arguments.evaluate_every)
    whole = filled + warmed + 2 * sum(first) + arguments.episodes * (play + learn)
    print(f"\n{arguments.clock + ' seconds, all agents':30}{'play':>10}{'learn':>10}{'both':>10}")
    print(f"{'together':30}{play:10.4f}{learn:10.4f}{play + learn:10.4f}")
    row: dict[str, Any] = {name: str(v) if isinstance(v, Path) else v for name, v in vars(arguments).items()}
    row |= {"where": where, "play_s": play, "learn_s": learn, "fill_s": filled, "warmup_s": warmed, "whole_s": whole}
    if arguments.plain_episodes and not on_gpu and arguments.cell in PLAIN_CELLS:
        plain_play, plain_learn = plain(agents, arguments)
        both = plain_play + plain_learn
        print(f"{'plain, one after the other':30}{plain_play:10.4f}{plain_learn:10.4f}{both:10.4f}")
        print(f"{'ratio':30}{plain_play / play:10.1f}{plain_learn / learn:10.1f}{both / (play + learn):10.1f}")
        row |= {"plain_play_s": plain_play, "plain_learn_s": plain_learn}
    print(f"\n{arguments.episodes + 2} episodes, filling and warmup included: {whole:.1f} s")
    if evaluations:
        row |= {"evaluations": [e.as_dict() for e in evaluations], "first_optimal": first_optimal(evaluations)}
        print(f"first optimal after episodes {row['first_optimal']}")
    if arguments.json:
        arguments.json.write_text(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
