"""Nothing changes that the user did not ask to change; and the import is light."""

import random
import subprocess
import sys
import warnings
from itertools import product

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import multistable as ms
from global_state import global_state
from networks import FEATURES, FEW_FORMS, FORMS, in_layout, make

CALLS = {
    "reachable_states": ms.reachable_states,
    "measure": lambda rnn, x: ms.measure(rnn, x, batches=2, batch_size=8, stabilisation=100),
    "attractors": lambda rnn, x: ms.attractors(rnn, x, batches=2, batch_size=8, stabilisation=100, longest=50),
    "lyapunov": lambda rnn, x: ms.lyapunov(rnn, x, batches=2, batch_size=8, stabilisation=100, steps=20),
    "fixed_points": lambda rnn, x: ms.fixed_points(
        rnn, torch.zeros(FEATURES, device="cpu"), ms.reachable_states(rnn, x), iterations=3
    ),
    "Keep": lambda rnn, x: ms.Keep(rnn, x, every=1, batch_size=8, stabilisation=10)(),
    "warmup": lambda rnn, x: ms.warmup(rnn, x, steps=2, batch_size=8, max_stabilisation=10),
    "prepare": lambda rnn, x: ms.prepare(rnn, x, method="flossing", steps=2),
}


def module_state(rnn):
    return {
        "modes": [module.training for module in rnn.modules()],
        "requires_grad": [p.requires_grad for p in rnn.parameters()],
        "identities": [id(p) for p in rnn.parameters()],
        "gradients": [None if p.grad is None else (id(p.grad), p.grad.tolist()) for p in rnn.parameters()],
        "names": list(rnn.state_dict()),
        "modules": [name for name, _ in rnn.named_modules()],
    }


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
@pytest.mark.parametrize(
    ("kind", "call"),
    [*product(FORMS, ["warmup"]), *product(FEW_FORMS, [call for call in CALLS if call != "warmup"])],
)
def test_module_and_global_state_are_as_before(kind, call):
    rnn = make(kind)
    parameters = list(rnn.parameters())
    parameters[0].grad = torch.ones_like(parameters[0])
    parameters[-1].requires_grad_(False)
    list(rnn.modules())[-1].eval()
    x = in_layout(rnn, torch.randn(6, 12, FEATURES, dtype=torch.float64))
    before, values = (module_state(rnn), global_state()), [p.clone() for p in parameters]
    CALLS[call](rnn, x)
    assert (module_state(rnn), global_state()) == before
    if call not in ("warmup", "prepare"):
        assert all(torch.equal(p, q) for p, q in zip(rnn.parameters(), values, strict=True))


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
@pytest.mark.parametrize("call", CALLS)
def test_an_ensemble_is_left_as_before(call):
    ensemble = ms.Ensemble([make("ms.RNN gru", seed) for seed in range(2)])
    before = module_state(ensemble), global_state()
    CALLS[call](ensemble, torch.randn(6, 12, FEATURES, dtype=torch.float64, generator=torch.Generator()))
    assert (module_state(ensemble), global_state()) == before


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
@pytest.mark.parametrize("call", CALLS)
def test_a_shuffled_loader_over_a_random_data_set_leaves_the_global_generators(call):
    class Noisy(TensorDataset):
        def __getitem__(self, index):
            random.random()
            np.random.rand()  # noqa: NPY002
            return super().__getitem__(index)[0] + torch.randn(())

    rnn = torch.nn.GRU(FEATURES, 4, batch_first=True)
    loader = DataLoader(Noisy(torch.zeros(16, 6, FEATURES)), batch_size=4, shuffle=True)
    before = global_state()
    CALLS[call](rnn, loader)
    assert global_state() == before


def test_a_precision_that_was_inherited_is_inherited_again():
    backends = torch.backends
    try:
        backends.fp32_precision = "tf32"
        ms.measure(nn_gru := torch.nn.GRU(1, 3), torch.randn(3, 40, 1), batches=1, stabilisation=2)
        assert nn_gru.training
        backends.fp32_precision = "ieee"
        assert backends.cuda.matmul.fp32_precision == "ieee"
        assert backends.mkldnn.matmul.fp32_precision == "ieee"
    finally:
        backends.fp32_precision = "none"


@pytest.mark.parametrize("call", CALLS)
def test_state_is_as_before_when_a_call_fails(call):
    rnn = make("module of sequences")
    before = module_state(rnn), global_state()
    with pytest.raises((TypeError, ValueError)):
        CALLS[call](rnn, torch.full((6, 12, FEATURES), float("nan"), dtype=torch.float64))
    assert (module_state(rnn), global_state()) == before


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_grad_mode_of_the_caller_does_not_matter(mode):
    rnn, x = make("torch.nn.GRU"), torch.randn(6, 12, FEATURES, dtype=torch.float64)
    start = [p.clone() for p in rnn.parameters()]
    with mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ms.WarmupWarning)
        CALLS["warmup"](rnn, x)
        assert isinstance(CALLS["measure"](rnn, x).vaa, float)
    assert any(not torch.equal(p, q) for p, q in zip(rnn.parameters(), start, strict=True))


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
@pytest.mark.parametrize(
    "call",
    [
        *CALLS.values(),
        lambda rnn, x: ms.warmup(rnn, x, steps=2, batch_size=8, max_stabilisation=10, algorithm="paper"),
        lambda rnn, x: ms.warmup(rnn, x, steps=20, batch_size=8, target=0.5),
        lambda rnn, x: ms.warmup(rnn, x, steps=2, batch_size=8, max_stabilisation=10, optimiser=torch.optim.NAdam),
        lambda rnn, x: ms.warmup(rnn, x, steps=2, batch_size=8, max_stabilisation=10, optimiser=torch.optim.Adagrad),
    ],
    ids=[*CALLS, "warmup of the paper", "warmup towards a wanted VAA", "warmup by NAdam", "warmup by Adagrad"],
)
@pytest.mark.parametrize("kind", ["torch.nn.GRU", "module of sequences"])
def test_the_default_device_does_not_matter(kind, call):
    """On "meta" no number can be read: whatever is made there by mistake shows itself."""
    x = torch.randn(6, 12, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rnn, same = make(kind), make(kind)
    expected = call(rnn, x)
    torch.set_default_device("meta")
    try:
        found = call(same, x)
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)
    assert repr(found) == repr(expected)
    assert all(torch.equal(p, q) for p, q in zip(same.parameters(), rnn.parameters(), strict=True))


def test_the_import_needs_only_the_core_packages():
    """In a new process: every package that importing multistable adds to what torch and numpy bring."""
    script = (
        "import sys, torch, numpy; before = set(sys.modules); import multistable; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    added = set(result.stdout.split()) - set(sys.stdlib_module_names)
    assert added == {"multistable"}
