"""Memory that is freed serves again, in processes of the command line."""

import os
import subprocess
import sys

import pytest

FAULTS = """
import contextlib, resource, sys
from multistable.cli import main
if sys.argv.pop() == "kept":
    sys.argv.append("--version")
    with contextlib.redirect_stdout(None), contextlib.suppress(SystemExit):
        main()
import torch
torch.ones({numbers})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones({numbers})
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(way, megabytes, **environment):
    """Of ten tensors, each freed before the next, after a first one."""
    code = FAULTS.format(numbers=megabytes * 2**18)
    known = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    ended = subprocess.run([sys.executable, "-c", code, way], capture_output=True, text=True, env=known | environment)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is kept where there is glibc")
def test_pages_of_a_tensor_are_not_asked_for_again():
    pages = 10 * 64 * 2**20 // 4096
    assert page_faults("returned", 64) > 0.9 * pages
    assert page_faults("kept", 64) < 0.2 * pages


@pytest.mark.skipif(sys.platform != "linux", reason="memory is kept where there is glibc")
def test_what_the_environment_sets_stays():
    pages = 10 * 64 * 2**20 // 4096
    assert page_faults("kept", 64, MALLOC_MMAP_THRESHOLD_=str(2**20)) > 0.9 * pages
