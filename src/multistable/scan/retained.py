"""Whether a backward pass may overwrite what the forward pass saved for it."""

import torch


def graph_is_kept() -> bool:
    """Whether the backward pass that is running was asked to leave the graph usable (``retain_graph=True``)."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())
