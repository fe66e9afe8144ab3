"""Products of almost float32 on the matrix units: three of halves in place of one.

A number of half precision has 11 bits, as many as TF32 has, and takes half the room. Two of them, the nearest to a
float32 and the nearest to what is then missing, make up 23 of its 24 bits. The matrix units are twice as fast on them,
so that three products, ::

    x w = high(x) high(w) + (high(x) low(w) + low(x) high(w)) / REST

take one and a half times as long as one in TF32; the fourth, of what is missing in both, is below the last bit. What is
missing is kept ``REST`` times as large: as it is, of a number below an eighth it would be too small for half precision.
So a number x loses 2 ** -23 of itself, or 2 ** -36 if that is more.

Half precision ends at 65,504. Beyond, a weight or a state is infinite and its products are not a number, so that nobody
takes them for results; inputs, which may be anybody's data, are brought into that range. There is a place for these
products only where no backward pass follows: its gradients may be of any size.

Here are the halves, and the product with the input; ``matrix_halves.py`` has that with the recurrent matrix.
"""

import triton
import triton.language as tl

REST = tl.constexpr(2048.0)


@triton.jit
def halves(x):
    """The nearest number of half precision, and the nearest to ``REST`` times what is missing."""
    high = x.to(tl.float16)
    return high, ((x - high.to(tl.float32)) * REST).to(tl.float16)


@triton.jit(do_not_specialize=["R"])
def project_thrice(
    u, scale, high, low, bias, room, R, u_n, u_r,
    IN: tl.constexpr, W: tl.constexpr, BIAS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):  # fmt: skip
    """The product with the input and its bias.

    ``u`` is ``(N, R, IN)``, its last stride 1; ``scale``, ``(N,)``, are powers of two that bring it into the range of
    half precision; ``high`` and ``low``, the halves of the weight, are ``(N, IN, W)``, ``bias`` is ``(N, W)``, and
    ``room`` is ``(N, R, W)``. The sum over inputs has one order, whatever the number of rows: a step is the same, to
    the bit, however many are computed at once.
    """
    n = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    own = u + n * u_n + row.to(tl.int64) * u_r
    high += n * IN * W + column
    low += n * IN * W + column
    factor = tl.load(scale + n)
    whole = tl.zeros((ROWS, COLUMNS), tl.float32)
    rest = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, IN, DEPTH):
        i = first + tl.arange(0, DEPTH)
        x = tl.load(own + i[None, :], mask=(row < R) & (i < IN)[None, :], other=0.0)
        mask = (i < IN)[:, None] & (column < W)
        w_high = tl.load(high + i[:, None] * W, mask=mask, other=0.0)
        w_low = tl.load(low + i[:, None] * W, mask=mask, other=0.0)
        x_high, x_low = halves(x * factor)
        whole = tl.dot(x_high, w_high, whole)
        rest = tl.dot(x_high, w_low, rest)
        rest = tl.dot(x_low, w_high, rest)
    total = (whole + rest * (1 / REST)) / factor
    if BIAS:
        total += tl.load(bias + n * W + column, mask=column < W, other=0.0)
    tl.store(room + (n * R + row) * W + column, total, mask=(row < R) & (column < W))
