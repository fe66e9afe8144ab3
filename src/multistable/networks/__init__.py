"""Stacks of recurrent layers, double layers, ensembles, and conversion to and from ``torch.nn``."""

from multistable.networks.ahead import precompile
from multistable.networks.convert import from_torch, to_torch
from multistable.networks.doubling import doubled
from multistable.networks.ensemble import Ensemble
from multistable.networks.layers import Bidirectional, Double, Layer, Single
from multistable.networks.rnn import RNN

__all__ = [
    "RNN",
    "Bidirectional",
    "Double",
    "Ensemble",
    "Layer",
    "Single",
    "doubled",
    "from_torch",
    "precompile",
    "to_torch",
]
