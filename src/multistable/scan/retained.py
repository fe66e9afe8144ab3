"""Whether a backward pass follows, and whether it may overwrite what the forward pass saved for it."""

from collections.abc import Iterable
from typing import Any

import torch


def needs_gradient(tensors: Iterable[Any]) -> bool:
    """Whether autograd follows what is computed of these tensors, of which some may be None."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def graph_is_kept() -> bool:
    """Whether the backward pass that is running was asked to leave the graph usable (``retain_graph=True``)."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())
