"""Weights of ``torch.nn`` recurrences, to and from the cells of this library.

PyTorch has ``(gates * hidden, in)`` matrices, gates in the order r, z, n (GRU) or i, f, g, o (LSTM), and two bias
vectors. The cells here have ``(in, gates * hidden)`` matrices with gates in the paper's order. A converted cell has
both biases too.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multistable.cells import GRU, LSTM, Cell, ChronoLSTM
from multistable.cells.elman import Elman
from multistable.networks.layers import Single
from multistable.networks.rnn import RNN

_KINDS: dict[type[nn.Module], type[Cell[Any]]] = {
    nn.RNN: Elman,
    nn.RNNCell: Elman,
    nn.GRU: GRU,
    nn.GRUCell: GRU,
    nn.LSTM: LSTM,
    nn.LSTMCell: LSTM,
}

# Where PyTorch keeps each of our gates. Every one of these permutations is its own inverse.
_GATE_ORDER: dict[type[Cell[Any]], tuple[int, ...]] = {Elman: (0,), GRU: (1, 0, 2), LSTM: (1, 0, 3, 2)}


@dataclass(frozen=True)
class TorchRecurrence:
    """One layer of a ``torch.nn`` recurrence (or one ``torch.nn`` cell), seen as a cell of this library."""

    module: nn.Module
    suffix: str
    outline: Cell[Any]

    def cell(self) -> Cell[Any]:
        """The cell over the module's own parameters: gradients flow to them."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return self.outline.bind(_from_torch(type(self.outline), *(self._parameter(name) for name in names)))

    def _parameter(self, name: str) -> Any:
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
    return calls_alike and "forward" not in vars(module) and not any(hooks)


def torch_recurrences(module: Any) -> list[TorchRecurrence] | None:
    """The layers of a ``torch.nn`` recurrence, first to last; ``None`` for any other module."""
    torch_kind = next((torch_kind for torch_kind in _KINDS if isinstance(module, torch_kind)), None)
    if torch_kind is None or not is_only(module, torch_kind):
        return None
    kind = _KINDS[torch_kind]
    for name in ("bidirectional", "proj_size"):
        if getattr(module, name, False):
            raise ValueError(f"{type(module).__name__} with {name}={getattr(module, name)} is not supported")
    options = {**_options(module), "device": "meta"}
    suffixes = [f"_l{i}" for i in range(module.num_layers)] if isinstance(module, nn.RNNBase) else [""]
    sizes = [module.hidden_size if i else module.input_size for i in range(len(suffixes))]
    return [
        TorchRecurrence(module, suffix, kind(size, module.hidden_size, **options))
        for suffix, size in zip(suffixes, sizes, strict=True)
    ]


def _options(module: nn.Module) -> dict[str, Any]:
    """The options of a cell that computes what a ``torch.nn`` recurrence does: both biases, and Elman's activation."""
    nonlinearity = getattr(module, "nonlinearity", None)
    return {"recurrent_bias": True} | ({} if nonlinearity is None else {"nonlinearity": nonlinearity})


def from_torch(module: Any) -> RNN:
    """An :class:`RNN` with a copy of the weights of a ``torch.nn.GRU``, ``LSTM`` or ``RNN``.

    All its weights require gradients. Where the module has no bias, the network has biases of zero.
    """
    layers = torch_recurrences(module)
    if not isinstance(module, nn.RNNBase):
        raise TypeError(f"module must be a torch.nn.GRU, torch.nn.LSTM or torch.nn.RNN, got {type(module).__name__}")
    if layers is None:
        raise TypeError(
            f"module: {_WEIGHTS_ALONE}, got a {type(module).__name__} with some: ms.measure takes it as it is"
        )
    if module.dropout:
        raise ValueError(f"ms.RNN has no dropout between layers, got {type(module).__name__} with {module.dropout=}")
    like = next(module.parameters())
    # Without weights of its own, which it would draw from the global generator.
    network = RNN(
        type(layers[0].outline),
        *(module.input_size, module.hidden_size, module.num_layers),
        **{"batch_first": module.batch_first, "device": "meta", "dtype": like.dtype, **_options(module)},
    ).to_empty(device=like.device)
    for ours, theirs in zip(network.layers, layers, strict=True):
        ours.get_submodule("cell").load_state_dict(dict(theirs.cell().named_parameters()))
    return network


def to_torch(network: RNN) -> nn.RNNBase:
    """A ``torch.nn.GRU``, ``LSTM`` or ``RNN`` with a copy of the weights of an :class:`RNN` of that cell."""
    if not isinstance(network, RNN):
        raise TypeError(f"network must be an ms.RNN, got {type(network).__name__}")
    if not is_only(network, RNN):
        raise TypeError(f"network: {_WEIGHTS_ALONE}, got a {type(network).__name__} with some")
    cells: list[Any] = [layer.cell if isinstance(layer, Single) else None for layer in network.layers]
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
    module = torch_kinds[kind](
        *(network.input_size, network.hidden_size, network.num_layers),
        **{"batch_first": network.batch_first, "device": "meta", "dtype": like.dtype, **options},
    ).to_empty(device=like.device)
    with torch.no_grad():
        for index, cell in enumerate(cells):
            for name, value in _to_torch(kind, cell).items():
                getattr(module, f"{name}_l{index}").copy_(value)
    return module


def _from_torch(
    kind: type[Cell[Any]], weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor | None, bias_hh: Tensor | None
) -> dict[str, Tensor]:
    """The weights of our cell, derived from those of ``torch.nn`` by differentiable operations."""
    if bias_ih is None or bias_hh is None:
        bias_ih = bias_hh = weight_ih.new_zeros(len(weight_ih))
    weights = {"input_weight": _reorder(kind, weight_ih).T, "recurrent_weight": _reorder(kind, weight_hh).T}
    return {**weights, "bias": _reorder(kind, bias_ih), "recurrent_bias": _reorder(kind, bias_hh)}


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
    order = _GATE_ORDER[kind]
    blocks = rows.chunk(len(order))
    return torch.cat([blocks[index] for index in order])
