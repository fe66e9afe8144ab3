"""Any recurrent module and any data as states, layers and steps."""

from multistable.dynamics.system.parts import recurrent_parts
from multistable.dynamics.system.system import backends

__all__ = ["backends", "recurrent_parts"]
