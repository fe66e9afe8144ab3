"""The numbers that the paper prints, to stand beside ours.

They are those of its two tables and of a few sentences. All other results are drawn in the paper, as bars and curves
without numbers.
"""

from multistable.experiments.experiment import Kind
from multistable.experiments.selection import Setting

Table = dict[Kind, tuple[Setting, float, float]]
"""For each cell and version: L, H, learning rate and B; the mean over five runs, and the standard deviation."""

DENOISING: Table = {
    ("lstm", "classic"): ((3, 512, 1e-3, 32), 0.9970, 0.0089),
    ("lstm", "double"): ((3, 256, 5e-4, 64), 0.0004, 0.0001),
    ("lstm", "warmup"): ((3, 256, 1e-3, 64), 0.0010, 0.0009),
    ("gru", "classic"): ((1, 512, 1e-3, 32), 0.2656, 0.4593),
    ("gru", "double"): ((2, 256, 1e-3, 32), 0.0002, 0.0001),
    ("gru", "warmup"): ((1, 512, 5e-4, 64), 0.0002, 0.0001),
    ("mgu", "classic"): ((3, 512, 1e-3, 32), 0.3356, 0.5695),
    ("mgu", "double"): ((2, 256, 5e-4, 32), 0.0003, 0.0000),
    ("mgu", "warmup"): ((1, 256, 1e-3, 32), 0.0003, 0.0002),
    ("chrono", "classic"): ((1, 512, 1e-3, 32), 0.0003, 0.0002),
    ("chrono", "double"): ((1, 512, 1e-3, 32), 0.0004, 0.0003),
    ("chrono", "warmup"): ((1, 512, 1e-3, 32), 0.0004, 0.0002),
    ("brc", "classic"): ((3, 256, 1e-3, 32), 0.0006, 0.0001),
    ("nbrc", "classic"): ((1, 512, 1e-3, 32), 0.0001, 0.0000),
}
"""Appendix F, Table 1: test error on denoising, N = 100."""

LINE_MNIST: Table = {
    ("lstm", "classic"): ((2, 512, 1e-3, 64), 0.6693, 0.4807),
    ("lstm", "double"): ((2, 256, 5e-4, 32), 0.9519, 0.0058),
    ("lstm", "warmup"): ((3, 256, 5e-4, 32), 0.9475, 0.0008),
    ("gru", "classic"): ((3, 512, 5e-4, 32), 0.9578, 0.0087),
    ("gru", "double"): ((2, 512, 1e-4, 32), 0.9549, 0.0011),
    ("gru", "warmup"): ((1, 512, 1e-4, 32), 0.9555, 0.0053),
    ("mgu", "classic"): ((2, 512, 5e-4, 64), 0.9576, 0.0085),
    ("mgu", "double"): ((2, 512, 5e-4, 64), 0.9562, 0.0045),
    ("mgu", "warmup"): ((2, 256, 5e-4, 32), 0.9485, 0.0073),
    ("chrono", "classic"): ((1, 256, 1e-3, 32), 0.9545, 0.0020),
    ("chrono", "double"): ((1, 256, 1e-3, 32), 0.9575, 0.0029),
    ("chrono", "warmup"): ((1, 256, 1e-3, 32), 0.9562, 0.0017),
    ("brc", "classic"): ((2, 512, 5e-4, 32), 0.9589, 0.0064),
    ("nbrc", "classic"): ((2, 512, 5e-4, 64), 0.9600, 0.0006),
}
"""Appendix F, Table 2: test accuracy on permuted line-sequential MNIST, N = 472."""

RUNS = 5
"""How many runs each mean of the tables is over."""

COPY: dict[Kind, str] = {
    **{(cell, "classic"): "above 0.5" for cell in ("lstm", "gru", "mgu")},
    **{(cell, "warmup"): "below 0.001" for cell in ("lstm", "gru", "mgu")},
}
"""Section 6.2, on Figure 11: test error after 50 epochs on copy first input, at every length."""

VAA_AFTER_WARMUP = "1"
"""Section 6.1, on Figure 10: VAA of the network as the warmup ends."""

BEFORE_TRAINING = {"warmup": "100 gradient steps", "auxiliary": "20 epochs"}
"""Appendix H: what comes before training, by version."""
