"""Where groups of runs are trained: in this process, or on a Ray cluster."""

from multistable.experiments.engines.base import Engine
from multistable.experiments.engines.local import Local

__all__ = ["ENGINES", "Engine", "Local", "make_engine"]

ENGINES = ("local", "ray")


def make_engine(name: str, device: str | None = None, address: str | None = None) -> Engine:
    """An engine by name.

    Args:
        name: one of ``ENGINES``.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"`` and so on; a GPU if there is one when not given.
        address: of a Ray cluster; one is started on this machine when not given.
    """
    if name not in ENGINES:
        raise ValueError(f"--engine must be one of {', '.join(ENGINES)}, got {name!r}")
    if name == "local":
        if address is not None:
            raise ValueError(f"--ray-address is for --engine ray alone, got {address!r} with --engine local")
        return Local(device)
    # Late: an extra, and slow to import.
    from multistable.experiments.engines.ray import Ray

    return Ray(device, address)
