"""Settings for all tests."""

import os
import signal

# The networks here are small, and two test processes share the machine: threads would only wait for each other. Said
# before PyTorch is there, so that the processes that tests start compute with the same last digits.
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from hypothesis import settings

torch.set_num_threads(1)

# Without a GPU kernels run in Triton's interpreter. Triton reads this once, when any test first imports it.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

pytest_plugins = ["mnist_files", "tiny_experiment"]

# The same examples every time, and no limit on a slow machine's clock.
settings.register_profile("multistable", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("multistable")

# pytest-xdist tells its workers the width of its own terminal, at which tables would be wrapped.
os.environ.pop("COLUMNS", None)

# In the background of a shell script Ctrl-C is ignored, and would be by the commands that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
