"""Double layers in place of the recurrences of an existing model."""

from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from multistable.networks.convert import torch_cell, torch_recurrences
from multistable.networks.rnn import RNN
from multistable.networks.wrappers import unwrapped


def doubled(model: nn.Module, *, generator: torch.Generator | None = None) -> Any:
    """Replace every ``torch.nn.LSTM``, ``GRU`` and ``RNN`` of a model by double layers of the same sizes, in place.

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
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.RNNBase)]
    if not found:
        raise TypeError(f"{type(model).__name__} has no torch.nn.LSTM, GRU or RNN that could be replaced")
    for name, module in found:
        _check(name or "the model", module)
    networks = {id(module): _double(module, generator) for _, module in found}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if id(child) in networks:
                setattr(parent, name, networks[id(child)])
    return networks.get(id(unwrapped(model)), model)


def _check(name: str, module: nn.RNNBase) -> None:
    """Raise unless a double network does what the module does."""
    if module.hidden_size % 2:
        raise ValueError(f"hidden_size of {name} must be even, double layers have two halves, got {module.hidden_size}")
    hooks = [*module._forward_hooks, *module._forward_pre_hooks, *module._backward_hooks]
    for what, there in (
        ("a forward of its own", torch_recurrences(module) is None and not hooks),
        ("a projection (proj_size)", bool(module.proj_size)),
        ("parametrised weights", is_parametrized(module)),
        ("hooks", bool(hooks)),
    ):
        if there:
            raise ValueError(f"{name} must be a plain torch.nn.LSTM, GRU or RNN to be replaced, got one with {what}")


def _double(module: nn.RNNBase, generator: torch.Generator | None) -> RNN:
    like = next(module.parameters())
    cell, options = torch_cell(module)
    network = RNN(
        cell,
        module.input_size,
        module.hidden_size,
        module.num_layers,
        bias=module.bias,
        batch_first=module.batch_first,
        dropout=module.dropout,
        bidirectional=module.bidirectional,
        double=True,
        generator=generator,
        device=like.device,
        dtype=like.dtype,
        **options,
    )
    if not any(p.requires_grad for p in module.parameters()):
        network.requires_grad_(False)
    return network.train(module.training)
