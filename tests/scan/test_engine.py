"""Which time loop is chosen, by whom, and that no choice is overruled in silence."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import multistable as ms
from multistable.scan import reference, scan
from networks import KINDS, Leak, make


class Sine(ms.GRU):
    """A cell without a fused loop."""

    def step(self, projected, state):
        return ms.Hidden(torch.sin(projected[..., : self.hidden_size] + state.h))


def test_the_fused_loop_is_chosen_by_itself_and_says_so():
    assert ms.backends(ms.RNN("gru", 1, 4, 2)) == ["cpu", "cpu"]
    assert ms.backends(nn.LSTM(1, 4)) == ["cpu"]
    assert ms.backends(ms.Ensemble([ms.RNN("mgu", 1, 4, double=True)] * 3)) == ["cpu", "cpu"]
    assert ms.backends(Leak(1, 4)) == ["cpu"]  # a user's own


def test_the_reason_for_the_plain_loop_can_be_asked():
    (line,) = ms.backends(Sine(1, 4))
    assert line.startswith("reference: Sine has no fused loop: its step has the operation aten.sin")
    with ms.engine(backend="reference"):
        assert ms.backends(ms.RNN("gru", 1, 4)) == ["reference: asked for"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_network_can_be_asked(kind):
    assert all(line.startswith(("cpu", "reference", "module")) for line in ms.backends(make(kind)))


def test_an_explicit_choice_that_cannot_be_had_is_an_error():
    x = torch.randn(5, 3, 1)
    with ms.engine(backend="fused"):
        ms.RNN("nbrc", 1, 4)(x)
        with pytest.raises(RuntimeError, match="fused time loop was asked for, but Sine has no fused loop"):
            ms.RNN(Sine, 1, 4)(x)
        with pytest.raises(RuntimeError, match="needs float32 or float64"):
            ms.RNN("gru", 1, 4).bfloat16()(x.bfloat16())


def test_the_reference_is_the_reference_when_asked_for(monkeypatch):
    calls = []
    plain = reference.scan
    monkeypatch.setattr(reference, "scan", lambda *arguments: calls.append(1) or plain(*arguments))
    rnn, x = ms.RNN("gru", 1, 4), torch.randn(5, 3, 1)
    rnn(x)
    assert not calls
    with ms.engine(backend="reference"):
        rnn(x)
    assert calls


def test_settings_end_with_their_context_and_nest():
    with ms.engine(backend="fused") as outer:
        assert (outer.backend, outer.precision) == ("fused", "ieee")
        with ms.engine(precision="tf32") as inner:
            assert (inner.backend, inner.precision) == ("fused", "tf32")
        with pytest.raises(KeyError), ms.engine(backend="reference"):
            raise KeyError
        assert ms.backends(ms.RNN("gru", 1, 4)) == ["cpu"]
    with ms.engine() as default:
        assert (default.backend, default.precision) == ("auto", "ieee")


@pytest.mark.parametrize(
    ("name", "accepted"), [("backend", "auto, reference, fused, torch"), ("precision", "ieee, tf32x3, tf32")]
)
def test_unknown_settings_are_refused(name, accepted):
    with (
        pytest.raises(ValueError, match=f"{name} must be one of {accepted}, got 'quick'"),
        ms.engine(**{name: "quick"}),
    ):
        pass


def test_the_name_that_a_fused_loop_has_on_a_device_is_no_setting_and_explained():
    (name,) = ms.backends(ms.RNN("gru", 1, 4))
    message = f"""auto, reference, fused, torch, got '{name}', the loop that "fused" has on that device"""
    with pytest.raises(ValueError, match=message), ms.engine(backend=name):
        pass


def test_second_derivatives_raise_and_the_plain_loop_has_them():
    rnn, x = ms.RNN("gru", 1, 3, dtype=torch.float64), torch.randn(4, 2, 1, dtype=torch.float64, requires_grad=True)

    def gradient(u):
        return torch.autograd.grad(rnn(u)[0].pow(2).sum(), u, create_graph=True)[0]

    with pytest.raises(RuntimeError, match="no second derivatives"):
        gradient(x)
    with ms.engine(backend="reference"):
        assert torch.autograd.gradcheck(gradient, x)


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_autocast_changes_nothing_in_a_time_loop(backend):
    """Its input may come in another type. Gradients of the loop, not of products, are the same inside."""
    cell, u = ms.LSTM(2, 8), torch.randn(4, 3, 2).bfloat16()
    before = ms.HiddenAndMemory(torch.randn(3, 8).bfloat16(), torch.randn(3, 8))
    weights = list(cell.parameters())

    def gradients(states, of=weights):
        return torch.autograd.grad(states.h.square().sum() + states.c.sum(), of, retain_graph=True)

    with ms.engine(backend=backend):
        expected = scan(cell, u.float(), ms.HiddenAndMemory(*(field.float() for field in before)))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            states = scan(cell, u, before)
            assert torch.is_autocast_enabled("cpu")
            of_loop = gradients(states, cell.recurrent_weight) if backend == "fused" else ()
        assert_close((states, gradients(states)), (expected, gradients(expected)), rtol=0, atol=0)
        assert_close(of_loop, gradients(expected, cell.recurrent_weight)[: len(of_loop)], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("cell", "backend", "double"),
    [
        *(("lstm", "fused", False), ("gru", "fused", True), ("mgu", "fused", False), ("brc", "fused", True)),
        *(("lstm", "reference", True), ("mgu", "reference", False)),
    ],
)
def test_the_last_state_alone_is_the_last_of_all_to_the_bit(cell, backend, double):
    """For a changing and for a constant input, after an odd and an even number of steps."""
    layer = ms.RNN(cell, 2, 8, double=double).layers[0]
    for time in (1, 6, 7):
        for u in (torch.randn(time, 3, 2), torch.randn(1, 3, 2).expand(time, 3, 2)):
            with torch.no_grad(), ms.engine(backend=backend):
                _, start = layer(torch.randn(2, 3, 2))
                start = tuple(type(x)(*(field[-1] for field in x)) for x in start)
                _, everything = layer(u, start)
                last = layer.only_last(u, start)
            for x, y in zip(last, everything, strict=True):
                assert all(torch.equal(a, b[-1]) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("name", ["lstm", "mgu"])
def test_a_single_step_with_a_gradient_is_the_plain_loops(name):
    """To the bit: it has more to set up than it takes."""
    cell = ms.CELLS[name](3, 16)
    u = torch.randn(1, 5, 3)
    results = []
    for backend in ("auto", "reference"):
        with ms.engine(backend=backend):
            states = scan(cell, u)
        gradients = torch.autograd.grad(states[0].square().sum(), list(cell.parameters()))
        results.append([*states, *gradients])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
