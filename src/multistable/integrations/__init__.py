"""Where people train: a loop of their own, Lightning, the Trainer of Hugging Face, agents of sb3-contrib.

Each file needs the package that it is for, and is imported by its name.
"""

from multistable.integrations.watch import Watch

__all__ = ["Watch"]
