"""A model that runs on batches and leaves nothing behind, while its recurrent modules are watched."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from multistable.dynamics.system.batches import Forward, how_called
from multistable.dynamics.system.interrupts import hold_back
from multistable.dynamics.system.reading import global_randomness_kept
from multistable.dynamics.system.reads import Reads


class Run:
    """A model and how to run it.

    Args:
        model: the model.
        forward: how to run it on a batch.
        wanted: how many sequences of each part to keep.
        least: how many the caller needs.
        explained: whether errors of the model shall say how it was called.
    """

    def __init__(self, model: nn.Module, forward: Forward, wanted: int, least: int, explained: bool) -> None:
        self._model, self._forward, self._explained = model, forward, explained
        self._wanted, self._least = wanted, least

    def over(self, batches: Iterator[Any], modules: dict[str, Any]) -> tuple[dict[str, Reads], list[Any]]:
        """Run the model on as many batches as are needed: what each module read, by first call, and these batches."""
        reads = {name: Reads(name, module, self._wanted, self._least) for name, module in modules.items()}
        order: dict[str, Reads] = {}
        kept = []
        with running(self._model), ExitStack() as hooks:
            for name, each in reads.items():

                def begin(*call: Any, name: str = name, each: Reads = each) -> None:
                    order.setdefault(name, each)
                    each.begin(*call)

                # Before the user's own hooks, which a part that has any keeps.
                handle = each.module.register_forward_pre_hook(begin, prepend=True, with_kwargs=True)
                hooks.callback(handle.remove)
                hooks.callback(each.module.register_forward_hook(each.end, with_kwargs=True).remove)
            for batch in batches:
                self._call(batch)
                kept.append(batch)
                for each in order.values():
                    each.end_of_batch()
                if order and all(each.enough for each in order.values()):
                    break
                if not order and len(kept) == self._wanted:
                    break
        if not kept:
            raise ValueError("batches must not be empty, got none (an iterator can be read only once)")
        return order, kept

    def _call(self, batch: Any) -> None:
        try:
            self._forward(self._model, batch)
        except Exception as error:
            if self._explained:
                error.add_note(
                    f"{type(self._model).__name__} was called as {how_called(batch)}; "
                    "forward=lambda model, batch: ... calls it otherwise"
                )
            raise


@contextmanager
def running(model: nn.Module) -> Iterator[None]:
    """Run a model in evaluation, without gradients, and leave nothing behind.

    Modes, buffers, plain attributes and the global random state are as before. What was compiled runs uncompiled, since
    a compiled model does not see hooks.
    """
    modules = [m for m in model.modules() if not any(map(is_lazy, _own(m)))]
    attributes = [(module, dict(vars(module)), dict(module._buffers)) for module in modules]
    values = [(buffer, buffer.detach().clone()) for module in modules for buffer in module.buffers(recurse=False)]
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(global_randomness_kept())
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and importing it takes long
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            for module in model.modules():
                module.training = False
            yield
        except BaseException:
            hold_back()
            raise
        finally:
            for module, own, buffers in attributes:
                vars(module).clear()
                vars(module).update(own)
                module._buffers.clear()
                module._buffers.update(buffers)
            for buffer, value in values:
                buffer.copy_(value)


def _own(module: nn.Module) -> list[Any]:
    return [*module._parameters.values(), *module._buffers.values()]
