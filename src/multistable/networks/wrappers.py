"""What stands around a module that it does not change."""

from typing import Any

from torch import nn

WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def unwrapped(module: Any) -> Any:
    """The module that ``torch.compile``, ``DataParallel`` or ``DistributedDataParallel`` was applied to."""
    while isinstance(module, nn.Module):
        inner = module._modules.get("_orig_mod")
        if isinstance(module, WRAPPERS):
            inner = module.module
        if inner is None:
            break
        module = inner
    return module
