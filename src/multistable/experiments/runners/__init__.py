"""Where groups of runs are trained: in this process, or on a Ray cluster."""

from multistable.experiments.runners.base import Runner
from multistable.experiments.runners.local import Local

__all__ = ["RUNNERS", "Local", "Runner", "make_runner"]

RUNNERS = ("local", "ray")


def make_runner(name: str, device: str | None = None, address: str | None = None) -> Runner:
    """A runner by name.

    Args:
        name: one of ``RUNNERS``.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"`` and so on; by default a GPU if there is one.
        address: of a Ray cluster; by default one is started on this machine.
    """
    if name not in RUNNERS:
        raise ValueError(f"--runner must be one of {', '.join(RUNNERS)}, got {name!r}")
    if name == "local":
        if address is not None:
            raise ValueError(f"--ray-address is for --runner ray alone, got {address!r} with --runner local")
        return Local(device)
    # Imported late, since Ray is an extra and slow to import.
    from multistable.experiments.runners.ray import Ray

    return Ray(device, address)
