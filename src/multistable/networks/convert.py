"""Weights of ``torch.nn`` recurrences, to and from the cells of this library.

PyTorch has ``(gates * hidden, in)`` matrices, gates in the order r, z, n (GRU) or i, f, g, o (LSTM), and two bias
vectors. The cells here have ``(in, gates * hidden)`` matrices with gates in the paper's order. A converted cell has
both biases too, or none. Dropout between layers and both directions are kept.
"""

import warnings
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from multistable.cells import GRU, LSTM, Cell, ChronoLSTM
from multistable.cells.elman import Elman
from multistable.cells.projected_lstm import ProjectedLSTM
from multistable.networks.gates import Gates
from multistable.networks.layers import Single, StackLayer
from multistable.networks.rnn import RNN

_KINDS: dict[type[nn.Module], type[Cell[Any]]] = {
    nn.RNN: Elman,
    nn.RNNCell: Elman,
    nn.GRU: GRU,
    nn.GRUCell: GRU,
    nn.LSTM: LSTM,
    nn.LSTMCell: LSTM,
}

# Hooks that derive a weight from other parameters before each call: how weights were parametrised in earlier versions.
_DERIVING = (WeightNorm, SpectralNorm)


@dataclass(frozen=True)
class TorchRecurrence:
    """One direction of one layer of a ``torch.nn`` recurrence, or a ``torch.nn`` cell, as a cell of this library."""

    module: nn.Module
    suffix: str
    outline: Cell[Any]

    def cell(self) -> Cell[Any]:
        """The cell over the module's own parameters: gradients flow to them."""
        for derive in self.module._forward_pre_hooks.values():
            derive(self.module, ())
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return self.outline.bind(_from_torch(type(self.outline), *(self.parameter(name) for name in names)))

    def gates(self) -> Gates:
        """The module's own parameters, gate by gate."""
        names = (f"weight_hh{self.suffix}", f"bias_ih{self.suffix}", f"bias_hh{self.suffix}")
        return Gates(self.outline, self.module, names, self.outline.torch_gates)

    def parameter(self, name: str) -> Any:
        """The module's own, such as ``weight_ih``; None where there is no such bias."""
        return getattr(self.module, name + self.suffix, None)


_WEIGHTS_ALONE = "only weights are copied, no hooks and no forward of one's own"
_HOOKS = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")


def is_only(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether calling the module does what ``kind`` defines and nothing else.

    A forward or a call of the user's own, and hooks, on the module or on all, may do anything: such a module is called
    as it is, not taken apart.
    """
    calls_alike = type(module).forward is kind.forward and type(module).__call__ is kind.__call__
    hooks = [getattr(module, f"_{name}") for name in _HOOKS]
    hooks += [getattr(nn.modules.module, f"_global_{name}") for name in _HOOKS]
    unknown = [hook for some in hooks for hook in some.values() if not isinstance(hook, _DERIVING)]
    return calls_alike and "forward" not in vars(module) and not unknown


def torch_recurrences(module: Any) -> list[TorchRecurrence] | None:
    """The layers of a ``torch.nn`` recurrence, first to last, each direction; ``None`` for any other module."""
    torch_kind = next((torch_kind for torch_kind in _KINDS if isinstance(module, torch_kind)), None)
    if torch_kind is None or not is_only(module, torch_kind):
        return None
    kind, sizes = _KINDS[torch_kind], [module.hidden_size]
    options = {"recurrent_bias": True, **_options(module), "device": "meta"}
    if getattr(module, "proj_size", 0):
        kind, sizes = ProjectedLSTM, [module.hidden_size, module.proj_size]
    if not isinstance(module, nn.RNNBase):
        return [TorchRecurrence(module, "", kind(module.input_size, *sizes, **options))]
    directions = ["", "_reverse"] if module.bidirectional else [""]
    return [
        TorchRecurrence(module, f"_l{layer}{direction}", kind(size, *sizes, **options))
        for layer in range(module.num_layers)
        for size in [len(directions) * sizes[-1] if layer else module.input_size]
        for direction in directions
    ]


def torch_cell(module: nn.Module) -> tuple[type[Cell[Any]], dict[str, Any]]:
    """The kind of cell that computes what a ``torch.nn`` recurrence does, and its options."""
    (kind,) = (kind for torch_kind, kind in _KINDS.items() if isinstance(module, torch_kind))
    return kind, _options(module)


def _options(module: nn.Module) -> dict[str, Any]:
    """The options of a cell that are attributes of a ``torch.nn`` recurrence too: Elman's activation."""
    nonlinearity = getattr(module, "nonlinearity", None)
    return {} if nonlinearity is None else {"nonlinearity": nonlinearity}


def form_of(network: nn.RNNBase | RNN) -> dict[str, Any]:
    """The arguments that a ``torch.nn`` recurrence and an :class:`RNN` both take, as this one has them."""
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    return {name: getattr(network, name) for name in names}


def from_torch(module: Any) -> RNN:
    """An :class:`RNN` with a copy of the weights of a ``torch.nn.GRU``, ``LSTM`` or ``RNN``.

    It has both bias vectors, or none, and the dropout and the directions of the module. All its weights require
    gradients; where there are no biases, those of the cells are zero and frozen.
    """
    layers = torch_recurrences(module)
    if not isinstance(module, nn.RNNBase):
        raise TypeError(f"module must be a torch.nn.GRU, torch.nn.LSTM or torch.nn.RNN, got {type(module).__name__}")
    if layers is None:
        raise TypeError(
            f"module: {_WEIGHTS_ALONE}, got a {type(module).__name__} with some: ms.measure takes it as it is"
        )
    if module.proj_size:
        raise ValueError(f"{type(module).__name__} with proj_size={module.proj_size} is not supported by ms.RNN")
    like = next(module.parameters())
    with warnings.catch_warnings(action="ignore"):  # torch.nn has said already that dropout needs a second layer
        network = RNN(
            type(layers[0].outline),
            **form_of(module),
            # It leaves the global generator alone; the draws are overwritten.
            generator=torch.Generator("cpu" if like.is_meta else like.device),
            device=like.device,
            recurrent_bias=module.bias,
            **_options(module),
        ).to(like.dtype)  # not drawn in it: half precision has no orthogonal matrices
    for ours, theirs in zip(_cells_of(network), layers, strict=True):
        weights = theirs.cell().named_parameters()
        ours.load_state_dict({name: weight for name, weight in weights if getattr(ours, name) is not None})
    return network.train(module.training)


def to_torch(network: RNN) -> nn.RNNBase:
    """A ``torch.nn.GRU``, ``LSTM`` or ``RNN`` with a copy of the weights of an :class:`RNN` of that cell.

    It has the dropout, the directions and, with ``bias=False``, the lack of biases of the network.
    """
    if not isinstance(network, RNN):
        raise TypeError(f"network must be an ms.RNN, got {type(network).__name__}")
    if not is_only(network, RNN):
        raise TypeError(f"network: {_WEIGHTS_ALONE}, got a {type(network).__name__} with some")
    cells = _cells_of(network)
    torch_kinds: dict[type[Cell[Any]], Any] = {GRU: nn.GRU, LSTM: nn.LSTM, Elman: nn.RNN}
    kind: Any = LSTM if type(cells[0]) is ChronoLSTM else type(cells[0])
    if kind not in torch_kinds:
        raise TypeError(
            "network must have a torch.nn counterpart: single gru, lstm or chrono layers, or what ms.from_torch "
            "made of a torch.nn.RNN"
        )
    options = {"nonlinearity": cells[0].nonlinearity} if kind is Elman else {}
    like = next(network.parameters())
    # Without weights of its own, which it would draw from the global generator.
    with warnings.catch_warnings(action="ignore"):
        module = torch_kinds[kind](**form_of(network), **options, device="meta", dtype=like.dtype)
    module = module.to_empty(device=like.device)
    with torch.no_grad():
        for cell, theirs in zip(cells, torch_recurrences(module) or [], strict=True):
            for name, value in _to_torch(kind, cell).items():
                weight = theirs.parameter(name)
                if weight is not None:
                    weight.copy_(value)
    return module.train(network.training)


def _cells_of(network: RNN) -> list[Any]:
    """The cells layer by layer, each direction; None in place of a double layer's."""
    directions = [direction for layer in network.layers for direction in cast(StackLayer, layer).directions]
    return [direction.cell if isinstance(direction, Single) else None for direction in directions]


def _from_torch(
    kind: type[Cell[Any]],
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    weight_hr: Tensor | None,
) -> dict[str, Tensor]:
    """The weights of our cell, derived from those of ``torch.nn`` by differentiable operations."""
    if bias_ih is None or bias_hh is None:
        bias_ih = bias_hh = weight_ih.new_zeros(len(weight_ih))
    weights = {"input_weight": _reorder(kind, weight_ih).T, "recurrent_weight": _reorder(kind, weight_hh).T}
    weights |= {"bias": _reorder(kind, bias_ih), "recurrent_bias": _reorder(kind, bias_hh)}
    return weights if weight_hr is None else {**weights, "projection": weight_hr.T}


def _to_torch(kind: type[Cell[Any]], cell: Any) -> dict[str, Tensor]:
    """The weights of ``torch.nn``, derived from those of our cell."""
    second = torch.zeros_like(cell.bias) if cell.recurrent_bias is None else cell.recurrent_bias
    return {
        "weight_ih": _reorder(kind, cell.input_weight.T),
        "weight_hh": _reorder(kind, cell.recurrent_weight.T),
        "bias_ih": _reorder(kind, cell.bias),
        "bias_hh": _reorder(kind, second),
    }


def _reorder(kind: type[Cell[Any]], rows: Tensor) -> Tensor:
    """Gates, stacked along the first dimension, in the other library's order."""
    blocks = rows.chunk(len(kind.torch_gates))
    return torch.cat([blocks[index] for index in kind.torch_gates])
