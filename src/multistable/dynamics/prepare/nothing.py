"""A network as it is, beside those that are prepared."""

from typing import Any

from torch import nn

from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.models import Turn, each_part
from multistable.dynamics.system.system import studying


def nothing(
    rnn: nn.Module,
    sequences: Any,
    *,
    generator: Generators = None,
    part: str | None = None,
    forward: Forward | None = None,
) -> None:
    """Check the arguments, and leave the network as it is."""

    def one(network: nn.Module, sequences: Any, _: Turn) -> None:
        with studying(network, sequences) as (system, _data):
            Draws(generator, system.members)

    each_part(one, rnn, sequences, part=part, forward=forward)
