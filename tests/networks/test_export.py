"""Networks as programs of other tools. ONNX is among the integrations, since it needs packages of its own."""

import pytest
import torch

import multistable as ms

KINDS = {
    "double lstm": lambda: ms.RNN("lstm", 2, 4, 2, double=True),
    "bidirectional brc": lambda: ms.RNN("brc", 2, 4, bidirectional=True, batch_first=True),
}


def warmed_up(kind):
    rnn = KINDS[kind]().eval()
    if not rnn.bidirectional:
        with pytest.warns(ms.WarmupWarning):
            ms.warmup(rnn, torch.randn(5, 8, 2), algorithm="paper", steps=1, max_stabilisation=3)
    return rnn


def close(found, expected):
    assert type(found[1]) is type(expected[1])
    for a, b in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_traced_network_computes_the_same(kind):
    rnn = warmed_up(kind)
    traced = torch.jit.trace(rnn, (torch.randn(5, 4, 2),))
    x = torch.randn(5, 4, 2)
    close(traced(x), rnn(x))


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_network_computes_the_same_for_any_batch(kind):
    rnn = warmed_up(kind)
    of_batch = {0 if rnn.batch_first else 1: torch.export.Dim("n")}
    program = torch.export.export(rnn, (torch.randn(5, 5, 2),), dynamic_shapes=(of_batch,)).module()
    x = torch.randn(5, 9, 2) if not rnn.batch_first else torch.randn(9, 5, 2)
    close(program(x), rnn(x))


def test_a_fused_loop_that_is_asked_for_is_refused_with_the_one_to_ask_for():
    rnn = KINDS["double lstm"]()
    with (
        ms.engine(backend="fused"),
        pytest.raises(RuntimeError, match=r'cannot be exported or traced: ms.engine\(backend="reference"\) can'),
    ):
        torch.export.export(rnn, (torch.randn(5, 4, 2),))
