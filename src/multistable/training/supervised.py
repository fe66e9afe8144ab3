"""Runs of a supervised benchmark trained as one ensemble."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from multistable.dynamics.prepare import prepare
from multistable.dynamics.warmup import WarmupStep, warmup
from multistable.networks import Ensemble
from multistable.scan.graphs import Graphed
from multistable.training.adam import Adam, warn_of_passed_over
from multistable.training.auxiliary import Auxiliary, decoder_of
from multistable.training.config import RunConfig
from multistable.training.course import Course
from multistable.training.data import Sets, TrainingSequences, division, sets
from multistable.training.group import Columns, Group, OnStep, OnWarmupStep, first_and_last
from multistable.training.keeping import Keeping
from multistable.training.measured import Measured
from multistable.training.model import Model, Readout
from multistable.training.portraits import Following
from multistable.training.seeds import generator
from multistable.training.store import Checkpoint

# An evaluation computes the states of this many units at once, about 1 GB of them.
EVALUATED_AT_ONCE = 2**28

Scores = tuple[list[float], list[float] | None]
"""Loss and, where the task has one, accuracy of each run."""


class SupervisedGroup(Group[RunConfig]):
    """The data, weights and optimiser of R runs; something is recorded after each epoch."""

    def __init__(self, configs: Sequence[RunConfig], device: torch.device) -> None:
        super().__init__(configs, device)
        self.task = self.shared.task
        self.batch_size = self.shared.batch_size
        self.learning = sets(configs, "train", device)
        for config in configs:
            config.check_sizes(self.learning.size)
        self.rows = division(configs, self.learning.size, device)
        self._check_scores()
        self.sequences = TrainingSequences.of(self.learning, self.rows.training)
        self.best: list[dict[str, Any]] = [{"epoch": 0, "loss": math.inf} for _ in configs]
        self.following = [Following() for _ in configs]
        self._done = 0
        self._losses: dict[str, list[float]] = {}

    def _check_scores(self) -> None:
        """Check that the task gives a loss and an accuracy for each run: a task of the user's own may not."""
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
        return -(-self.rows.training.shape[1] // self.batch_size)

    @property
    def done(self) -> int:
        return self._done

    def initialise(self, on_step: OnWarmupStep) -> list[dict[str, Any] | None]:
        self._assemble([Model.of(config).to(self.device) for config in self.configs])
        courses: list[dict[str, Any] | None] = [None] * len(self.configs)
        warmed = [index for index, config in enumerate(self.configs) if config.kind.warmed]
        if warmed:
            for index, course in zip(warmed, self.warm_up(warmed, on_step), strict=True):
                courses[index] = course
        self._best_weights = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._enter(self.phase(0))
        return courses

    def restore(self, checkpoints: Sequence[Checkpoint]) -> None:
        models = []
        for config, checkpoint in zip(self.configs, checkpoints, strict=True):
            model = Model.of(config)
            model.load_state_dict(_part(checkpoint.tensors, "weights"))
            models.append(model.to(self.device))
        self._assemble(models)
        self._best_weights = {name: torch.empty_like(weight) for name, weight in self._weights.items()}
        self._done = checkpoints[0].notes["epoch"]
        phase = self.phase(self._done)
        self._enter(phase, (self._done - (self.shared.pretraining if phase == "training" else 0)) * self.steps)
        for part, tensors in self._kept().items():
            for name, tensor in tensors.items():
                tensor.copy_(torch.stack([checkpoint.tensors[f"{part}.{name}"] for checkpoint in checkpoints]))
        self.best = [checkpoint.notes["best"] for checkpoint in checkpoints]
        self.following = [
            Following.of(point.notes.get("followed", {}), _part(point.tensors, "followed"), Model.of(config).rnn)
            for config, point in zip(self.configs, checkpoints, strict=True)
        ]

    def records(self, run: int) -> list[dict[str, Any]]:
        return self.following[run].records

    def advance(self, on_step: OnStep) -> None:
        epoch = self._done + 1
        if self.phase(epoch) != self._phase:
            self._enter(self.phase(epoch))
        size, total = self.batch_size, self.rows.training.shape[1]
        orders = [torch.randperm(total, generator=generator(config.seed, "order", epoch)) for config in self.configs]
        rows = self.rows.training.gather(1, torch.stack(orders).to(self.device))
        columns = [rows] if self.auxiliary is None else [rows, self.auxiliary.ends(total, self.device, epoch)]
        batches = zip(*(column.split(size, dim=-1) for column in columns), strict=True)
        losses = torch.zeros(len(self._minimised), len(self.configs), dtype=torch.float64, device=self.device)
        with self.shared.computing():
            for step, batch in enumerate(batches, start=1):
                self.keeping.look()
                n = batch[0].shape[1]
                take = self._recorded_step if n == size else self._step
                losses += take(*(column.contiguous() for column in batch)) * (n / total)
                on_step(epoch, step)
        self._losses = dict(zip(self._minimised, losses.tolist(), strict=True))
        self._done = epoch

    def measure(self, stepping: float) -> Columns:
        shared, epoch, runs = self.shared, self._done, len(self.configs)
        measured, networks = self.measured, (self._all, self.ensemble)
        ends = epoch in (shared.pretraining, shared.duration)
        columns: dict[str, Sequence[Any] | None] = {}
        if shared.kind.auxiliary:
            # The cost of pretraining is that of its steps alone: the measures of each epoch are only for the record.
            columns |= {"phase": [self.phase(epoch)] * runs, "step_seconds": [round(stepping, 3)] * runs}
        columns |= self._losses
        columns["reconstruction_loss"] = self.reconstruct()
        if epoch >= shared.pretraining:
            losses, columns["validation_accuracy"] = self.validate()
            columns["validation_loss"] = losses
            self._keep_best(losses)
        if shared.vaa_every and (epoch % shared.vaa_every == 0 or ends):
            columns["vaa"] = measured.vaa(*networks)
            if epoch in (0, shared.duration):
                columns |= _columns(("fixed_points", "cycles"), measured.kinds(*networks))
        if shared.attractors_every and (epoch % shared.attractors_every == 0 or ends):
            columns["attractors"] = self._follow()
        columns["kept"] = self.keeping.looks_on()
        if shared.memory_before and epoch == 0:
            columns |= _columns(("lifetime", "recalled"), measured.memory(*networks))
        columns["passed_over"] = self._adam.passed_over()
        return columns

    def warn(self, passed_over: Sequence[int]) -> None:
        warn_of_passed_over([config.name for config in self.configs], passed_over)

    def checkpoint(self, run: int) -> Checkpoint:
        kept = {"weights": self._weights} | self._kept()
        tensors = {f"{part}.{name}": tensor[run] for part, named in kept.items() for name, tensor in named.items()}
        notes = {"epoch": self._done, "best": self.best[run]}
        if self.following[run].records:
            tensors |= {f"followed.{name}": tensor for name, tensor in self.following[run].tensors().items()}
            notes["followed"] = self.following[run].notes()
        return Checkpoint(tensors, notes)

    def results(self, metrics: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
        tested, selected = self._test()
        return [
            {
                "best_epoch": self.best[run]["epoch"],
                "validation_loss": self.best[run]["loss"],
                **_scores("test", tested, run),
                **({} if selected is None else _scores("selection", selected, run)),
                **first_and_last("vaa", rows),
                **first_and_last("fixed_points", rows),
                **first_and_last("cycles", rows),
            }
            for run, rows in enumerate(metrics)
        ]

    def cost(self, metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        if not self.shared.kind.auxiliary:
            return {}
        pretrained = [row for row in metrics if 0 < row["epoch"] <= self.shared.pretraining]
        taken = round(sum(row["step_seconds"] for row in pretrained), 3)
        return {"pretraining": {"seconds": taken, "steps": len(pretrained) * self.steps}}

    def weights(self, run: int) -> dict[str, Tensor]:
        """The weights of the lowest validation loss."""
        return {name: tensor[run] for name, tensor in self._best_weights.items()}

    def phase(self, epoch: int) -> str:
        """``"pretraining"`` or ``"training"``; epoch 0 belongs to the first phase."""
        pretraining = self.shared.pretraining
        return "pretraining" if pretraining and epoch <= pretraining else "training"

    def _assemble(self, models: Sequence[Model]) -> None:
        """Stack the networks of all runs, and their decoders, where they have any, with initial weights."""
        self.ensemble = Ensemble([model.rnn for model in models])
        self.model = Model(self.ensemble.network, Readout.stacked([model.readout for model in models]))
        self._weights = dict(self.model.named_parameters())
        decoders = [decoder_of(config).to(self.device) for config in self.configs if config.kind.auxiliary]
        self.auxiliary = Auxiliary(self.configs, decoders) if decoders else None
        self._decoder = {} if self.auxiliary is None else dict(self.auxiliary.decoder.named_parameters())

    def _enter(self, phase: str, steps: int = 0) -> None:
        """Begin a phase: set its losses, and its optimiser, which has taken ``steps`` steps of the phase already."""
        self._phase, pretraining = phase, phase == "pretraining"
        self._minimised = [] if pretraining else ["training_loss"]
        self._minimised += [] if self.auxiliary is None else ["training_reconstruction_loss"]
        # The loss of the pretraining does not depend on the readout.
        of_model = {name: w for name, w in self._weights.items() if name.startswith("rnn.") or not pretraining}
        self._moved = of_model | {f"decoder.{name}": weight for name, weight in self._decoder.items()}
        rates = torch.tensor([config.learning_rate for config in self.configs], dtype=torch.float64)
        self._adam = Adam(list(self._moved.values()), rates, steps)
        self.keeping = self._keeping(steps)
        self._recorded_step = Graphed(self._step) if self.device.type == "cuda" else self._step

    def _step(self, rows: Tensor, ends: Tensor | None = None) -> Tensor:
        """A gradient step on the sequences at ``rows (R, n)``; returns each loss that is minimised of each run."""
        inputs, targets = self.learning.take(rows)
        h, states = self.ensemble.network.advance(inputs)
        losses, weights = [], []
        if self._phase == "training":
            losses.append(self.task.loss(self.model.readout(h[-self.task.answers :]), targets))
            weights.append(1.0)
        if self.auxiliary is not None and ends is not None:
            losses.append(self.auxiliary.loss(inputs, states, ends))
            weights.append(self.auxiliary.weight if weights else 1.0)
        total = torch.stack([weight * loss.sum() for weight, loss in zip(weights, losses, strict=True)]).sum()
        gradients = torch.autograd.grad(total, list(self._moved.values()))
        self._adam.step(self.keeping.added_to(gradients))
        return torch.stack(losses).detach()

    def _keeping(self, steps: int) -> Keeping:
        """The term that keeps attractors, after so many steps of a phase."""
        options: dict[str, Any] = {
            "seeds": [config.seed for config in self.configs],
            "target": [config.target for config in self.configs],
            "steps": steps,
        }
        moved = list(self._moved.values())
        return Keeping(self.shared.keep, self.ensemble, lambda: self.sequences, moved, **options)

    def _kept(self) -> dict[str, dict[str, Tensor]]:
        """The tensors of a checkpoint besides the weights."""
        means, squares = (dict(zip(self._moved, s, strict=True)) for s in (self._adam.means, self._adam.squares))
        decoder = {name: weight.detach() for name, weight in self._decoder.items()}
        adam = {"means": means, "squares": squares}
        return {"best": self._best_weights, "decoder": decoder, **adam, "keep": self.keeping.tensors}

    def _warm_up(self, members: list[int], on_step: OnWarmupStep) -> list[dict[str, Any]]:
        shared, configs = self.shared, [self.configs[index] for index in members]
        ensemble = self.ensemble if members == self._all else self.ensemble.select(members)
        sequences = self.sequences.of_members(members)
        if shared.warmup_sequences == "random":
            sequences = TrainingSequences.random(configs, len(sequences), self.device)
        draws = [generator(config.seed, "warmup") for config in configs]
        if shared.preparation is not None:
            done = prepare(ensemble, sequences, method=shared.preparation, generator=draws)
            self._replace(members, ensemble)
            return [self.prepared(done, len(members)) for _ in members]
        course = Course(
            partial(self.measured.vaa, members, ensemble), shared.warmup_vaa_every, shared.most_warmup_steps
        )

        def watched(step: WarmupStep) -> None:
            course.after(step.step)
            on_step(configs, step)

        history = warmup(
            ensemble,
            sequences,
            **self.warmup_options,
            target=[config.target for config in configs],
            generator=draws,
            on_step=watched,
        )
        self._replace(members, ensemble)
        return course.ended(history)

    def _replace(self, members: list[int], ensemble: Ensemble) -> None:
        """Give some of the runs the weights of an ensemble of them, if it is not that of all runs."""
        if ensemble is not self.ensemble:
            self.ensemble.replace(members, ensemble)

    @property
    def _all(self) -> list[int]:
        """The numbers of the runs."""
        return list(range(len(self.configs)))

    @property
    def measured(self) -> Measured:
        return Measured([config.seed for config in self.configs], self.sequences, self.measure_options, self._done)

    def _follow(self) -> list[int | None]:
        """Record the attractors of each run. Returns how many there are."""
        each = zip(self.following, self.measured.attractors(self._all, self.ensemble), strict=True)
        options: dict[str, Any] = {"eps": self.shared.eps, "saddles": self.shared.attractors_saddles}
        return [following.add(self._done, found, **options) for following, found in each]

    def validate(self) -> Scores:
        """Scores on the validation sets."""
        return self._evaluate(self.learning, self.rows.validation)

    @torch.no_grad()
    def reconstruct(self) -> list[float] | None:
        """The auxiliary loss of each run on its validation set; ``None`` for runs without such a loss."""
        if self.auxiliary is None:
            return None
        rows, losses = self.rows.validation, torch.zeros(len(self.configs), dtype=torch.float64, device=self.device)
        ends = self.auxiliary.ends(rows.shape[1], self.device, "validation")
        at_once = self._at_once
        with self.shared.computing():
            for part, end in zip(rows.split(at_once, dim=-1), ends.split(at_once, dim=-1), strict=True):
                inputs = self.learning.take(part).inputs
                _, states = self.ensemble.network.advance(inputs)
                losses += self.auxiliary.loss(inputs, states, end) * (part.shape[1] / rows.shape[1])
        return losses.tolist()

    def _keep_best(self, losses: Sequence[float]) -> None:
        """Remember the weights of the runs whose validation loss is the lowest so far."""
        better = [loss < best["loss"] for loss, best in zip(losses, self.best, strict=True)]
        self.best = [
            {"epoch": self._done, "loss": loss} if improved else best
            for loss, best, improved in zip(losses, self.best, better, strict=True)
        ]
        which = torch.tensor(better, device=self.device)
        for name, tensor in self._best_weights.items():
            tensor[which] = self._weights[name].detach()[which]

    def _test(self) -> tuple[Scores, Scores | None]:
        """Scores of the best weights on the test sets, and on the selection sets where there are any.

        The best weights replace the last ones, which are not needed any more.
        """
        testing = sets(self.configs, "test", self.device)
        rows = torch.arange(testing.size, device=self.device).expand(len(self.configs), -1)
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(self._best_weights[name])
        selected = self._evaluate(self.learning, self.rows.selection) if self.rows.selection.numel() else None
        return self._evaluate(testing, rows), selected

    @property
    def _at_once(self) -> int:
        """How many sequences of each run are evaluated at once."""
        return max(1, EVALUATED_AT_ONCE // (self.task.length * len(self.configs) * self.shared.hidden_size))

    @torch.no_grad()
    def _evaluate(self, data: Sets, rows: Tensor) -> Scores:
        losses: Any = 0.0
        accuracies: Any = 0.0
        with self.shared.computing():
            for part in rows.split(self._at_once, dim=1):
                inputs, targets = data.take(part)
                outputs = self.model(inputs, self.task.answers)
                share = part.shape[1] / rows.shape[1]
                losses = losses + share * self.task.loss(outputs, targets).double()
                accuracy = self.task.accuracy(outputs, targets)
                accuracies = None if accuracy is None else accuracies + share * accuracy.double()
        return losses.tolist(), None if accuracies is None else accuracies.tolist()


def _columns(names: Sequence[str], values: Sequence[Sequence[Any] | None]) -> dict[str, Sequence[Any]]:
    """A column for each name, of values that are ``None`` for some runs."""
    rows = [(None,) * len(names) if value is None else value for value in values]
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def _scores(part: str, scores: Scores, run: int) -> dict[str, float | None]:
    """The scores of one run by name."""
    losses, accuracies = scores
    return {f"{part}_loss": losses[run], f"{part}_accuracy": None if accuracies is None else accuracies[run]}


def _part(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{part}."): tensor for name, tensor in tensors.items() if name.startswith(f"{part}.")}
