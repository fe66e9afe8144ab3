"""The equations of appendix A: one file a cell. A new cell is a file here and a line in ``CELLS``."""

from multistable.cells.base import Cell, Hidden, KeepGate
from multistable.cells.brc import BRC
from multistable.cells.chrono import ChronoLSTM
from multistable.cells.gru import GRU
from multistable.cells.lstm import LSTM, HiddenAndMemory
from multistable.cells.mgu import MGU
from multistable.cells.nbrc import NBRC
from multistable.registry import Registry

CELLS: Registry[type[Cell]] = Registry(
    "cell",
    "multistable.cells",
    {"lstm": LSTM, "chrono": ChronoLSTM, "gru": GRU, "mgu": MGU, "brc": BRC, "nbrc": NBRC},
)

__all__ = ["BRC", "CELLS", "GRU", "LSTM", "MGU", "NBRC", "Cell", "ChronoLSTM", "Hidden", "HiddenAndMemory", "KeepGate"]
