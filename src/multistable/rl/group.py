"""How agents of one architecture play and learn together."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from multistable.dynamics.warmup import WarmupStep
from multistable.rl.config import ALGORITHMS, AgentConfig
from multistable.rl.evaluation import Agents, Evaluation, Evaluator
from multistable.training.course import courses
from multistable.training.group import Columns, Group, OnStep, OnWarmupStep, first_and_last
from multistable.training.model import Model
from multistable.training.store import Checkpoint


class AgentGroup(Group[AgentConfig]):
    """Agents of one architecture, each with the settings of its own run; something is recorded at each evaluation."""

    def __init__(self, configs: Sequence[AgentConfig], device: torch.device) -> None:
        super().__init__(configs, device)
        process = self.shared.task.process(device, getattr(torch, self.shared.dtype))
        self.agents: Agents = ALGORITHMS[self.shared.algorithm].agents(
            process,
            [Model.of(config).rnn.to(device) for config in configs],
            seeds=[config.seed for config in configs],
            warm=[config.kind.warmed for config in configs],
            settings=self.shared.settings,
        )
        self._evaluator = Evaluator(self.agents, names=[config.name for config in configs])
        self._losses: list[Tensor] = []

    @property
    def steps(self) -> int:
        return 1

    @property
    def done(self) -> int:
        return self.agents.episode

    def initialise(self, on_step: OnWarmupStep) -> list[dict[str, Any] | None]:
        """Fill the replay buffers, or play the episodes, whose histories the warmup reads."""
        self.agents.fill()
        told = [self.warm_up([i], on_step)[0] if run.kind.warmed else None for i, run in enumerate(self.configs)]
        self.agents.prepared = True
        return told

    def _warm_up(self, members: list[int], on_step: OnWarmupStep) -> list[dict[str, Any]]:
        """Warm up one agent at a time, since the histories of each agent have their own lengths."""
        (index,) = members
        config = self.configs[index]
        if config.preparation is not None:
            return [self.prepared(self.agents.prepare_agent(index, method=config.preparation), 1)]

        def told(step: WarmupStep) -> None:
            number, *values = step
            on_step([config], WarmupStep(number, *(value.unsqueeze(-1) for value in values)))

        began, options = time.perf_counter(), self.warmup_options
        history = self.agents.warm_up_agent(index, **options, target=config.target, on_step=told)
        return [
            course | {"seconds": round(time.perf_counter() - began, 3), "together": 1} for course in courses(history)
        ]

    def restore(self, checkpoints: Sequence[Checkpoint]) -> None:
        _, notes = self.agents.state()
        names = checkpoints[0].tensors
        tensors = {name: torch.stack([checkpoint.tensors[name] for checkpoint in checkpoints]) for name in names}
        self.agents.load(tensors, notes | {"episode": checkpoints[0].notes["episode"], "prepared": True})

    def advance(self, on_step: OnStep) -> None:
        every = self.shared.evaluate_every
        until = min((self.done // every + 1) * every, self.shared.episodes)
        self._losses = []
        with self.shared.computing():
            for learnt in self.agents.train(until):
                self._losses.append(learnt.loss)
                on_step(self.done, 1)

    def evaluate(self) -> Evaluation:
        """Evaluate the greedy policies, and VAA if it is due."""
        every, episode = self.shared.vaa_every, self.done
        due = every and (episode % every == 0 or episode == self.shared.episodes)
        with self.shared.computing():
            return self._evaluator.evaluate(vaa=bool(due), warn=False, **self.measure_options)

    def measure(self, stepping: float) -> Columns:
        """The evaluation, and the mean loss of the episodes since the last one."""
        found = self.evaluate()
        return {
            "return": found.returns,
            "length": found.lengths,
            "loss": torch.stack(self._losses).mean(dim=0).tolist() if self._losses else None,
            "optimal": found.optimal,
            "vaa": found.vaa,
            "kept": self.agents.looks_on(),
            "passed_over": found.passed_over,
        }

    def warn(self, passed_over: Sequence[int]) -> None:
        self._evaluator.warn(passed_over)

    def checkpoint(self, run: int) -> Checkpoint:
        tensors, _ = self.agents.state()
        return Checkpoint({name: tensor[run] for name, tensor in tensors.items()}, {"episode": self.done})

    def results(self, metrics: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
        return [
            {
                "first_optimal": next((row["episode"] for row in rows if row.get("optimal")), None),
                "final_return": rows[-1]["return"],
                **first_and_last("vaa", rows),
            }
            for rows in metrics
        ]

    def weights(self, run: int) -> dict[str, Tensor]:
        """The last weights of the greedy policy."""
        named = self.agents.acting.named_parameters()
        return {name.replace("rnn.network.", "rnn.", 1): tensor.detach()[run] for name, tensor in named}
