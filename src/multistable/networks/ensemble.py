"""Networks of one architecture, advanced and trained together through a leading dimension of their weights."""

import copy
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from multistable.arguments import shown
from multistable.cells import Cell
from multistable.networks.rnn import RNN

AnyModule = TypeVar("AnyModule", bound=nn.Module)


class Ensemble(nn.Module):
    """R networks, its members, as one: every weight is stacked along a first dimension of size R.

    One forward pass advances all members, one backward pass gives each its own gradient, and one step of an
    elementwise optimiser such as Adam trains each exactly as if alone. The members are copied, not changed.

    Args:
        members: :class:`RNN` networks that differ in the values of their weights only.
    """

    def __init__(self, members: Sequence[RNN]) -> None:
        super().__init__()
        if not isinstance(members, Iterable):
            raise TypeError(f"members must be a list of ms.RNN networks, got {shown(members)}")
        members = list(members)
        _check_members(members)
        self._members = len(members)
        names = [name for name, _ in members[0].named_parameters()]
        weights = [torch.stack([member.get_parameter(name) for member in members]) for name in names]
        self.network = _copied(members[0], weights)

    def __len__(self) -> int:
        return self._members

    @property
    def batch_first(self) -> bool:
        return self.network.batch_first

    def forward(self, x: Tensor, state: Any = None, *, resets: Any = None) -> tuple[Tensor, Any]:
        """Advance all members.

        Args:
            x: one batch for all members in the layout of a member, ``(time, n, input_size)``, or a batch for
                each, ``(time, R, n, input_size)``; with ``batch_first`` ``(n, time, input_size)`` or
                ``(R, n, time, input_size)``.
            state: as returned by an earlier call; zero if not given.
            resets: before which steps the state is set to zero, as for a member; of the shape of ``x`` without its
                features, for all members or for each.

        Returns:
            Output ``(time, R, n, hidden_size)``, with ``batch_first`` ``(R, n, time, hidden_size)``, and the
            state ``h (num_layers, R, n, hidden_size)``, or the pair ``(h, c)`` for LSTM.
        """
        member_dim = 0 if self.batch_first else 1
        if isinstance(resets, Tensor) and resets.dim() == 2:
            resets = self._for_all(resets, member_dim)
        if isinstance(x, Tensor) and x.dim() == 3:
            x = self._for_all(x, member_dim)
        if not isinstance(x, Tensor):
            raise TypeError(f"the input of an ensemble must be a tensor, got {type(x).__name__}")
        if x.dim() != 4 or x.shape[member_dim] != len(self):
            layout = "(R, n, time, features)" if self.batch_first else "(time, R, n, features)"
            raise ValueError(
                f"the input of an ensemble of R = {len(self)} must be {layout}, or one batch for all members "
                f"without R, got shape {tuple(x.shape)}"
            )
        return self.network(x, state, resets=resets)

    def _for_all(self, batch: Tensor, member_dim: int) -> Tensor:
        return batch.unsqueeze(member_dim).expand(*batch.shape[:member_dim], len(self), *batch.shape[member_dim:])

    def unstack(self) -> list[RNN]:
        """The members as separate networks, with their present weights."""
        return [_copied(self.network, [p[i].clone() for p in self.network.parameters()]) for i in range(len(self))]

    def select(self, members: Sequence[int]) -> "Ensemble":
        """Some of the members, by their numbers, as an ensemble of copies of them."""
        selected = _copied(self, [p[list(members)] for p in self.parameters()])
        selected._members = len(members)
        return selected

    @torch.no_grad()
    def replace(self, members: Sequence[int], other: "Ensemble") -> None:
        """Give some of the members the weights of another ensemble, which has as many."""
        for name, weight in other.network.named_parameters():
            self.network.get_parameter(name)[list(members)] = weight

    def extra_repr(self) -> str:
        return f"members={len(self)}"


def _check_members(members: Sequence[RNN]) -> None:
    if not members:
        raise ValueError("an ensemble needs at least one member, got none")
    for index, member in enumerate(members):
        if not isinstance(member, RNN):
            raise TypeError(
                f"members must be ms.RNN networks, got {type(member).__name__} at index {index}; "
                "ms.from_torch converts torch.nn.RNN, GRU and LSTM"
            )
        if not _same_architecture(member, members[0]):
            raise ValueError(
                f"members must share one architecture; member {index} differs from member 0, in its form, the options "
                f"of its cells, data type, device or what requires gradients:\n{member}"
            )
    cells = [module for module in members[0].modules() if isinstance(module, Cell)]
    if any(cell._modules or cell._buffers for cell in cells):
        raise ValueError("cells with buffers or modules inside cannot be stacked: keep their weights as parameters")
    if len(list(members[0].parameters())) != len(list(members[0].named_parameters(remove_duplicate=False))):
        raise ValueError("networks whose layers share parameters cannot be stacked")


def _same_architecture(a: RNN, b: RNN) -> bool:
    """Whether two networks differ in nothing but the values of their weights."""
    if (a.batch_first, a.dropout) != (b.batch_first, b.dropout) or [type(m) for m in a.modules()] != [
        type(m) for m in b.modules()
    ]:
        return False
    cells = [[module for module in network.modules() if isinstance(module, Cell)] for network in (a, b)]
    return all(cell.same_equations(other) for cell, other in zip(*cells, strict=True))


def _copied(network: AnyModule, weights: Sequence[Tensor]) -> AnyModule:
    """A copy of a network with other values, whose shape may differ, in place of its parameters."""
    new = [
        nn.Parameter(w.detach(), requires_grad=p.requires_grad)
        for w, p in zip(weights, network.parameters(), strict=True)
    ]
    # deepcopy does not copy what its memo lists as copied already.
    return copy.deepcopy(network, {id(p): w for p, w in zip(network.parameters(), new, strict=True)})
