"""Flags of PyTorch that are the whole process's, held at a value while some thread needs it."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

lock = threading.RLock()
"""Held while a flag, or the mode of a module, is read and written. Never while anything is computed."""


class Flag:
    """A flag of the process. The first thread that needs a value sets it, and the last one puts back what was there.

    A thread needs what it asked for last. Where threads need different values the strictest holds, so that no measure
    is less precise because another thread trains. A value that the user sets in between stays.

    Args:
        read: the value now.
        write: set a value.
        strictest_first: the values that can be asked for.
        means: other values that are as good as one of these.
        put_back: what to set so that the flag is again what it was.
    """

    def __init__(
        self,
        read: Callable[[], Any],
        write: Callable[[Any], None],
        strictest_first: Sequence[Any],
        means: Mapping[Any, Any] = MappingProxyType({}),
        put_back: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self._read, self._write, self._put_back = read, write, put_back
        self._order, self._means = list(strictest_first), means
        self._asked: list[tuple[int, Any, object]] = []
        self._before: Any = None
        self._set: Any = None

    @contextmanager
    def held(self, value: Any) -> Iterator[None]:
        """Hold the flag at ``value``, or at a stricter one, inside."""
        asked = (threading.get_ident(), value, object())
        try:
            with lock:
                if not self._asked:
                    self._before = self._set = self._read()
                self._asked.append(asked)
                self._update()
            yield
        finally:
            # An interrupt may break in once, see interrupted_once.
            try:
                self._release(asked)
            except BaseException:
                self._release(asked)
                raise

    def _release(self, asked: tuple[int, Any, object]) -> None:
        """Forget what was asked for. Doing it twice changes nothing."""
        with lock:
            if asked in self._asked:
                self._asked.remove(asked)
            self._update()

    def _update(self) -> None:
        """Set what the threads need now, or put back what was there before."""
        now = self._read()
        if now != self._set:
            self._before = now  # set by the user in between
        needed = {thread: value for thread, value, _ in self._asked}.values()
        if needed:
            strictest = min(needed, key=self._order.index)
            if strictest not in (now, self._means.get(now)):
                self._write(strictest)
        elif now != self._before:
            self._write(self._put_back(self._before))
        self._set = self._read()


def _inherited(precision: str) -> str:
    """What to set so that a precision which was inherited is inherited again, and not fixed."""
    return "none" if precision == torch.backends.fp32_precision else precision  # type: ignore[attr-defined]


def _matmul(backend: Any) -> Flag:
    """The precision of a backend's float32 products; "none" means float32 too."""
    read, write = partial(getattr, backend, "fp32_precision"), partial(setattr, backend, "fp32_precision")
    return Flag(read, write, ("ieee", "tf32"), {"none": "ieee"}, _inherited)


MATMUL = {"cuda": _matmul(torch.backends.cuda.matmul), "mkldnn": _matmul(torch.backends.mkldnn.matmul)}  # type: ignore[attr-defined]
CUDNN = Flag(
    partial(getattr, torch.backends.cudnn, "enabled"), partial(setattr, torch.backends.cudnn, "enabled"), (False,)
)
