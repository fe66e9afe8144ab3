"""What a run is, and how runs are trained together; the supervised benchmarks (sections 4 and 5.3)."""

from multistable.training.callbacks import Callback
from multistable.training.config import VERSIONS, RunConfig, Version
from multistable.training.model import Model, Readout
from multistable.training.settings import Config
from multistable.training.store import BusyRunError, DamagedRunError, RunFolder
from multistable.training.trained import load
from multistable.training.trainer import train

__all__ = [
    "VERSIONS",
    "BusyRunError",
    "Callback",
    "Config",
    "DamagedRunError",
    "Model",
    "Readout",
    "RunConfig",
    "RunFolder",
    "Version",
    "load",
    "train",
]
