"""The compiled formulas of the fused loop on the CPU: loaded late, exact, the same from the cache."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch


def test_numba_is_loaded_late():
    code = "import sys, multistable; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tanh_is_right_to_a_few_units_in_the_last_place():
    pytest.importorskip("numba")
    from multistable.scan.cpu.pointwise import add_sigmoid, add_tanh

    def value(function, x):
        y = torch.zeros_like(x)
        function(y.numpy(), x.numpy())
        return y

    grid = torch.linspace(-20, 20, 2_000_001)
    small = torch.logspace(-44, 0, 100_001, dtype=torch.float64).float()
    for x in (grid, small, -small):
        y, exact = value(add_tanh, x), x.double().tanh()
        unit = torch.from_numpy(np.spacing(exact.abs().float().numpy())).double()
        assert ((y.double() - exact).abs() / unit).max() < 6
        assert y.abs().max() <= 1
        y = value(add_sigmoid, x)
        assert (y.double() - x.double().sigmoid()).abs().max() < 2.5e-7
        assert 0 <= y.min() <= y.max() <= 1
    special = value(add_tanh, torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, 1e-42]))
    assert special[0].isnan()
    assert torch.equal(special[1:], torch.tensor([1.0, -1.0, 0.0, 1e-42]))


GRADIENTS = """
import hashlib, torch
import multistable as ms
from multistable.scan import cpu

assert cpu.compiled_equations()
torch.set_num_threads(1)
for name, kind in ms.CELLS.items():
    if kind.step in cpu.EQUATIONS:
        rnn = ms.RNN(name, 2, 19, generator=torch.Generator().manual_seed(0))
        outputs, _ = rnn(torch.randn(20, 30, 2, generator=torch.Generator().manual_seed(1)))
        gradients = torch.autograd.grad(outputs.square().sum(), list(rnn.parameters()))
        bits = b"".join(tensor.detach().numpy().tobytes() for tensor in (outputs, *gradients))
        print(name, hashlib.sha256(bits).hexdigest())
"""


def test_code_from_the_cache_computes_what_it_did_when_it_was_compiled(tmp_path):
    """A run that is continued in another process ends with the same numbers."""
    pytest.importorskip("numba")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.run([sys.executable, "-c", GRADIENTS], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    compiled, cached = (process.stdout for process in processes)
    assert "mgu" in compiled
    assert compiled == cached
