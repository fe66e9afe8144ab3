"""``ms.check``: a user's question whether the fused loop of a cell is the plain one."""

import pytest
import torch

import multistable as ms
from cells_of_others import OTHERS
from multistable.scan import cpu


@pytest.mark.parametrize(
    "kind", [*(ms.CELLS[name] for name in ms.CELLS.names()), *OTHERS], ids=lambda kind: kind.__name__
)
def test_every_cell_passes(kind):
    """Those of the paper and twenty of others."""
    cell = kind(3, 7, generator=torch.Generator().manual_seed(0))
    before = {name: (weight.clone(), weight.requires_grad) for name, weight in cell.named_parameters()}
    errors = ms.check(cell)
    assert errors.keys() == {"float64", "float32"}
    gradients = {f"gradient of {name}" for name in ("input", *cell.State._fields, *before)}
    assert errors["float32"].keys() == {*cell.State._fields} | gradients
    assert max(errors["float64"].values()) < 1e-12 < max(errors["float32"].values()) < 1e-4
    for name, weight in cell.named_parameters():
        assert torch.equal(weight, before[name][0])
        assert (weight.requires_grad, weight.grad) == (before[name][1], None)


def wrong_states(cell, projected, state, steps, members):
    return cell.State(*(1.001 * field for field in right(cell, projected, state, steps)))


def wrong_in_one_step(cell, projected, state, steps, members):
    states = right(cell, projected, state, steps)
    return cell.State(*(torch.cat([field[:-1], field[-1:] + (steps > 2) * 1e-3]) for field in states))


def wrong_gradient(cell, projected, state, steps, members):
    return right(cell, 0.999 * projected + 0.001 * projected.detach(), state, steps)


def nothing_but_nan(cell, projected, state, steps, members):
    return cell.State(*(field * torch.nan for field in right(cell, projected, state, steps)))


right = cpu.scan


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (wrong_states, "h "),
        (wrong_in_one_step, "h "),
        (wrong_gradient, "gradient of input "),
        (nothing_but_nan, "h nan"),
    ],
)
def test_a_wrong_loop_is_told(wrong, names, monkeypatch):
    monkeypatch.setattr(cpu, "scan", wrong)
    with pytest.raises(ArithmeticError, match="fused loop of GRU on cpu is not the plain one in float64") as raised:
        ms.check(ms.GRU(3, 7))
    assert names in str(raised.value)


def test_a_cell_without_a_fused_loop_is_told_why():
    class Sine(ms.GRU):
        def step(self, projected, state):
            return ms.Hidden(torch.sin(projected[..., : self.hidden_size]))

    with pytest.raises(ValueError, match=r"no fused loop to check: Sine .* operation aten\.sin"):
        ms.check(Sine(3, 7))


def test_a_network_is_no_cell():
    with pytest.raises(TypeError, match="cell must be a Cell, got RNN"):
        ms.check(ms.RNN("gru", 1, 4))
