"""What the compiler makes of the kernels for a GPU, without having one."""

import os
import subprocess
import sys

import pytest

from paths import ROOT

pytest.importorskip("triton")

CASES = [
    *("gru:256:10:tf32", "lstm:256:10:tf32", "mgu:256:10:tf32", "nbrc:256:10:tf32"),
    *("gru:128:30:ieee", "lstm:256:1:ieee", "brc:256:30:ieee", "elman:64:1:ieee"),
]


def test_no_register_is_spilled_in_a_time_loop():
    """In the kernels of every cell, forward and back; in a process of its own, since here Triton interprets."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, ROOT / "tests" / "helpers" / "compiled_kernels.py", *CASES]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [case for case, *_ in lines] == [case for case in CASES for _ in ("forward", "back")]
    assert not [line for line in lines if line[2] != "0"]
