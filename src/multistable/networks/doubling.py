"""Double layers in place of the recurrences of an existing model."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from multistable.networks.cell_specs import options_of
from multistable.networks.convert import form_of, torch_cell, torch_recurrences
from multistable.networks.layers import Double
from multistable.networks.rnn import RNN
from multistable.networks.wrappers import unwrapped


def doubled(model: nn.Module, *, generator: torch.Generator | None = None) -> Any:
    """Replace every ``torch.nn.LSTM``, ``GRU``, ``RNN`` and ``ms.RNN`` by double layers of the same sizes, in place.

    Of each layer one half of the units is warmed up by :func:`warmup`, and the other stays as it is initialised
    (:class:`Double`). What calls the modules goes on as before: layouts, packed sequences, states, dropout, both
    directions, device, type and mode are the same. The weights are new, so do this before training, and make the
    optimiser afterwards.

    Args:
        model: the model.
        generator: where the initial weights are drawn from; PyTorch's global generator if not given.

    Returns:
        The model; in place of a model that is itself such a recurrence the double network.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.RNNBase | RNN)]
    if not found:
        raise TypeError(f"{type(model).__name__} has no torch.nn.LSTM, GRU or RNN and no ms.RNN that could be replaced")
    cells = [_checked_cell(name or "the model", module) for name, module in found]
    networks = {id(module): _double(module, *cell, generator) for (_, module), cell in zip(found, cells, strict=True)}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if id(child) in networks:
                setattr(parent, name, networks[id(child)])
    return networks.get(id(unwrapped(model)), model)


def _checked_cell(name: str, module: nn.RNNBase | RNN) -> tuple[Any, dict[str, Any]]:
    """The cell of a recurrence and its options, if a double network does what the module does."""
    if module.hidden_size % 2:
        raise ValueError(f"hidden_size of {name} must be even, double layers have two halves, got {module.hidden_size}")
    hooks = [*module._forward_hooks, *module._forward_pre_hooks, *module._backward_hooks]
    of_torch = isinstance(module, nn.RNNBase)
    for what, there in (
        ("a forward of its own", of_torch and torch_recurrences(module) is None and not hooks),
        ("a projection (proj_size)", bool(getattr(module, "proj_size", 0))),
        ("parametrised weights", is_parametrized(module)),
        ("hooks", bool(hooks)),
    ):
        if there:
            raise ValueError(f"{name} must be a plain torch.nn.LSTM, GRU or RNN to be replaced, got one with {what}")
    return _cell_of(name, module) if isinstance(module, RNN) else torch_cell(module)


def _cell_of(name: str, network: RNN) -> tuple[Any, dict[str, Any]]:
    """The cell of an ``ms.RNN`` of single layers and the options it was made with, which it has as attributes."""
    stack: list[Any] = list(network.layers)
    layers = [direction for layer in stack for direction in layer.directions]
    kinds = {type(cell) for layer in layers for cell in layer.cells}
    if any(isinstance(layer, Double) for layer in layers) or len(kinds) > 1:
        given = [" and ".join(type(cell).__name__ for cell in layer.cells) for layer in layers]
        raise ValueError(f"{name} must have single layers of one kind of cell to be replaced, got {', '.join(given)}")
    (cell, *_), (kind,) = layers[0].cells, kinds
    names = options_of(kind)
    if names is None or not all(hasattr(cell, option) for option in names):
        raise ValueError(f"{name} must be of cells that keep their options to be replaced, got {kind.__name__}")
    options = {option: getattr(cell, option) for option in names}
    # A cell that was asked for a parameter has it, one that was not has None.
    return kind, {o: v is not None if v is None or isinstance(v, Tensor) else v for o, v in options.items()}


def _double(module: nn.RNNBase | RNN, cell: Any, options: dict[str, Any], generator: torch.Generator | None) -> RNN:
    like = next(module.parameters())
    network = RNN(
        cell,
        **form_of(module),
        double=True,
        generator=generator,
        device=like.device,
        dtype=like.dtype,
        **options,
    )
    if not any(p.requires_grad for p in module.parameters()):
        network.requires_grad_(False)
    return network.train(module.training)
