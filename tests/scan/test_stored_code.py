"""Compiled code of the fused loop on the CPU is stored, read again, and never trusted if it could be damaged."""

import os
import subprocess
import sys

import pytest

from loop_problems import check, make, problem

GRADIENTS = """
import hashlib, torch
import multistable as ms
from multistable.scan import cpu

assert cpu.compiler_of_passes()
torch.set_num_threads(1)
for name in ms.CELLS.names():
    rnn = ms.RNN(name, 2, 19, generator=torch.Generator().manual_seed(0))
    outputs, _ = rnn(torch.randn(20, 30, 2, generator=torch.Generator().manual_seed(1)))
    gradients = torch.autograd.grad(outputs.square().sum(), list(rnn.parameters()))
    bits = b"".join(tensor.detach().numpy().tobytes() for tensor in (outputs, *gradients))
    print(name, hashlib.sha256(bits).hexdigest())
"""


def test_stored_code_computes_what_it_did_when_it_was_compiled(tmp_path):
    """A run that is continued in another process ends with the same numbers."""
    pytest.importorskip("llvmlite")
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    folder = tmp_path / "multistable" / "code"
    runs = []
    for _ in range(2):
        command = [sys.executable, "-c", GRADIENTS]
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        runs.append((printed, {path: path.stat().st_mtime_ns for path in folder.iterdir()}))
    assert runs[0] == runs[1]
    assert "mgu" in runs[0][0]
    assert len(runs[0][1]) >= 8  # a pass forward and one back of each cell of the paper, and more of an MGU


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """The module, as in a process that has compiled nothing, with a cache of its own."""
    module = pytest.importorskip("multistable.scan.cpu.compiled")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_compiled", module._compiled.__wrapped__)
    monkeypatch.setattr(module, "compiled", module.compiled.__wrapped__)
    return module


def stored_by_check(tmp_path):
    """What is stored when a cell has been checked."""
    cell = make("gru", 3)
    check(cell, *problem(cell, 2, 3))
    return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: content[: len(content) // 2], id="cut"),
        pytest.param(lambda content: b"garbage" * (len(content) // 7), id="garbage"),
        pytest.param(lambda content: content[:200] + bytes(len(content) - 200), id="zeros"),
        pytest.param(lambda _: b"", id="empty"),
    ],
)
def test_damaged_code_is_compiled_and_stored_anew(damage, compiled, tmp_path):
    before = stored_by_check(tmp_path)
    assert before
    for path, content in before.items():
        path.write_bytes(damage(content))
    assert stored_by_check(tmp_path) == before  # the optimised code, and nothing else


@pytest.mark.parametrize("named", ["", "relative"])
def test_without_a_home_code_is_compiled_all_the_same(named, compiled, tmp_path, monkeypatch):
    pwd = pytest.importorskip("pwd")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert stored_by_check(tmp_path) == {}


@pytest.mark.parametrize("named", ["file", "x" * 300], ids=["file", "unreadable"])
def test_where_nothing_can_be_stored_code_is_compiled_all_the_same(named, compiled, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / named))
    assert stored_by_check(tmp_path) == {tmp_path / "file": b""}


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owner")
def test_code_that_others_could_have_stored_is_not_read(compiled, monkeypatch):
    folder = compiled.cache_folder()
    compiled._store(folder / "name", b"code")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert compiled._read(folder / "name") == b"code"
    for mode in (0o720, 0o702):
        folder.chmod(mode)
        assert compiled._read(folder / "name") is None
    folder.chmod(0o755)
    assert compiled._read(folder / "name") == b"code"
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert compiled._read(folder / "name") is None


def test_code_that_could_not_be_stored_leaves_nothing_behind(compiled):
    folder = compiled.cache_folder()
    (folder / "name").mkdir(parents=True, mode=0o700)
    compiled._store(folder / "name", b"code")
    assert [path.name for path in folder.iterdir()] == ["name"]


def test_what_compiles_is_loaded_late():
    code = "import sys, multistable; assert not {'llvmlite', 'torch._dynamo'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
