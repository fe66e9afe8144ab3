"""``ms.Keep``: a term for the loss of a training, which keeps the attractors that a warmup has made.

Every few steps of the training, states that sequences lead to stabilise for a while under constant inputs, as in a step
of a warmup. Their VAA* falls within few steps when attractors are being lost. Then the term pushes the states apart.

The default warmup looks further: how far states still move tells whether they will stay apart. That is no measure of
what a training has to keep. After the paper's procedure states are apart and go on moving, so that it finds next to
nothing to keep where VAA is 1.
"""

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from multistable.arguments import count, positive_integers, positive_number, shown
from multistable.dynamics.measure.algorithm_2_reachable_states import states_and_times
from multistable.dynamics.measure.vaa_and_vaa_star import distances
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.contexts import ieee_float32
from multistable.dynamics.system.directions import directions
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.inputs import check_inputs
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.models import Turn, at_least, each_part, read_once
from multistable.dynamics.system.modules import example_of
from multistable.dynamics.system.sequences import AtMost, PaddedSequences, SequenceSet
from multistable.dynamics.system.system import System, at_time, flat, map_states, members_of, studying
from multistable.dynamics.warmup.goal import Goal
from multistable.dynamics.warmup.gradient_steps import for_weights, normalised, warmable_parameters
from multistable.networks.wrappers import unwrapped

# The default number of states of a look, and under how many inputs each of them stabilises: a network may lose its
# attractors under one input and not under another.
STATES, INPUTS = AtMost(16), 2
# A fraction of this does not keep the attractors of LSTMs that the paper's procedure has warmed up, where losses are of
# the order of 1 (docs/results/attractors_lost.md).
WEIGHT = 20.0
# The term goes on where VAA* is below ALERT of the target, and off after so many looks in a row at the target.
ALERT, SAFE_LOOKS = 0.9, 3
# Projections of equal inputs differ by no more than this.
ROUNDING = 1e-12


class KeepLook(NamedTuple):
    """A look of :class:`Keep` at a network; ``...`` is empty for a single network and R for an ensemble.

    Attributes:
        call: the number of the call, counted from 1; 0 for the look when the term was made.
        part: the name of the part of a model; empty if there is one alone.
        vaa_star: the VAA* of the layer with the lowest, ``(...)``.
        on: whether the term is on from this look on, ``(...)``.
    """

    call: int
    part: str
    vaa_star: Tensor
    on: Tensor


@dataclass
class _Watched:
    """What is known of a network; every tensor is ``(...)``, on the CPU."""

    seeds: Tensor
    """The draws of a look follow from these and from the number of the call."""
    on: Tensor
    """Whether the term is on."""
    safe: Tensor
    """How many looks in a row have found VAA* at its target."""

    @classmethod
    def of(cls, seeds: Tensor) -> "_Watched":
        return cls(seeds, torch.zeros_like(seeds, dtype=torch.bool), torch.zeros_like(seeds))

    def saw(self, value: Tensor, target: Tensor) -> None:
        """Switch the term on or off by the VAA* ``value (...)``."""
        self.safe = torch.where(value >= target, self.safe + 1, 0)
        self.on = torch.where(self.on, self.safe < SAFE_LOOKS, value < ALERT * target)


class Keep:
    """A term for the loss of a training, which keeps the attractors that a warmup has made.

    ::

        keep = ms.Keep(rnn, sequences)
        for x, y in loader:
            loss = task_loss(rnn(x), y) + keep()
            ...

    The term lies in [0, ``weight * target``]: ``weight`` times what is missing of the VAA* ``target``, of the layer
    that has the lowest. Between looks, and where the attractors are safe, it is zero and has no gradient. It goes on
    where VAA* falls below nine tenths of its target, and off after three looks in a row that find it there.

    The gradient is computed in the call itself, in float32, whatever the modes and flags of the training are. Its
    direction is that in which states move apart, and its norm is the value of the term, so that it cannot explode. Only
    recurrent layers have a gradient, and of double layers the half that was warmed up. Calls without gradients
    (``torch.no_grad``) give zero and do not count.

    Args:
        rnn: the network, or a model with recurrent parts inside, see :func:`warmup`. It is the network itself that is
            looked at: it may be trained, moved and given other weights. All members of an ensemble are looked at at
            once, each as if alone, and the term is the sum of theirs.
        sequences: the input sequences, or the batches that the model is run on, see :func:`measure`. They are read
            once; a model is run on some of its batches again at every look.
        target: the VAA* to keep, for a network with a wanted VAA that one; an ensemble also takes a list with one for
            each member.
        weight: of the term beside the loss.
        every: there is a look at every so many calls.
        inputs: the constant inputs, see :func:`measure`.
        batch_size: how many states are looked at, each under four inputs. If it is not given 16, or all sequences if
            there are fewer.
        stabilisation: the steps for which they are followed: for so long they are kept apart.
        eps: the tolerance of VAA*.
        generator: where the draws of all looks follow from; see :func:`measure`.
        part: see :func:`measure`.
        forward: see :func:`measure`.

    Attributes:
        calls: how many calls there were.
        history: the looks, a list of named tuples ``call``, ``part``, ``vaa_star`` and ``on``.
    """

    def __init__(
        self,
        rnn: nn.Module,
        sequences: Any,
        *,
        target: float | Sequence[float] = 0.95,
        weight: float = WEIGHT,
        every: int = 4,
        inputs: Any = "normal",
        batch_size: int = STATES,
        stabilisation: int = 100,
        eps: float = 1e-4,
        generator: Generators = None,
        part: str | None = None,
        forward: Forward | None = None,
    ) -> None:
        self.every, self._size, self._period = positive_integers(
            every=every, batch_size=batch_size, stabilisation=stabilisation
        )
        self._goal = Goal.of(target, "fast", members=members_of(rnn))
        self._weight, self._eps = positive_number("weight", weight), positive_number("eps", eps)
        check_inputs(inputs)
        self._rnn, self._inputs, self._generator = rnn, inputs, generator
        self._how: dict[str, Any] = {"part": part, "forward": forward, "least": at_least(self._size)}
        self._sequences = read_once(rnn, sequences, **self._how)
        self._watched: dict[str, _Watched] = {}
        self.calls = 0
        self.history: list[KeepLook] = []
        self._look()
        if not self._watched:
            raise ValueError("rnn must have recurrent parameters that require gradients, got none")

    @property
    def on(self) -> Any:
        """Whether the term is on; for an ensemble a list with one entry for each member, for several parts a dict."""
        found = {name: watched.on.tolist() for name, watched in self._watched.items()}
        return found if len(found) > 1 else next(iter(found.values()))

    def __call__(self) -> Tensor:
        """The term, a scalar on the network's device."""
        if torch.is_grad_enabled():
            self.calls += 1
            if self.calls % self.every == 0:
                return self._look()
        return example_of(self._rnn).new_zeros(())

    @interrupted_once
    def _look(self) -> Tensor:
        """A look at every network that is due."""
        terms = each_part(self._term, self._rnn, self._read(), wanted=self._size, **self._how)
        return torch.stack(list(terms.values())).sum() if isinstance(terms, dict) else terms

    def _read(self) -> Any:
        """What a look reads: of batches others each time, and where directions read for each other few sequences."""
        sequences = self._sequences
        if isinstance(sequences, list):
            first = self.calls // self.every % len(sequences)
            return sequences[first:] + sequences[:first]
        if len(directions(unwrapped(self._rnn))) == 1:
            return sequences
        some = torch.randperm(len(sequences), generator=torch.Generator().manual_seed(self.calls), device="cpu")[
            : self._size
        ]
        return PaddedSequences(*sequences.select(some), before=sequences.states_before(some))

    def _term(self, network: nn.Module, sequences: Any, turn: Turn) -> Tensor:
        """The term of a network, by a look at it."""
        if not any(p.requires_grad for p in network.parameters()):
            return example_of(network).new_zeros(())
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            ieee_float32(),
            studying(network, sequences, batch_size=self._size, inputs=self._inputs) as (system, data),
        ):
            if min(self._size, len(data)) < 2:
                raise ValueError(
                    "sequences and batch_size must be at least two, since states are kept apart, "
                    f"got {len(data)} sequences and batch_size = {int(self._size)}"
                )
            parameters = warmable_parameters(network, system, "Keep")
            watched = self._watched.get(turn.name) or _Watched.of(Draws(self._generator, system.members).integer(2**31))
            was_on = bool(watched.on.any())
            loss, value = self._apart(system, data, watched, was_on)
            watched.saw(value, self._goal.target)
            if watched.on.any() and not was_on:
                loss, _ = self._apart(system, data, watched, True)
            size = torch.where(watched.on, self._weight * (self._goal.target - value).clamp(min=0), 0)
            term = _with_gradient(size.to(system.device, system.dtype), loss, parameters, system)
        self._watched[turn.name] = watched
        self.history.append(KeepLook(self.calls, turn.name, value, watched.on))
        return term

    def _apart(
        self, system: System, data: SequenceSet, watched: _Watched, differentiable: bool
    ) -> tuple[Tensor, Tensor]:
        """How far states are from staying apart, and the VAA* of the layer with the lowest; both ``(...)``.

        The first is the mean over states of -log VAA*_i, but eps / d is not cut at 1, so that its gradient does not
        vanish where states coincide. With a wanted VAA it is, since states may share an attractor.
        """
        seeds = watched.seeds.reshape(-1).tolist()
        draws = Draws([torch.Generator().manual_seed(seed + self.calls) for seed in seeds], system.members)
        n = min(self._size, len(data))
        itself = torch.eye(n, dtype=torch.bool, device=system.device)
        wanted = self._goal.wanted[..., None, None, None].to(system.device)
        with torch.set_grad_enabled(differentiable):
            system = system.with_present_weights()
            with torch.no_grad():
                indices = draws.batch(len(data), n)
                reached, times = states_and_times(system, data, indices, draws)
            # Equal histories lead to equal states, which cannot stay apart.
            twins = (equal_histories(data, indices, times).to(system.device) & ~itself).unsqueeze(-3)
            losses, values = [], []
            for index, (layer, state) in enumerate(zip(system.layers, reached, strict=True)):
                start = map_states(lambda x: torch.cat([x] * INPUTS, dim=-2), [layer.warmable_state(state)])[0]
                u = system.constant_inputs(INPUTS, draws, layer=index).repeat_interleave(n, dim=-2)
                _, over_time = layer.warmable(u.expand(self._period, *u.shape), start)
                end = flat(at_time([over_time], -1)).unflatten(-2, (INPUTS, n))
                d = distances(end.tanh()).masked_fill(itself, self._eps).clamp(min=torch.finfo(end.dtype).eps)
                ratios = (self._eps / d).masked_fill(twins, 0)
                cut = ratios.clamp(max=1)
                summed = torch.where(wanted, cut, ratios).sum(dim=-1)
                losses.append(summed.log().mean(dim=(-2, -1)))
                values.append((1 / cut.sum(dim=-1)).mean(dim=(-2, -1)))
        value = torch.stack(values).detach().amin(dim=0).nan_to_num(0.0)  # of states that diverge
        return torch.stack(losses).mean(dim=0), value.double().cpu()

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on as if the training had not stopped: numbers, lists and dicts, as JSON has them."""
        return {
            "calls": self.calls,
            "networks": {
                name: {entry.name: getattr(watched, entry.name).tolist() for entry in fields(watched)}
                for name, watched in self._watched.items()
            },
            "history": [[*look[:2], look.vaa_star.tolist(), look.on.tolist()] for look in self.history],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a :meth:`state_dict` of a term that was made for the same network with the same arguments."""
        try:
            calls = count("calls", state_dict["calls"])
            watched = {
                name: _Watched(*(torch.tensor(kept[entry.name], device="cpu") for entry in fields(_Watched)))
                for name, kept in state_dict["networks"].items()
            }
            history = [
                KeepLook(
                    call, part, torch.tensor(value, dtype=torch.float64, device="cpu"), torch.tensor(on, device="cpu")
                )
                for call, part, value, on in state_dict["history"]
            ]
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            raise ValueError(f"state_dict must be one that ms.Keep gave, got {shown(state_dict)}") from error
        if _outline(watched) != _outline(self._watched):
            raise ValueError(
                "state_dict must be that of a term for the same networks: its parts and members, "
                f"{_outline(watched)}, are not {_outline(self._watched)}"
            )
        self.calls, self._watched, self.history = calls, watched, history

    def __repr__(self) -> str:
        return f"{type(self).__name__}(calls={self.calls}, looks={len(self.history)}, on={reprlib.repr(self.on)})"

    def __str__(self) -> str:
        """What happened, in words: a line for each network."""
        lines = []
        for part in self._watched:
            looks = [look for look in self.history if look.part == part]
            for name, course in _courses(part, looks):
                values, ons = zip(*course, strict=True)
                now = ", and now" if ons[-1] else ""
                lines.append(
                    f"{name}VAA* {values[-1]:.3f}, at worst {min(values):.3f}; on at {sum(ons)} of {len(ons)} "
                    f"looks{now} ({self.calls} calls)"
                )
        return "\n".join(lines)


def _courses(part: str, looks: Sequence[KeepLook]) -> Iterator[tuple[str, list[tuple[float, bool]]]]:
    """What to call each network of a part, and its VAA* and whether the term was on at each look at it."""
    columns = [zip(look.vaa_star.reshape(-1).tolist(), look.on.reshape(-1).tolist(), strict=True) for look in looks]
    for member, course in enumerate(zip(*columns, strict=True)):
        single = not looks[0].on.dim()
        name = " ".join([part] * bool(part) + [f"network {member}"] * (not single))
        yield f"{name}: " if name else "", list(course)


def equal_histories(data: SequenceSet, indices: Tensor, times: Tensor) -> Tensor:
    """Which of the sequences at ``indices (..., n)`` are equal up to the time steps ``times (..., n)``.

    Their inputs are compared by one random projection of each.

    Returns:
        ``(..., n, n)`` on the CPU.
    """
    u, _ = data.select(indices)
    onto = torch.randn(u.shape[-1], generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu")
    steps = torch.arange(len(u), device="cpu").view(-1, *[1] * times.dim())
    read = (u.double() * onto.to(u.device)).sum(dim=-1).masked_fill((steps >= times).to(u.device), 0)
    apart = (read.unsqueeze(-1) - read.unsqueeze(-2)).abs().amax(dim=0).cpu()
    return (apart <= ROUNDING * (1 + apart.max())) & (times.unsqueeze(-1) == times.unsqueeze(-2))


def _outline(watched: Mapping[str, _Watched]) -> dict[str, list[str]]:
    """What two states of a term must have in common."""
    tensors = {name: [getattr(each, entry.name) for entry in fields(each)] for name, each in watched.items()}
    return {name: [f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in each] for name, each in tensors.items()}


def _with_gradient(size: Tensor, loss: Tensor, parameters: Sequence[nn.Parameter], system: System) -> Tensor:
    """The sum of ``size (...)`` as a tensor, whose gradient goes down ``loss (...)`` and has the norm ``size``."""
    if not loss.requires_grad or not size.any():
        return size.sum()
    found = torch.autograd.grad(loss.sum(), parameters, allow_unused=True)
    gradients, finite = normalised(list(found), system)
    size = torch.where(finite.to(size.device), size, 0)
    scaled = [
        (p * (g * for_weights(size, g)).to(p)).sum()
        for p, g in zip(parameters, gradients, strict=True)
        if g is not None
    ]
    moving = torch.stack([move.to(size) for move in scaled]).sum()
    return size.sum() + moving - moving.detach()
