"""Agents in run folders: those of one architecture play and learn together, each in its own folder."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from multistable.dynamics.warmup import WarmupDivergedError, WarmupHistory, WarmupStep, WarmupWarning
from multistable.rl.config import AgentConfig
from multistable.rl.drqn import DRQN
from multistable.rl.evaluation import Evaluation, Evaluator
from multistable.training.callbacks import Callback
from multistable.training.model import Model
from multistable.training.store import Checkpoint, RunFolder
from multistable.training.trainer import NEW, TRAINERS, finite, record_of

WarmupWatcher = Callable[[Sequence[AgentConfig], WarmupStep], None]


class AgentGroup:
    """Agents of one architecture, each with the settings of its own run.

    Args:
        configs: of runs that :meth:`AgentConfig.goes_with` says can be trained together.
        device: where.
    """

    def __init__(self, configs: Sequence[AgentConfig], device: torch.device) -> None:
        self.configs, self.shared, self.device = list(configs), configs[0], device
        process = self.shared.task.process(device, getattr(torch, self.shared.dtype))
        self.agents = DRQN(
            process,
            [Model.of(config).rnn.to(device) for config in configs],
            seeds=[config.seed for config in configs],
            warm=[config.kind.warmed for config in configs],
            settings=self.shared.settings,
        )
        self._evaluator = Evaluator(self.agents, names=[config.name for config in configs])

    def prepare(self, on_step: WarmupWatcher) -> list[dict[str, Any] | None]:
        """Fill the replay buffers and warm up the agents that ask for it. Returns the course of each one's warmup."""
        self.agents.fill()
        courses = [self._warm_up(i, on_step) if config.kind.warmed else None for i, config in enumerate(self.configs)]
        self.agents.prepared = True
        return courses

    def _warm_up(self, index: int, on_step: WarmupWatcher) -> dict[str, Any]:
        config = self.configs[index]

        def told(step: WarmupStep) -> None:
            number, *values = step
            on_step([config], WarmupStep(number, *(value.unsqueeze(-1) for value in values)))

        try:
            # What did not become multistable is told by the course of its warmup.
            with warnings.catch_warnings(action="ignore", category=WarmupWarning):
                history = self.agents.warm_up_agent(
                    index,
                    algorithm=config.warmup_algorithm,
                    steps=config.most_warmup_steps,
                    batch_size=config.warmup_batch_size,
                    lr=config.warmup_learning_rate,
                    target=config.target,
                    max_stabilisation=config.max_stabilisation,
                    increment=config.increment,
                    eps=config.eps,
                    on_step=told,
                )
        except WarmupDivergedError as error:
            return {"outcome": "diverged", "reason": str(error)}
        return _course(history)

    def evaluate(self) -> Evaluation:
        """The greedy policies, and VAA where it is due."""
        config, episode = self.shared, self.agents.episode
        due = config.vaa_every and (episode % config.vaa_every == 0 or episode == config.episodes)
        return self._evaluator.evaluate(
            vaa=bool(due),
            batches=config.vaa_batches,
            batch_size=config.vaa_batch_size,
            stabilisation=config.stabilisation,
            eps=config.eps,
        )

    def checkpoint(self, run: int) -> Checkpoint:
        """What one of the agents needs to go on from here."""
        tensors, _ = self.agents.state()
        return Checkpoint({name: tensor[run] for name, tensor in tensors.items()}, {"episode": self.agents.episode})

    def restore(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Go on from checkpoints of all agents after one number of episodes."""
        _, notes = self.agents.state()
        names = checkpoints[0].tensors
        tensors = {name: torch.stack([checkpoint.tensors[name] for checkpoint in checkpoints]) for name in names}
        self.agents.load(tensors, notes | {"episode": checkpoints[0].notes["episode"], "prepared": True})

    def weights(self, run: int) -> dict[str, Tensor]:
        """The weights of one of the agents, by the names of a :class:`Model`."""
        named = self.agents.parameters.items()
        return {name.replace("rnn.network.", "rnn.", 1): tensor[run] for name, tensor in named}


def train_together(
    configs: list[AgentConfig], folders: list[RunFolder], start: int, device: torch.device, callback: Callback
) -> None:
    """Train agents together, from the episode ``start`` on."""
    shared = configs[0]
    with shared.computing():
        group = AgentGroup(configs, device)
        for folder in folders:
            folder.keep_metrics(start, shared.unit)
        callback.on_start(configs, max(start, 0), 1)
        began = time.perf_counter()
        if start == NEW:
            for folder, course in zip(folders, group.prepare(callback.on_warmup_step), strict=True):
                if course is not None:
                    folder.write_json("warmup.json", course)
            _record(group, folders, began, [], callback)
        else:
            group.restore([folder.checkpoint(start) for folder in folders])
        began, losses = time.perf_counter(), []
        for episode in group.agents.train(shared.episodes):
            losses.append(episode.loss)
            callback.on_step(configs, episode.number, 1)
            if episode.number % shared.evaluate_every == 0 or episode.number == shared.episodes:
                _record(group, folders, began, losses, callback)
                began, losses = time.perf_counter(), []
        callback.on_end(configs, _finish(group, folders))


TRAINERS[AgentConfig] = train_together


def _record(
    group: AgentGroup, folders: Sequence[RunFolder], began: float, losses: Sequence[Tensor], callback: Callback
) -> None:
    """Evaluate, and write down how far the agents are; ``losses`` are those of the episodes since the last time."""
    found = group.evaluate()
    loss = torch.stack(list(losses)).mean(dim=0).tolist() if losses else None
    seconds = round(time.perf_counter() - began, 3)
    rows = []
    for run in range(len(folders)):
        row: dict[str, Any] = {"episode": found.episode, "return": found.returns[run], "length": found.lengths[run]}
        row |= {} if loss is None else {"loss": finite(loss[run])}
        row |= {} if found.optimal is None else {"optimal": found.optimal[run]}
        row |= {} if found.vaa is None else {"vaa": found.vaa[run]}
        row |= {"passed_over": found.passed_over[run]} if found.passed_over[run] else {}
        rows.append(row | {"seconds": seconds})
    for run, folder in enumerate(folders):
        folder.add_metrics(rows[run])
        folder.write_checkpoint(found.episode, group.checkpoint(run))
    callback.on_epoch(group.configs, rows)


def _finish(group: AgentGroup, folders: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """Write the last weights and the results."""
    summaries = []
    for run, folder in enumerate(folders):
        metrics, course = folder.metrics(), folder.warmup()
        vaas = [row["vaa"] for row in metrics if "vaa" in row]
        results = {
            "first_optimal": next((row["episode"] for row in metrics if row.get("optimal")), None),
            "final_return": metrics[-1]["return"],
            "initial_vaa": vaas[0] if vaas else None,
            "final_vaa": vaas[-1] if vaas else None,
            "warmup": None if course is None else course["outcome"],
        }
        folder.write_weights(group.weights(run))
        summaries.append({"results": results, "record": record_of(metrics, len(folders), group.device)})
    for folder, summary in zip(folders, summaries, strict=True):
        folder.finish(summary)
    return summaries


def _course(history: WarmupHistory) -> dict[str, Any]:
    """A warmup as JSON has it."""
    courses = {name: getattr(history, name).tolist() for name in ("vaa_star", "loss", "stabilisation")}
    return {"outcome": history.outcome, "vaa": history.vaa} | courses
