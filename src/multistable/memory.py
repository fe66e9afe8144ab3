"""How a process keeps the memory of its tensors on the CPU."""

import ctypes
import os
import sys

KEPT_UP_TO = 2**30
"""Bytes of an allocation up to which freed memory is kept for the next one."""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt``, see malloc.h."""


def keep_freed_memory() -> None:
    """Let this process reuse the memory of one gradient step in the next one.

    By default glibc gives large freed arrays back to the system, which then has to clear every page of the next arrays:
    half of the time of a training on sequences of 784 steps. The price is up to twice the memory, in holes between
    arrays. Without glibc, or if the environment sets a threshold itself, nothing is changed.
    """
    if not sys.platform.startswith("linux") or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, KEPT_UP_TO)
        mallopt(TRIM_THRESHOLD, -1)
