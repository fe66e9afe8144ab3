"""Runs of one architecture trained as one ensemble."""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from multistable.dynamics.measure import DivergedError, attractors, measure
from multistable.dynamics.warmup import WarmupDivergedError, WarmupStep, WarmupWarning, warmup
from multistable.networks import RNN, Ensemble
from multistable.scan.graphs import Graphed
from multistable.training.adam import Adam
from multistable.training.auxiliary import Auxiliary, decoder_of
from multistable.training.config import RunConfig
from multistable.training.course import Course
from multistable.training.data import Sets, TrainingSequences, division, sets
from multistable.training.model import Model, Readout
from multistable.training.seeds import generator
from multistable.training.store import Checkpoint

# States of this many units are computed at once in an evaluation, about 1 GB of them.
EVALUATED_AT_ONCE = 2**28

Of = Callable[[list[int], Ensemble], list[Any]]
"""Something of each of some runs, by their numbers, from the ensemble of their networks."""

Scores = tuple[list[float], list[float] | None]
"""Loss and, where the task has one, accuracy of each run."""

WarmupWatcher = Callable[[Sequence[RunConfig], WarmupStep], None]


class Group:
    """R runs as one ensemble: their data, weights and optimiser. Every run is exactly what it would be alone.

    Args:
        configs: of runs that :meth:`RunConfig.goes_with` says can be trained together.
        device: where.
    """

    def __init__(self, configs: Sequence[RunConfig], device: torch.device) -> None:
        self.configs = list(configs)
        self.device = device
        self.task = configs[0].task
        self.batch_size = configs[0].batch_size
        self.learning = sets(configs, "train", device)
        for config in configs:
            config.check_sizes(self.learning.size)
        self.rows = division(configs, self.learning.size, device)
        self._check_scores()
        self.sequences = TrainingSequences.of(self.learning, self.rows.training)
        self.best: list[dict[str, Any]] = [{"epoch": 0, "loss": math.inf} for _ in configs]

    def _check_scores(self) -> None:
        """The task has a loss and an accuracy of each run: a task of the user's own may be wrong."""
        # One sequence more than there are runs, so that the two cannot be mistaken for each other.
        inputs, targets = self.learning.take(self.rows.training[:, : len(self.configs) + 1])
        outputs = inputs.new_zeros(self.task.answers, *inputs.shape[1:3], self.task.output_size)
        for name, score in (("loss", self.task.loss), ("accuracy", self.task.accuracy)):
            value: Any = score(outputs, targets)
            shape = tuple(value.shape) if isinstance(value, Tensor) else value and type(value).__name__
            if shape != (len(self.configs),) and (name, shape) != ("accuracy", None):
                raise ValueError(
                    f"{name} of {type(self.task).__name__} must be a mean over n, one number for each network: for "
                    f"outputs {tuple(outputs.shape)} of shape {(len(self.configs),)}, got {shape}"
                )

    @property
    def steps(self) -> int:
        """The gradient steps of an epoch."""
        return -(-self.rows.training.shape[1] // self.batch_size)

    def initialise(self, on_step: WarmupWatcher) -> list[dict[str, Any] | None]:
        """Draw initial weights and warm up the runs that ask for it. Returns the course of each one's warmup."""
        models = [Model.of(config).to(self.device) for config in self.configs]
        warmed = [index for index, config in enumerate(self.configs) if config.kind.warmed]
        courses: list[dict[str, Any] | None] = [None] * len(models)
        if warmed:
            for index, course in zip(warmed, self._warm_up(models, warmed, on_step), strict=True):
                courses[index] = course
        self._assemble(models, self._decoders())
        self._enter(self.phase(0))
        return courses

    def restore(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Go on from checkpoints of all runs at one epoch."""
        models = []
        for config, checkpoint in zip(self.configs, checkpoints, strict=True):
            model = Model.of(config)
            model.load_state_dict(_part(checkpoint.tensors, "weights"))
            models.append(model.to(self.device))
        self._assemble(models, self._decoders())
        epoch = checkpoints[0].notes["epoch"]
        before = self.configs[0].pretraining if self.phase(epoch) == "training" else 0
        self._enter(self.phase(epoch), (epoch - before) * self.steps)
        for part, tensors in self._kept().items():
            for name, tensor in tensors.items():
                tensor.copy_(torch.stack([checkpoint.tensors[f"{part}.{name}"] for checkpoint in checkpoints]))
        self.best = [checkpoint.notes["best"] for checkpoint in checkpoints]

    def checkpoint(self, run: int, epoch: int) -> Checkpoint:
        """What one of the runs needs to go on after ``epoch``."""
        kept = {"weights": self._weights} | self._kept()
        tensors = {f"{part}.{name}": tensor[run] for part, named in kept.items() for name, tensor in named.items()}
        return Checkpoint(tensors, {"epoch": epoch, "best": self.best[run]})

    def best_weights(self, run: int) -> dict[str, Tensor]:
        """The weights of the lowest validation loss of one of the runs."""
        return {name: tensor[run] for name, tensor in self._best_weights.items()}

    def phase(self, epoch: int) -> str:
        """``"pretraining"`` or ``"training"``; epoch 0 belongs to what comes first."""
        pretraining = self.configs[0].pretraining
        return "pretraining" if pretraining and epoch <= pretraining else "training"

    def train(self, epoch: int, on_step: Callable[[int], None]) -> dict[str, list[float]]:
        """One pass over the training sets; returns the mean losses of each run, by name."""
        if self.phase(epoch) != self._phase:
            self._enter(self.phase(epoch))
        size, total = self.batch_size, self.rows.training.shape[1]
        orders = [torch.randperm(total, generator=generator(config.seed, "order", epoch)) for config in self.configs]
        rows = self.rows.training.gather(1, torch.stack(orders).to(self.device))
        columns = [rows] if self.auxiliary is None else [rows, self.auxiliary.ends(total, self.device, epoch)]
        batches = zip(*(column.split(size, dim=-1) for column in columns), strict=True)
        losses = torch.zeros(len(self._minimised), len(self.configs), dtype=torch.float64, device=self.device)
        with self._precision():
            for step, batch in enumerate(batches, start=1):
                n = batch[0].shape[1]
                take = self._graphed if n == size else self._step
                losses += take(*(column.contiguous() for column in batch)) * (n / total)
                on_step(step)
        return dict(zip(self._minimised, losses.tolist(), strict=True))

    def passed_over(self) -> list[int]:
        """How many gradients of each run were not finite, and passed over, since this was last asked."""
        return self._adam.passed_over()

    def validate(self) -> Scores:
        """Scores on the validation sets."""
        return self._evaluate(self.learning, self.rows.validation)

    @torch.no_grad()
    def reconstruct(self) -> list[float] | None:
        """The auxiliary loss of each run on its validation set, where it has one."""
        if self.auxiliary is None:
            return None
        rows, losses = self.rows.validation, torch.zeros(len(self.configs), dtype=torch.float64, device=self.device)
        ends = self.auxiliary.ends(rows.shape[1], self.device, "validation")
        at_once = self._at_once
        with self._precision():
            for part, end in zip(rows.split(at_once, dim=-1), ends.split(at_once, dim=-1), strict=True):
                inputs = self.learning.take(part).inputs
                states = self.model.rnn.advance(inputs)[1]
                losses += self.auxiliary.loss(inputs, states, end) * (part.shape[1] / rows.shape[1])
        return losses.tolist()

    def keep_best(self, losses: Sequence[float], epoch: int) -> None:
        """Remember the weights of the runs whose validation loss is the lowest so far."""
        better = [loss < best["loss"] for loss, best in zip(losses, self.best, strict=True)]
        self.best = [
            {"epoch": epoch, "loss": loss} if improved else best
            for loss, best, improved in zip(losses, self.best, better, strict=True)
        ]
        which = torch.tensor(better, device=self.device)
        for name, tensor in self._best_weights.items():
            tensor[which] = self._weights[name].detach()[which]

    def vaa(self, epoch: int) -> list[float | None]:
        """VAA of each run for its training sequences; ``None`` where the states do not stay finite."""
        return self._vaa(self._all, self.ensemble, epoch)

    def settled(self, epoch: int) -> list[tuple[float, float] | None]:
        """The shares of the states of :meth:`vaa` at fixed points and on cycles; ``None`` where there is no VAA."""

        def shares(members: list[int], ensemble: Ensemble) -> list[tuple[float, float]]:
            found = attractors(ensemble, self.sequences.of_members(members), **self._measured(members, epoch))
            return list(zip(found.fixed_points, found.cycles, strict=True))

        return _where_finite(shares, self._all, self.ensemble)

    def test(self) -> tuple[Scores, Scores | None]:
        """Scores of the best weights on the test sets, and on the selection sets where there are any."""
        testing = sets(self.configs, "test", self.device)
        rows = torch.arange(testing.size, device=self.device).expand(len(self.configs), -1)
        present = {name: weight.detach().clone() for name, weight in self._weights.items()}
        try:
            self._set_weights(self._best_weights)
            selected = self._evaluate(self.learning, self.rows.selection) if self.rows.selection.numel() else None
            return self._evaluate(testing, rows), selected
        finally:
            self._set_weights(present)

    def _decoders(self) -> list[Model]:
        """The decoders of the runs with their initial weights, where they have any."""
        return [decoder_of(config).to(self.device) for config in self.configs if config.kind.auxiliary]

    def _assemble(self, models: Sequence[Model], decoders: Sequence[Model]) -> None:
        self.ensemble = Ensemble([model.rnn for model in models])
        self.model = Model(self.ensemble.network, Readout.stacked([model.readout for model in models]))
        self.auxiliary = Auxiliary(self.configs, decoders) if decoders else None
        self._weights = dict(self.model.named_parameters())
        self._best_weights = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._decoder = {} if self.auxiliary is None else dict(self.auxiliary.decoder.named_parameters())

    def _enter(self, phase: str, steps: int = 0) -> None:
        """Begin a phase, or be ``steps`` gradient steps in it: what is minimised, and the optimiser of what moves."""
        self._phase, pretraining = phase, phase == "pretraining"
        self._minimised = [] if pretraining else ["training_loss"]
        self._minimised += [] if self.auxiliary is None else ["training_reconstruction_loss"]
        # Nothing tells the readout anything in the pretraining.
        of_model = {name: w for name, w in self._weights.items() if name.startswith("rnn.") or not pretraining}
        self._moved = of_model | {f"decoder.{name}": weight for name, weight in self._decoder.items()}
        rates = torch.tensor([config.learning_rate for config in self.configs], dtype=torch.float64)
        self._adam = Adam(list(self._moved.values()), rates, steps)
        self._graphed = Graphed(self._step)

    def _kept(self) -> dict[str, dict[str, Tensor]]:
        """What a checkpoint has beside the weights."""
        means, squares = (dict(zip(self._moved, s, strict=True)) for s in (self._adam.means, self._adam.squares))
        decoder = {name: weight.detach() for name, weight in self._decoder.items()}
        return {"best": self._best_weights, "decoder": decoder, "means": means, "squares": squares}

    @torch.no_grad()
    def _set_weights(self, weights: dict[str, Tensor]) -> None:
        for name, weight in self._weights.items():
            weight.copy_(weights[name])

    def _step(self, rows: Tensor, ends: Tensor | None = None) -> Tensor:
        """A gradient step on the sequences at ``rows (R, n)``; returns each loss that is minimised of each run."""
        inputs, targets = self.learning.take(rows)
        outputs, states = self.model.advance(inputs, self.task.answers)
        losses, weights = [], []
        if self._phase == "training":
            losses.append(self.task.loss(outputs, targets))
            weights.append(1.0)
        if self.auxiliary is not None and ends is not None:
            losses.append(self.auxiliary.loss(inputs, states, ends))
            weights.append(self.auxiliary.weight if weights else 1.0)
        total = torch.stack([weight * loss.sum() for weight, loss in zip(weights, losses, strict=True)]).sum()
        self._adam.step(torch.autograd.grad(total, list(self._moved.values())))
        return torch.stack(losses).detach()

    @property
    def _at_once(self) -> int:
        """How many sequences of each run are evaluated at once."""
        return max(1, EVALUATED_AT_ONCE // (self.task.length * len(self.configs) * self.configs[0].hidden_size))

    @torch.no_grad()
    def _evaluate(self, data: Sets, rows: Tensor) -> Scores:
        losses: Any = 0.0
        accuracies: Any = 0.0
        with self._precision():
            for part in rows.split(self._at_once, dim=1):
                inputs, targets = data.take(part)
                outputs = self.model(inputs, self.task.answers)
                share = part.shape[1] / rows.shape[1]
                losses = losses + share * self.task.loss(outputs, targets).double()
                accuracy = self.task.accuracy(outputs, targets)
                accuracies = None if accuracy is None else accuracies + share * accuracy.double()
        return losses.tolist(), None if accuracies is None else accuracies.tolist()

    def _warm_up(self, models: list[Model], members: list[int], on_step: WarmupWatcher) -> list[dict[str, Any]]:
        """Warm up some of the models, in place."""
        configs = [self.configs[index] for index in members]
        ensemble = Ensemble([models[index].rnn for index in members])
        shared = configs[0]
        sequences = self.sequences.of_members(members)
        if shared.warmup_sequences == "random":
            sequences = TrainingSequences.random(configs, len(sequences), self.device)
        # Epoch 0: the last of its values is then that of the metrics before training.
        course = Course(
            partial(self._vaa, members, ensemble, epoch=0), shared.warmup_vaa_every, shared.most_warmup_steps
        )

        def watched(step: WarmupStep) -> None:
            course.after(step.step)
            on_step(configs, step)

        try:
            # What did not become multistable is told by the course of its warmup.
            with warnings.catch_warnings(action="ignore", category=WarmupWarning):
                history = warmup(
                    ensemble,
                    sequences,
                    algorithm=shared.warmup_algorithm,
                    steps=shared.most_warmup_steps,
                    batch_size=shared.warmup_batch_size,
                    lr=shared.warmup_learning_rate,
                    target=[config.target for config in configs],
                    max_stabilisation=shared.max_stabilisation,
                    increment=shared.increment,
                    eps=shared.eps,
                    generator=[generator(config.seed, "warmup") for config in configs],
                    on_step=watched,
                )
        except WarmupDivergedError as error:
            if len(members) == 1:
                return [{"outcome": "diverged", "reason": str(error)}]
            # One of them diverged: the others must not suffer from it.
            return [self._warm_up(models, [index], on_step)[0] for index in members]
        for index, rnn in zip(members, ensemble.unstack(), strict=True):
            models[index].rnn = rnn
        return course.ended(history)

    @property
    def _all(self) -> list[int]:
        """The numbers of the runs."""
        return list(range(len(self.configs)))

    def _vaa(self, members: list[int], ensemble: Ensemble, epoch: int) -> list[float | None]:
        """:meth:`vaa` of some of the runs, from the ensemble of their networks."""

        def values(some: list[int], networks: Ensemble) -> list[float]:
            return measure(networks, self.sequences.of_members(some), **self._measured(some, epoch)).vaa

        return _where_finite(values, members, ensemble)

    def _measured(self, members: list[int], epoch: int) -> dict[str, Any]:
        """How some of the runs are measured: every measure of an epoch sees the same states."""
        shared = self.configs[0]
        return {
            "batches": shared.vaa_batches,
            "batch_size": shared.vaa_batch_size,
            "stabilisation": shared.stabilisation,
            "eps": shared.eps,
            "generator": [generator(self.configs[index].seed, "vaa", epoch) for index in members],
        }

    def _precision(self) -> AbstractContextManager[Any]:
        return self.configs[0].computing()


def _where_finite(of: Of, members: list[int], ensemble: Ensemble) -> list[Any]:
    """Something of each run, asked for all at once; ``None`` for those whose states do not stay finite."""
    try:
        return of(members, ensemble)
    except DivergedError:
        return [_where_alone_finite(of, *one) for one in zip(members, ensemble.unstack(), strict=True)]


def _where_alone_finite(of: Of, member: int, rnn: RNN) -> Any:
    try:
        return of([member], Ensemble([rnn]))[0]
    except DivergedError:
        return None


def _part(tensors: Any, part: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{part}."): tensor for name, tensor in tensors.items() if name.startswith(f"{part}.")}
