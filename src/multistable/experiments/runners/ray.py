"""Train on a Ray cluster, as many groups at once as there is room for.

Each group is a task of Ray. If its worker is lost, Ray runs the task again on a node that has room. The worker's claims
on the folders have ended with its process, and the training goes on after the last stored epoch. All nodes must
therefore have the folder of the runs under the same path.
"""

import _thread
import contextlib
import importlib.util
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from multistable.dynamics.warmup import WarmupStep
from multistable.experiments.estimate import gpu_share
from multistable.experiments.runners.base import Group, noting, train_group
from multistable.experiments.runners.cluster import HeldBack, connected
from multistable.extras import missing
from multistable.memory import keep_freed_memory
from multistable.tasks.mnist import VARIABLE
from multistable.training import BusyRunError, Callback, Config, RunFolder
from multistable.training.callbacks import Callbacks
from multistable.training.trainer import usual_device

RETRIES = 10
"""How often a group whose worker is lost is run again."""

PATIENCE = 120.0
"""Seconds to wait for the claims of a lost worker to end; network file systems notice its end late."""

INTERVAL = 0.25
"""Seconds between two looks at the mailbox, and the least between two gradient steps that a worker reports."""

ENDING = 10.0
"""Seconds that workers have to end in good order after an interruption."""


class Ray:
    """A Ray cluster.

    Args:
        device: ``"cpu"`` or ``"cuda"``; by default GPUs if the cluster has any.
        address: of the cluster; by default one is started on this machine, for this machine alone.
    """

    def __init__(self, device: str | None = None, address: str | None = None) -> None:
        if importlib.util.find_spec("ray") is None:
            raise missing("--runner ray", "ray")
        self._given = None if device is None else torch.device(device).type
        self._address = address
        self.device = self._given or usual_device().type

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._held = stack.enter_context(HeldBack())
            self._ray = connected(self._address, self._held)
            stack.callback(self._ray.shutdown)
            self._held.check()
            gpus = self._ray.cluster_resources().get("GPU", 0)
            self.device = self._given or ("cuda" if gpus else "cpu")
            if self.device == "cuda" and not gpus:
                raise ValueError("device must be cpu, the Ray cluster has no GPU, got 'cuda'")
            self._end = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._end.__exit__(kind, error, where)

    def run(self, groups: Sequence[Group], out: Path, callbacks: Sequence[Callback]) -> list[str]:
        """Train groups, see :class:`Runner`; the callbacks are called in this process."""
        mailbox = self._mailbox()
        tasks = {self._task(index, group, out, mailbox): index for index, group in enumerate(groups)}
        try:
            return self._collect(tasks, groups, mailbox, Callbacks(callbacks))
        except Exception:
            self._stop(tasks, mailbox)
            raise
        except BaseException:
            self._interrupt(list(tasks), mailbox)
            raise

    def _mailbox(self) -> Any:
        """A mailbox on this node: if this node is lost, everything is. It ends once nothing refers to it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(self._ray.get_runtime_context().get_node_id(), soft=False)
        return self._ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()

    def _task(self, index: int, group: Group, out: Path, mailbox: Any) -> Any:
        gpus = gpu_share(group) if self.device == "cuda" else 0
        task = self._ray.remote(_work).options(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)
        environment = {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}
        return task.remote(index, list(group), out.resolve(), self.device, environment, mailbox)

    def _collect(self, tasks: dict[Any, int], groups: Sequence[Group], mailbox: Any, callback: Callback) -> list[str]:
        """Pass on the reports of the workers until all have ended. Returns why groups could not run."""
        problems: dict[str, None] = {}
        left = list(tasks)
        while left:
            done, left = self._ray.wait(left, timeout=INTERVAL)
            told = mailbox.take.remote()
            self._wait([told])
            with noting(problems):
                for name, arguments in self._ray.get(told):
                    getattr(callback, name)(*arguments)
            for task in done:
                problem = self._result(task, groups[tasks[task]])
                if problem:
                    problems[problem] = None
        return list(problems)

    def _result(self, task: Any, group: Group) -> str | None:
        from ray.exceptions import NodeDiedError, RayTaskError, WorkerCrashedError

        try:
            return self._ray.get(task)
        except RayTaskError as error:
            raise error.cause from error
        except (NodeDiedError, WorkerCrashedError):
            return f"the workers of {len(group)} runs ({group[0].name} first) were lost {RETRIES + 1} times"

    # Workers learn from the mailbox that they are to end. If ray.cancel met a task that ends at the same moment, a
    # check inside Ray would fail and end this process.

    def _stop(self, tasks: dict[Any, int], mailbox: Any) -> None:
        """Let the groups that have begun end their epoch; keep the others from beginning."""
        begun = self._ray.get(mailbox.stop.remote())
        try:
            self._wait([task for task, index in tasks.items() if index in begun])
        except KeyboardInterrupt:
            self._interrupt(list(tasks), mailbox)
            raise

    def _interrupt(self, tasks: list[Any], mailbox: Any) -> None:
        """Let the groups that have begun end at once; keep the others from beginning."""
        mailbox.interrupt.remote()
        # Tasks that are not ready by then end with the connection, and Ray complains of it.
        self._ray.wait(tasks, num_returns=len(tasks), timeout=ENDING)

    def _wait(self, tasks: list[Any]) -> None:
        """Wait until all tasks have ended, or an interruption comes."""
        while tasks:
            self._held.check()
            _, tasks = self._ray.wait(tasks, num_returns=len(tasks), timeout=INTERVAL)


class Mailbox:
    """An actor of Ray: it keeps the reports of the workers, and tells them whether to stop."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, tuple[Any, ...]]] = []
        self._begun: set[int] = set()
        self._stopping = self._interrupted = False

    def begin(self, group: int) -> bool:
        """Note that a group is about to begin. Returns whether to stop instead."""
        self._begun.add(group)
        return self._stopping

    def put(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Keep a call for the callbacks. Returns whether to stop."""
        self._messages.append((name, arguments))
        return self._stopping

    def take(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The calls that were put since the last :meth:`take`."""
        messages, self._messages = self._messages, []
        return messages

    def stop(self) -> set[int]:
        """Have all workers stop at the end of their epoch. Returns the groups that have begun."""
        self._stopping = True
        return self._begun

    def interrupt(self) -> None:
        """Have all workers stop at once."""
        self._stopping = self._interrupted = True

    def interrupted(self) -> bool:
        """Whether to stop at once."""
        return self._interrupted


class StoppedError(Exception):
    """A worker was asked to stop, and its epoch is over."""


class Telling(Callback):
    """Tells a mailbox what happens in a worker."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox = mailbox
        self._told = time.monotonic()

    def on_start(self, configs: Sequence[Config], epoch: int, steps: int) -> None:
        self._tell("on_start", configs, epoch, steps)

    def on_warmup_step(self, configs: Sequence[Config], step: WarmupStep) -> None:
        self._tell("on_warmup_step", configs, step)

    def on_step(self, configs: Sequence[Config], epoch: int, step: int) -> None:
        if time.monotonic() - self._told > INTERVAL:
            self._tell("on_step", configs, epoch, step)

    def on_epoch(self, configs: Sequence[Config], metrics: Sequence[dict[str, Any]]) -> None:
        if self._answer(self._tell("on_epoch", configs, metrics)):
            raise StoppedError

    def on_end(self, configs: Sequence[Config], summaries: Sequence[dict[str, Any]]) -> None:
        # The task must not end before this has arrived.
        self._answer(self._tell("on_end", configs, summaries))

    def _tell(self, name: str, *arguments: Any) -> Any:
        self._told = time.monotonic()
        return self._mailbox.put.remote(name, arguments)

    def _answer(self, told: Any) -> bool:
        import ray

        return ray.get(told)


def _work(index: int, group: Group, out: Path, device: str, environment: dict[str, str], mailbox: Any) -> str | None:
    """Train a group in a worker. Returns why the group could not run."""
    import ray

    os.environ.update(environment)
    keep_freed_memory()
    if ray.get(mailbox.begin.remote(index)):
        return None
    try:
        with _interruptible(mailbox):
            _wait_for_claims(group, out)
            return train_group(group, out, device, [Telling(mailbox)])
    except (StoppedError, KeyboardInterrupt):
        return None


@contextlib.contextmanager
def _interruptible(mailbox: Any) -> Iterator[None]:
    """A context that ends with a ``KeyboardInterrupt`` when the mailbox says so."""
    import ray

    over = threading.Event()

    def watch() -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            while not over.wait(INTERVAL):
                if ray.get(mailbox.interrupted.remote()):
                    _thread.interrupt_main()
                    return

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def _wait_for_claims(group: Group, out: Path) -> None:
    """Wait for the claims of a lost worker on the folders to end: all runs of a group go on together or none does."""
    until = time.monotonic() + PATIENCE
    for config in group:
        # Claims of a living process remain; the training itself reports them.
        with contextlib.suppress(BusyRunError), RunFolder.of(config, out).claimed(max(0.0, until - time.monotonic())):
            pass
