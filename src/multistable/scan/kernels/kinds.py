"""What the kernels must know of each cell."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """What the kernels must know of a cell: its name there, how many gates read the past, how many the input; slots.

    ``fields`` are those of its state.
    """

    name: str
    recurrent: int
    projected: int
    slots: int
    fields: int = 1

    @property
    def weight_dim(self) -> int:
        """Dimensions of the recurrent weight of one network: a matrix, of a BRC a vector."""
        return 2 if self.recurrent else 1


KINDS = {
    "lstm": Kind("lstm", recurrent=4, projected=4, slots=4, fields=2),
    "gru": Kind("gru", recurrent=3, projected=3, slots=4),
    "mgu": Kind("mgu", recurrent=2, projected=2, slots=2),
    "nbrc": Kind("nbrc", recurrent=2, projected=3, slots=3),
    "brc": Kind("brc", recurrent=0, projected=3, slots=3),
}
