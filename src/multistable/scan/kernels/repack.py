"""Weights as ``torch.nn`` has them from those of a cell, or gradients the other way, in one launch."""

import triton
import triton.language as tl


@triton.jit
def move(ours, theirs, row, rows, gate, other, unit, H, GATES: tl.constexpr, BACK: tl.constexpr):
    """Between ``(rows, gates * H)`` and ``(gates * H, rows)``, the gate in its own place in each."""
    mask = (row >= 0) & (row < rows) & (unit < H)
    here = ours + row * (GATES * H) + gate * H + unit
    there = theirs + (other * H + unit) * rows + row
    if BACK:
        tl.store(here, tl.load(there, mask=mask), mask=mask)
    else:
        tl.store(there, tl.load(here, mask=mask), mask=mask)


@triton.jit
def repack(
    input_weight, recurrent_weight, bias, second, w_ih, w_hh, b_ih, b_hh, IN, H,
    ORDER: tl.constexpr, SECOND: tl.constexpr, BACK: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """All weights: ``ORDER`` says where ``torch.nn`` has each gate. With ``SECOND`` the cell has a second bias."""
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)[:, None]
    blocks = tl.cdiv(H, SIDE)
    gate = tl.program_id(1) // blocks
    unit = tl.program_id(1) % blocks * SIDE + tl.arange(0, SIDE)[None, :]
    GATES: tl.constexpr = len(ORDER)
    other = 0
    for g in tl.static_range(GATES):
        other = tl.where(gate == g, ORDER[g], other)
    move(input_weight, w_ih, row, IN, gate, other, unit, H, GATES, BACK)
    move(recurrent_weight, w_hh, row - IN, H, gate, other, unit, H, GATES, BACK)
    move(bias, b_ih, row - IN - H, 1, gate, other, unit, H, GATES, BACK)
    if SECOND:
        move(second, b_hh, row - IN - H - 1, 1, gate, other, unit, H, GATES, BACK)
