"""Connect to a Ray cluster, or start one; keep interruptions out of Ray's own work."""

import logging
import os
import signal
import threading
from types import FrameType
from typing import Any, Self

ATTEMPTS = 3
"""How often to try to start a cluster: on a busy machine the time that Ray allows for it is too short."""

STORE = 100 * 2**20
"""Bytes of the object store of a cluster started here: nothing large goes through it."""


class ClusterError(RuntimeError):
    """There is no Ray cluster to work with."""


class HeldBack:
    """A context in which a first Ctrl-C or SIGTERM waits for :meth:`check`; a second one does not wait.

    An exception in the middle of Ray's work would leave processes behind, or end this one with a segmentation fault. A
    signal that still waits at the end of the context is passed on there.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._waiting: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            # A signal that is ignored, or that ends the process at once, has no handler to call.
            self._handlers = {number: handler for number, handler in found.items() if callable(handler)}
        for number in self._handlers:
            signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Pass on the signal that waits, if there is one."""
        if self._waiting is not None:
            number, self._waiting = self._waiting, None
            self._handlers[number](number, None)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._waiting is not None:
            self.check()
        self._waiting = number


def connected(address: str | None, held: HeldBack) -> Any:
    """Ray, connected to the cluster at an address, or to one that is started on this machine for it alone."""
    if address is None:
        # Ray reads this on import. It is meant for other systems, and gives the cluster only addresses of the loopback.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    if ray.is_initialized():
        raise ClusterError("this process is connected to a Ray cluster already; ray.shutdown() disconnects it")
    settings: dict[str, Any] = {"address": address}
    attempts, aim = 1, f"connect to {address}"
    if address is None:
        settings = {"address": "local", "include_dashboard": False, "object_store_memory": STORE}
        settings["_system_config"] = {"worker_niceness": 0}  # Otherwise all other processes go first.
        attempts, aim = ATTEMPTS, f"start a cluster on this machine in {ATTEMPTS} attempts"
    failure: Exception | None = None
    for _ in range(attempts):
        try:
            _init(ray, **settings)
            return ray
        except Exception as error:
            held.check()
            failure = error
    raise ClusterError(f"Ray could not {aim}: {failure}") from failure


def _init(ray: Any, **settings: Any) -> None:
    """Connect; if that fails, leave nothing behind. SIGTERM, which Ray handles meanwhile, counts as an interruption."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)
    except BaseException as error:
        ray.shutdown()
        if isinstance(error, SystemExit):
            raise KeyboardInterrupt from error
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
