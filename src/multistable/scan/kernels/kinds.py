"""What the kernels must know of each cell."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """What the kernels must know of a cell.

    Its name in the kernels, how many gates read the past (``recurrent``) and the input (``projected``), how many blocks
    are saved for the backward pass, and how many fields its state has.
    """

    name: str
    recurrent: int
    projected: int
    saved: int
    fields: int = 1

    @property
    def weight_dim(self) -> int:
        """Dimensions of the recurrent weight of one network: a matrix, or the vector of a BRC."""
        return 2 if self.recurrent else 1


KINDS = {
    "lstm": Kind("lstm", recurrent=4, projected=4, saved=4, fields=2),
    "gru": Kind("gru", recurrent=3, projected=3, saved=4),
    "mgu": Kind("mgu", recurrent=2, projected=2, saved=2),
    "nbrc": Kind("nbrc", recurrent=2, projected=3, saved=3),
    "brc": Kind("brc", recurrent=0, projected=3, saved=3),
}
