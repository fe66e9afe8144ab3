"""The warmups of this library as ways to prepare a network: its default, and Algorithm 3 of the paper."""

from functools import partial

from multistable.dynamics.warmup import warmup

by_default = warmup
by_algorithm_3 = partial(warmup, algorithm="paper")
