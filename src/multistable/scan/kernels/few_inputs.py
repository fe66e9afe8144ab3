"""The product with an input of few numbers, as the first layer has it in most tasks, and its gradients."""

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
    tl.store(room + b.to(tl.int64) * width + column, total, mask=(b < B) & (column < W))


@triton.jit(do_not_specialize=["T", "B"])
def gradients_of_few(
    u, grads, sums, T, B, W, width, u_t, u_n, u_b, u_i,
    IN: tl.constexpr, STEPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradients of the weight, then of the bias, in one pass over memory; each sum is over some of the steps.

    ``u`` is ``(T, N, B, IN)``, any strides; ``grads`` is ``(N, T, B, width)``, its first ``W`` columns those of the
    product; ``sums`` is ``(N, T / STEPS, IN + 1, W)``.
    """
    part = tl.program_id(0)
    n = tl.program_id(2).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    of_weight = ()
    for _ in tl.static_range(IN):
        of_weight = of_weight + (tl.zeros((ROWS, COLUMNS), tl.float32),)
    of_bias = tl.zeros((ROWS, COLUMNS), tl.float32)
    t = (part * STEPS).to(tl.int64)
    while t < min(T, (part + 1) * STEPS):
        first = 0
        while first < B:
            b = first + tl.arange(0, ROWS)[:, None]
            place = ((n * T + t) * B + b) * width
            grad = tl.load(grads + place + column, mask=(b < B) & (column < W), other=0.0)
            of_bias += grad
            added = ()
            for i in tl.static_range(IN):
                x = tl.load(u + t * u_t + n * u_n + b.to(tl.int64) * u_b + i * u_i, mask=b < B, other=0.0)
                added = added + (of_weight[i] + x * grad,)
            of_weight = added
            first += ROWS
        t += 1
    sums += (n * tl.num_programs(0) + part) * (IN + 1) * W
    unit = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    for i in tl.static_range(IN):
        tl.store(sums + i * W + unit, tl.sum(of_weight[i], axis=0), mask=unit < W)
    tl.store(sums + IN * W + unit, tl.sum(of_bias, axis=0), mask=unit < W)
