"""How many threads a product may use while a network is studied on the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

PAYS = 4_000_000
"""The weights of a layer from which on its products are long enough for several threads.

The threads of a product wait for each other. Where another process has one of the processors, that takes as long as the
system lets that process run: 17 million operations then took 60 times the processor time of one thread, 671 million
2.9 times, and 11,000 million, the products of such a layer, 1.2 times (``make bench`` measures whole calls).
"""


@contextmanager
def threads_that_pay(weights: int) -> Iterator[None]:
    """Compute with one thread, unless layers have many ``weights``; of the calling thread alone, and put back."""
    before = torch.get_num_threads()
    if before == 1 or weights >= PAYS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
