"""The recurrent parts of a model: which there are, and what each is called."""

from collections.abc import Iterator

from torch import nn

from multistable.cells.base import Cell
from multistable.dynamics.system.directions import Direction, directions
from multistable.networks.ensemble import Ensemble
from multistable.networks.rnn import RNN
from multistable.networks.wrappers import unwrapped

RECURRENT = (nn.RNNBase, nn.RNNCellBase, RNN, Cell, Ensemble)
"""The modules that are found by their kind."""


def recurrent_parts(model: nn.Module) -> dict[str, nn.Module]:
    """The recurrent parts of a model, by name: what :func:`measure` and :func:`warmup` act on.

    Found are ``torch.nn.RNN``, ``GRU``, ``LSTM`` and their cells, ``ms.RNN``, ``ms.Cell`` and ``ms.Ensemble``, at any
    depth, also under ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel``. Names are those of
    ``model.named_modules()``, without what such wrappers add; a model that is itself recurrent has one part with an
    empty name. Each direction of a bidirectional network is a part of its own: ``"rnn.forward"`` and
    ``"rnn.backward"``, or with several layers ``"rnn.0.forward"`` and so on.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    parts: dict[str, nn.Module] = {}
    for name, module in modules_with_state(model).items():
        parts |= {joined(name, direction): part for direction, part in directions(module).items()}
    return parts


def modules_with_state(model: nn.Module) -> dict[str, nn.Module]:
    """The recurrent modules that a model calls, by name; one that is bidirectional is a single entry."""
    found: dict[int, tuple[str, nn.Module]] = {}
    for name, module in _walk(model, ""):
        found.setdefault(id(module), (name, module))
    return dict(found.values())


def module_of_name(model: nn.Module, name: str) -> nn.Module | None:
    """The module of a model that has this name without what wrappers add; ``None`` if there is none."""
    module = unwrapped(model)
    for step in name.split(".") if name else ():
        children = module._modules
        if children.get(step) is None:
            return None
        module = unwrapped(children[step])
    return module


def joined(*names: str) -> str:
    """Parts of a dotted name, of which some may be empty."""
    return ".".join(name for name in names if name)


def looked_for(model: nn.Module) -> str:
    """What an error says about a model without recurrent parts."""
    kinds = sorted({type(module).__name__ for module in model.modules()})
    return (
        f"{type(model).__name__} has no recurrent layers that could be found: looked for, at any depth, and accepted "
        "are torch.nn.RNN, GRU, LSTM and their cells, ms.RNN, ms.Cell and ms.Ensemble, and modules called as "
        "(input, state) -> (output, state), inside a model by part='name'. "
        f"It consists of {', '.join(kinds)}"
    )


def _walk(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    module = unwrapped(module)
    if isinstance(module, (*RECURRENT, Direction)):
        yield name, module
        return
    for child_name, child in module._modules.items():
        if child is not None:
            yield from _walk(child, joined(name, child_name))
