"""The product with an input of few numbers, the first layer's of most tasks."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["B"])
def project_few(
    u, weight, bias, room, B, W, width, u_t, u_n, u_b, u_i,
    IN: tl.constexpr, BIAS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The product with a few inputs and its bias, in float32, in one pass over memory.

    Writing the result is all the cost. A matrix product would write the bias first, read it, and write again; and
    with a number of inputs that no word of memory holds, it is slow besides.

    ``u`` is ``(T, N, B, IN)``, any strides; ``weight`` is ``(N, IN, W)``, ``bias`` is ``(N, W)``, and ``room`` is
    ``(N, T, B, width)``. A program has some rows and columns of one step.
    """
    tiles = tl.cdiv(B, ROWS)
    t = (tl.program_id(0) // tiles).to(tl.int64)
    n = tl.program_id(2).to(tl.int64)
    b = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    steps = tl.num_programs(0) // tiles
    own = u + t * u_t + n * u_n + b.to(tl.int64) * u_b
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    if BIAS:
        total += tl.load(bias + n * W + column, mask=column < W, other=0.0)
    for i in tl.static_range(IN):
        w = tl.load(weight + (n * IN + i) * W + column, mask=column < W, other=0.0)
        total += tl.load(own + i * u_i, mask=b < B, other=0.0) * w
    room += (n * steps + t) * B * width
    tl.store(room + b * width + column, total, mask=(b < B) & (column < W))
