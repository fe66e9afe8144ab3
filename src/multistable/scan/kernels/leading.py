"""Any number of leading dimensions of weights and states as the one dimension that kernels take, and back."""

from torch import Tensor


def one_lead(x: Tensor, lead: int) -> Tensor:
    """``(..., any)`` as ``(members, any)``: ``lead`` leading dimensions become one."""
    return x.flatten(0, lead - 1) if lead > 1 else x if lead else x.unsqueeze(0)


def one_lead_in_time(x: Tensor) -> Tensor:
    """``(time, ..., rows, any)`` as ``(time, members, rows, any)``; an expansion in time stays one."""
    if x.dim() == 3:
        return x.unsqueeze(1)
    lead = x.stride()[1:-2]
    mergeable = all(lead[i] == lead[i + 1] * x.shape[i + 2] for i in range(len(lead) - 1))
    if mergeable or x.stride(0) != 0:
        return x.flatten(1, -3)
    once = x[0].flatten(0, -3)
    return once.expand(len(x), *once.shape)


def own_lead_in_time(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """``(time, members, rows, any)`` as ``(time, *lead, rows, any)``, a view."""
    return x.unflatten(1, lead) if len(lead) > 1 else x if lead else x.squeeze(1)
