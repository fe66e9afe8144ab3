"""What every recurrent cell is: parameters, the product with its input, one step in time."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from multistable.arguments import positive_integer

# The attributes that every module has. All others are a cell's own.
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))

S = TypeVar("S", bound=tuple[Tensor, ...])


class Hidden(NamedTuple):
    """The state of a cell that remembers its output alone."""

    h: Tensor


class KeepGate(NamedTuple):
    """Which gate says how much of its past a unit keeps.

    Attributes:
        place: its number among the gates, in the order of the columns of ``input_weight`` and ``bias``.
        sign: 1 where the unit keeps the gate's share of its past, -1 where it keeps all but that share.
        input: the number of the gate that says how much of the candidate a unit takes; None where it takes the share of
            its past that it does not keep.
    """

    place: int
    sign: int = 1
    input: int | None = None


class Cell(nn.Module, ABC, Generic[S]):
    """A recurrent cell, x_t = f(x_{t-1}, u_t), that knows nothing of time loops.

    A new cell is a subclass that makes its parameters in ``__init__`` (among them ``input_weight`` and ``bias``, unless
    it overrides :meth:`project`) and defines :meth:`step`. Write it for tensors with any leading dimensions ``...``,
    one entry for each independent recurrence: weights ``(..., in, out)``, inputs ``(..., n, in)``, states
    ``(..., n, hidden_size)``. Ensembles and double layers then need no code of their own.

    A cell is also a module of its own: ``cell(u, state) -> (output, state)`` takes one step.
    """

    State: ClassVar[Any] = Hidden
    """The named tuple of the cell's state; its first field ``h`` is the output, each is ``(..., n, hidden_size)``."""

    torch_kind: ClassVar[Any] = None
    """What ``torch.nn`` calls this recurrence, ``"GRU"`` for instance, or None if it has none."""
    torch_gates: ClassVar[tuple[int, ...]] = ()
    """Where ``torch.nn`` keeps each gate. Each of these permutations is its own inverse."""
    casts_to_state: ClassVar[bool] = False
    """Whether results under ``torch.autocast`` on the CPU have at least the type of the initial state (of the input, if
    there is none), as with ``torch.nn.GRU``; else they have the type of autocast, as with ``torch.nn.LSTM``."""

    added_gates: ClassVar[int] = 0
    """How many gates, the first, have the cell's ``recurrent_bias`` added to their bias, where it is not None."""

    keep_gate: ClassVar[KeepGate | None] = None
    """The gate that says how much of its past a unit keeps, if there is one; some ways to prepare a network set it."""
    recurrent_matrices: ClassVar[int] = 0
    """How many matrices ``(hidden_size, hidden_size)`` stand side by side in ``recurrent_weight``."""

    input_weight: Tensor
    bias: Tensor
    recurrent_bias: Any

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size = positive_integer("input_size", input_size)
        self.hidden_size = positive_integer("hidden_size", hidden_size)

    @property
    def input_bias(self) -> Tensor:
        """The bias that :meth:`project` adds: ``bias``, and for the first gates ``recurrent_bias``, if there is one.

        Override it in a cell with other biases.
        """
        second = self.added_bias
        return self.bias if second is None else with_first_columns(self.bias, second, self.added_columns)

    @property
    def added_bias(self) -> Tensor | None:
        """The second bias, of which the first :attr:`added_columns` are added to the first one."""
        return self.recurrent_bias if self.added_gates else None

    @property
    def added_columns(self) -> int:
        """The columns of :attr:`added_gates`."""
        return self.added_gates * self.hidden_size

    def project(self, u: Tensor) -> Tensor:
        """The part of the pre-activations that depends on the input alone, W_u u_t + b for all gates side by side.

        It is computed for all time steps at once, before the time loop: ``(..., n, input_size)`` to ``(..., n, any)``.
        Override it in a cell that treats its input in another way.
        """
        weight, bias = self.input_weight, self.input_bias.unsqueeze(-2)
        if u.dtype != weight.dtype and not torch.is_autocast_enabled(u.device.type):
            raise TypeError(f"the input must be in {weight.dtype}, as the weights are, got {u.dtype}")
        if weight.dim() == 2 or u.shape[1:-2] != weight.shape[:-2]:
            return u @ weight + bias
        # One product for each member: broadcast over time, the gradient would be a weight for each time step.
        first = u.movedim(0, -3)
        projected = first.flatten(-3, -2) @ weight + bias
        return projected.unflatten(-2, first.shape[-3:-1]).movedim(-3, 0)

    @abstractmethod
    def step(self, projected: Tensor, state: S) -> S:
        """The state at time t from the projected input of time t and the state at time t-1."""

    def checked_step(self, projected: Tensor, state: S) -> S:
        """:meth:`step`, with an error if it returns no state."""
        state = self.step(projected, state)
        if not isinstance(state, tuple):
            fields = ", ".join(self.State._fields)
            expected = f"{type(self).__name__}.step must return a state, {self.State.__name__}({fields})"
            raise TypeError(f"{expected}, got {type(state).__name__}")
        return state

    def zero_state(self, projected: Tensor) -> S:
        """h(theta) = 0, the initial state, for one time step ``(..., n, any)`` of projected inputs."""
        shape = (*projected.shape[:-1], self.hidden_size)
        return self.State(*(projected.new_zeros(shape) for _ in self.State._fields))

    def forward(self, u: Tensor, state: S | None = None) -> tuple[Tensor, S]:
        """One step: input ``(..., n, input_size)`` to output ``(..., n, hidden_size)`` and the new state."""
        check_tensor("the input", u)
        projected = self.project(u)
        state = self.zero_state(projected) if state is None else self._checked_state(projected, fields_of(state))
        state = self.checked_step(projected, state)
        return state[0], state

    def _checked_state(self, projected: Tensor, fields: Sequence[Tensor]) -> S:
        """The fields as a state, if they have the batch dimensions of the projected input."""
        expected, given = tuple(projected.shape[:-1]), [tuple(field.shape) for field in fields]
        if len(fields) != len(self.State._fields) or any(shape[:-1] != expected for shape in given):
            names = ", ".join(self.State._fields)
            raise ValueError(
                f"the state must be ({names}), each with the batch dimensions {expected}, got shapes {given}"
            )
        return cast(S, self.State(*fields))

    def bind(self, weights: dict[str, Tensor]) -> Self:
        """The same equations with ``weights``, for instance stacked or transposed ones, in place of all parameters.

        The tensors are used as they are, not copied into parameters: gradients flow to what they were made from.
        """
        bound = copy.copy(self)
        bound._parameters = cast(Any, dict(weights))
        return bound

    def same_equations(self, other: "Cell[Any]") -> bool:
        """Whether two cells differ in nothing but the values of their weights, which can then be stacked."""
        if type(self) is not type(other) or self._weight_forms() != other._weight_forms():
            return False
        mine, theirs = self._options(), other._options()
        return mine.keys() == theirs.keys() and all(_same(mine[name], theirs[name]) for name in mine)

    def _weight_forms(self) -> dict[str, tuple[Any, ...]]:
        return {name: (p.shape, p.dtype, p.device, p.requires_grad) for name, p in self.named_parameters()}

    def _options(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _MODULE_ATTRIBUTES}

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


def check_tensor(what: str, value: Any) -> None:
    """``value`` is a tensor; ``what`` it is, for the error."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{what} must be a tensor, got {type(value).__name__}")


def fields_of(state: Any) -> tuple[Tensor, ...]:
    """The fields of a state that is given as one tensor or as a tuple of them."""
    if isinstance(state, Tensor):
        return (state,)
    if not isinstance(state, tuple | list):
        raise TypeError(f"the state must be a tensor or a tuple of tensors, got {type(state).__name__}")
    for field in state:
        check_tensor("each part of the state", field)
    return tuple(state)


def with_first_columns(bias: Tensor, second: Tensor, columns: int) -> Tensor:
    """The sum of both biases in so many columns, and the first alone in the others."""
    if columns == bias.shape[-1]:
        return bias + second
    return torch.cat([bias[..., :columns] + second[..., :columns], bias[..., columns:]], dim=-1)


def first_columns(gradient: Tensor, columns: int) -> Tensor:
    """The gradient of the second bias from that of the sum in :func:`with_first_columns`."""
    if columns == gradient.shape[-1]:
        return gradient
    found = gradient.clone()
    found[..., columns:].zero_()
    return found


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and bool((a == b).all())
    return a is b or bool(a == b)
