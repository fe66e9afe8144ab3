"""The time loop: one entry point for every cell, the plain loop as the reference, fused loops beside it."""

from multistable.scan.choice import Choice, choose, engine, read, scan
from multistable.scan.comparison import check
from multistable.scan.surroundings import uncompiled

__all__ = ["Choice", "check", "choose", "engine", "read", "scan", "uncompiled"]
