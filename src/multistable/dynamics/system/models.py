"""Any model with recurrent parts inside: it is run on batches, and what each part reads is kept."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import tee
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from multistable.arguments import check_callable
from multistable.dynamics.system.batches import Forward, batches_of, call, columns, is_rows, peeked
from multistable.dynamics.system.contexts import evaluating, ieee_float32
from multistable.dynamics.system.directions import directions, read_by
from multistable.dynamics.system.interrupts import hold_back
from multistable.dynamics.system.modules import example_of
from multistable.dynamics.system.parts import joined, looked_for, module_of_name, modules_with_state
from multistable.dynamics.system.reading import global_randomness_kept, sequence_set
from multistable.dynamics.system.reads import Reads
from multistable.dynamics.system.running import Run, running
from multistable.dynamics.system.sequences import AtMost, SequenceSet
from multistable.dynamics.system.system import network_of, sequences_of
from multistable.networks.wrappers import unwrapped

Result = TypeVar("Result")

WANTED = 1000
"""How many sequences of each part are kept, unless the caller needs more."""


@dataclass(frozen=True)
class Part:
    """A network inside a model.

    Attributes:
        name: what it is called; empty for the model itself.
        module: the name of the module that the model calls.
        direction: which direction of it the network is; empty if it has one alone.
        network: the network.
    """

    name: str
    module: str
    direction: str
    network: nn.Module


class Turn(NamedTuple):
    """A network's turn among those of a call.

    Attributes:
        name: what to call it; empty if it is the only one.
        share: which share of the time that is left it may take.
    """

    name: str = ""
    share: float = 1.0

    @classmethod
    def of(cls, index: int, names: Sequence[str]) -> "Turn":
        """The turn of one of several."""
        return cls(names[index] if len(names) > 1 else "", 1 / (len(names) - index))

    def of_call(self, what: str) -> str:
        """What is going on, and with what."""
        return f"{what} of {self.name}" if self.name else what


def each_part(
    act: Callable[[nn.Module, Any, Turn], Result],
    rnn: nn.Module,
    sequences: Any,
    *,
    part: str | None = None,
    forward: Forward | None = None,
    least: int = 1,
    driven: bool = True,
    wanted: int = WANTED,
    changes: bool = False,
) -> Result | dict[str, Result]:
    """The result of ``act(network, sequences, turn)`` for a network, or for the parts of a model.

    Args:
        act: what to do with a network and what it reads.
        rnn: a network, or a model with recurrent parts inside.
        sequences: what the network reads, or batches that the model is run on.
        part: the name of the part to act on; all if not given.
        forward: ``forward(model, batch)`` runs the model on a batch.
        least: how many sequences ``act`` needs.
        driven: whether it needs any. Otherwise it is given ``None`` where there are none.
        wanted: how many sequences of each part are kept, unless ``act`` needs more.
        changes: whether ``act`` changes the network. What a part reads is then found again after each change, parts
            whose parameters require no gradients are left out, and if ``act`` fails all parts are as before.

    Returns:
        One result if there is one part, else a dict of them by name.
    """
    rnn = _checked(rnn, forward)
    if not driven and sequences is None and forward is None:
        return act(_only_part(rnn, part), None, Turn())
    if part is None and forward is None:
        bare, sequences = is_network(rnn, sequences)
        if bare:
            return _each_direction(act, rnn, _of_rows(sequences), changes)
    parts = _parts(rnn, part)
    if changes:
        able = [each for each in parts if any(p.requires_grad for p in each.network.parameters())]
        parts = able or parts
    modules = {each.module: module_of_name(rnn, each.module) for each in parts}
    run = _run(rnn, forward, wanted, least)
    reads, kept = run.over(batches_of(sequences, rnn), modules)
    parts = _called(parts, reads, rnn, named=part is not None)
    results: dict[str, Result] = {}
    with all_or_none([each.network for each in parts] if changes else []):
        for index, each in enumerate(parts):
            if changes and index:
                reads, _ = run.over(iter(kept), modules)
            with _named(each.name if len(parts) > 1 else "", rnn):
                data = _read_by(module_of_name(rnn, each.module), each.direction, reads[each.module].sequences())
                results[each.name] = act(each.network, data, Turn.of(index, [each.name for each in parts]))
    return next(iter(results.values())) if len(results) == 1 else results


def parts_of_each(
    models: Sequence[nn.Module],
    sequences: Any,
    *,
    part: str | None = None,
    forward: Forward | None = None,
    driven: bool = True,
) -> list[Any]:
    """The network of each of several models of one form, and what it reads of the same batches, ``(network, data)``.
    Where the models have several parts, for each model a dict of these by name. The arguments are those of
    :func:`each_part`.
    """

    def taken(network: nn.Module, data: Any, _: Turn) -> tuple[nn.Module, Any]:
        return network, data

    choices: dict[str, Any] = {"part": part, "forward": forward, "driven": driven}
    if sequences is None or len(models) == 1:
        return [each_part(taken, model, sequences, **choices) for model in models]
    first = unwrapped(models[0])
    bare, sequences = (False, sequences) if part or forward else is_network(first, sequences)
    if bare:  # once: an iterator has them no second time, and a data loader in another order
        rows = _of_rows(sequences)
        data = sequence_set(rows, batch_first=bool(getattr(first, "batch_first", False)))
        return [each_part(taken, model, data, **choices) for model in models]
    batches = tee(batches_of(sequences, first), len(models))
    return [each_part(taken, *pair, **choices) for pair in zip(models, batches, strict=True)]


def _only_part(model: nn.Module, part: str | None) -> nn.Module:
    """The network that is meant where nothing is there to run a model on."""
    if part is None and ("" in modules_with_state(model) or _takes_state(model)):
        return model
    parts = _parts(model, part)
    if len(parts) > 1:
        names = ", ".join(repr(each.name) for each in parts)
        raise ValueError(f"part must choose whose states these are, one of {names}, got {part!r}")
    return parts[0].network


def read_once(
    rnn: nn.Module, sequences: Any, *, part: str | None = None, forward: Forward | None = None, least: int = 1
) -> SequenceSet | list[Any]:
    """What :func:`each_part` can be given again and again: all sequences of a network, or some batches for a model.

    Arguments are as for :func:`each_part`. Of the batches there are as many as it would run the model on.
    """
    rnn = _checked(rnn, forward)
    if part is None and forward is None:
        bare, sequences = is_network(rnn, sequences)
        if bare:
            return sequences_of(network_of(rnn), _of_rows(sequences))
    parts = _parts(rnn, part)
    modules = {each.module: module_of_name(rnn, each.module) for each in parts}
    reads, kept = _run(rnn, forward, WANTED, least).over(batches_of(sequences, rnn), modules)
    _called(parts, reads, rnn, named=part is not None)
    return kept


def _run(rnn: nn.Module, forward: Forward | None, wanted: int, least: int) -> Run:
    return Run(rnn, forward or call, max(wanted, least), least, explained=forward is None)


def _checked(rnn: nn.Module, forward: Forward | None) -> nn.Module:
    """The module without what stands around it, if it is one and ``forward`` can run it."""
    if not isinstance(rnn, nn.Module):
        raise TypeError(f"rnn must be a torch.nn.Module, got {type(rnn).__name__}")
    if forward is not None:
        check_callable("forward", forward, "called as forward(model, batch)")
    return unwrapped(rnn)


def _each_direction(
    act: Callable[[nn.Module, Any, Turn], Result], rnn: nn.Module, sequences: Any, changes: bool
) -> Result | dict[str, Result]:
    """The result for a network, or for each direction of one."""
    networks = directions(rnn)
    if len(networks) == 1:
        return act(rnn, sequences, Turn())
    data = sequence_set(sequences, batch_first=bool(getattr(rnn, "batch_first", False)))
    results = {}
    with all_or_none([rnn] if changes else []):
        for index, (name, network) in enumerate(networks.items()):
            with _named(name, rnn):
                results[name] = act(network, _read_by(rnn, name, data), Turn.of(index, list(networks)))
    return results


def _read_by(module: Any, direction: str, data: SequenceSet) -> SequenceSet:
    if not direction:
        return data
    with torch.inference_mode(False), torch.no_grad(), ieee_float32(), evaluating(module):
        return read_by(module, direction, data)


def is_network(rnn: nn.Module, sequences: Any) -> tuple[bool, Any]:
    """Whether sequences are for this module as one network, not batches for a model; and these, as they were."""
    found = modules_with_state(rnn)
    if "" in found or isinstance(sequences, SequenceSet):  # such a set is made for networks alone
        return True, sequences
    takes_state = _takes_state(rnn)
    if not found:
        if not takes_state:
            raise TypeError(looked_for(rnn))
        return True, sequences
    if not takes_state:
        return False, sequences
    with global_randomness_kept():
        first, sequences = peeked(sequences)
    return _keeps_convention(rnn, first), sequences


def _takes_state(module: nn.Module) -> bool:
    """Whether the module can be called with an input and a state."""
    try:
        inspect.signature(module.forward).bind(None, None)
    except TypeError:
        return False
    return True


def _keeps_convention(module: nn.Module, first: Any) -> bool:
    """Whether a model is itself a network ``(input, state) -> (output, state)`` of the sequences that it is given.

    What it does to a few steps at once has to be what it does to them in two pieces, with the state handed on.
    """
    batch_first = bool(getattr(module, "batch_first", False))
    try:
        given = first if isinstance(first, Tensor | SequenceSet) else [first]
        data = sequence_set(given, batch_first=batch_first)
        like = example_of(module)
        u, _ = data.select(torch.arange(min(2, len(data)), device="cpu"))
        u = u[:4].to(like)
        u = torch.cat([u] * 4)[:4]
        with running(module):

            def after(u: Tensor, state: Any) -> Any:
                return module(u.transpose(0, 1) if batch_first else u, state)[1]

            whole, pieces = after(u, None), after(u[2:], after(u[:2], None))
            pairs = [(whole, pieces)] if isinstance(whole, Tensor) else list(zip(whole, pieces, strict=True))
            return bool(pairs) and all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in pairs)
    except Exception:  # of any kind: the module is no such network
        return False


def _of_rows(sequences: Any) -> Any:
    """The sequences of a data set of rows that are dicts: the one column that is ``(time, features)``."""
    if not is_rows(sequences) or not len(sequences) or not isinstance(sequences[0], dict):
        return sequences
    found = columns(sequences[0])
    names = [name for name, column in found.items() if column.dim() == 2]
    if len(names) != 1:
        shapes = ", ".join(f"{name} {tuple(column.shape)}" for name, column in found.items())
        raise ValueError(
            "a data set of rows for a network must have one column of (time, features), got "
            f"{shapes or 'no numbers'}; forward=lambda rnn, batch: ... chooses"
        )
    (name,) = names
    count = min(len(sequences), WANTED)
    return [columns(sequences[index])[name] for index in range(count)]


def _parts(model: nn.Module, wanted: str | None) -> list[Part]:
    """The parts of a model to act on."""
    modules = modules_with_state(model)
    found = [
        Part(joined(name, direction), name, direction, network)
        for name, module in modules.items()
        for direction, network in directions(module).items()
    ]
    if wanted is None:
        if not found:
            raise TypeError(looked_for(model))
        return found
    chosen = [each for each in found if wanted in (each.name, each.module)]
    other = module_of_name(model, wanted) if isinstance(wanted, str) else None
    if chosen or other is None:
        if not chosen:
            names = ", ".join(repr(each.name) for each in found) or "none"
            raise ValueError(f"part must be the name of a recurrent part, {names}, or of a module, got {wanted!r}")
        return chosen
    return [Part(wanted, wanted, "", other)]


def _called(parts: list[Part], reads: dict[str, Reads], model: nn.Module, named: bool) -> list[Part]:
    """The parts that the model called, in the order in which it did."""
    order = [name for name in reads if len(reads[name])]
    called = sorted((each for each in parts if each.module in order), key=lambda each: order.index(each.module))
    idle = ", ".join(repr(each.name) for each in parts if each not in called)
    if idle:
        message = (
            f"{type(model).__name__} did not call {idle} on these batches. A part is seen where it is called as "
            "part(input, state), not by part.forward(...); forward=lambda model, batch: ... runs the model otherwise"
        )
        if named or not called:
            raise ValueError(message)
        warnings.warn(f"{message}. It is left out", stacklevel=4)
    return called


@contextmanager
def all_or_none(networks: Sequence[nn.Module]) -> Iterator[None]:
    """Put back all parameters of the networks if an exception passes."""
    before = [(p, p.detach().clone()) for network in networks for p in network.parameters()]
    try:
        yield
    except BaseException:
        hold_back()
        with torch.inference_mode(False), torch.no_grad():
            for p, value in before:
                p.copy_(value)
        raise


@contextmanager
def _named(name: str, model: nn.Module) -> Iterator[None]:
    """Say in an error to which part of a model it belongs."""
    try:
        yield
    except Exception as error:
        if name:
            error.add_note(f"in the part {name!r} of {type(model).__name__}")
        raise


def at_least(batch_size: int) -> int:
    """How many sequences a batch of this size needs: of a default size none in particular."""
    return 1 if isinstance(batch_size, AtMost) else batch_size
