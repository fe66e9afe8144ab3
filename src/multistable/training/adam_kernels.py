"""A step of Adam in two kernels: one judges the gradients of each member, one updates everything.

Both take many tensors ``(R, ...)`` in one launch, each as R members of ``width`` entries. A program has ``BLOCK``
entries of one member of one tensor. The arithmetic of an entry does not depend on what else is in the launch.
"""

import triton
import triton.language as tl


@triton.jit
def one_of(tensors, index):
    """``tensors[index]`` for an index that is not known at compile time."""
    chosen = tensors[0]
    for i in tl.static_range(1, len(tensors)):
        chosen = tl.where(index == i, tensors[i], chosen)
    return chosen


@triton.jit
def place(widths, members, BLOCK: tl.constexpr):
    """The part of this program: its tensor, its member, its first entry in that tensor, and how many entries."""
    program = tl.program_id(0)
    index = tl.full((), 0, tl.int32)
    first = tl.full((), 0, tl.int32)
    end = tl.full((), 0, tl.int32)
    width = tl.full((), 0, tl.int64)
    for i in tl.static_range(len(widths)):
        begin = end
        reached = program >= begin
        width_i = tl.full((), 0, tl.int64) + widths[i]  # A width of 1 is a compile-time constant, without a type.
        index = tl.where(reached, i, index)
        first = tl.where(reached, begin, first)
        width = tl.where(reached, width_i, width)
        end = begin + members * tl.cdiv(width_i, BLOCK).to(tl.int32)
    blocks = tl.cdiv(width, BLOCK).to(tl.int32)
    member = ((program - first) // blocks).to(tl.int64)
    start = ((program - first) % blocks).to(tl.int64) * BLOCK
    return index, member, member * width + start, tl.minimum(width - start, BLOCK).to(tl.int32)


@triton.jit
def has_unusable(gradient, count, BLOCK: tl.constexpr):
    """Whether the square of one of ``count`` entries is not finite, as 0 or 1."""
    entry = tl.arange(0, BLOCK)
    g = tl.load(gradient + entry, mask=entry < count, other=0.0)
    # 2 ** 64 is the smallest number whose square is infinite in float32. No comparison with a NaN is true.
    return tl.max(tl.where(tl.abs(g) < 18446744073709551616.0, 0, 1))


@triton.jit(do_not_specialize=["members"])
def judge(
    gradients, widths, members, taken, now, unusable, passed_over,
    LOG_FIRST: tl.constexpr, LOG_SECOND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Begin a step: count it, and the members that cannot use their gradient.

    ``taken`` is how many steps were taken before. ``now (3,)`` becomes the number of this step and the factors that
    correct the mean and the root of the square for their start at 0. ``unusable (R,)`` becomes the number of this step
    for members that cannot use their gradient. Any other number is that of an earlier step, so nothing is ever cleared.
    """
    step = tl.load(taken) + 1.0
    if tl.program_id(0) == 0:
        # In float64, as ``taken`` is: 1 - beta ** n loses most of its digits where beta is near 1.
        tl.store(now, step)
        tl.store(now + 1, 1.0 / (1.0 - tl.exp(step * LOG_FIRST)))
        tl.store(now + 2, 1.0 / tl.sqrt(1.0 - tl.exp(step * LOG_SECOND)))
    index, member, at, count = place(widths, members, BLOCK)
    gradient = one_of(gradients, index)
    # Both branches compute the same. Where all is a multiple of 4, the compiler loads and stores 4 entries at once.
    if (at % 4 == 0) & (count % 4 == 0):
        found = has_unusable(gradient + at // 4 * 4, count // 4 * 4, BLOCK)
    else:
        found = has_unusable(gradient + at, count, BLOCK)
    if found > 0:
        before = tl.atomic_xchg(unusable + member, step.to(tl.int64))
        if before != step.to(tl.int64):
            tl.atomic_add(passed_over + member, 1)  # Only the first program that finds one in this step counts it.


@triton.jit
def update_entries(
    parameter, mean, square, gradient, count, usable, rate, correction,
    FIRST: tl.constexpr, SECOND: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Update ``count`` entries; each is read once and written once."""
    entry = tl.arange(0, BLOCK)
    mask = entry < count
    g = tl.load(gradient + entry, mask=mask, other=0.0)
    m = tl.load(mean + entry, mask=mask, other=0.0)
    s = tl.load(square + entry, mask=mask, other=0.0)
    p = tl.load(parameter + entry, mask=mask, other=0.0)
    g = tl.where(usable, g, 0.0)
    m += (g - m) * (1 - FIRST)
    s = s * SECOND + g * g * (1 - SECOND)
    p -= tl.div_rn(m, tl.sqrt_rn(s) * correction + EPS) * rate
    tl.store(mean + entry, m, mask=mask)
    tl.store(square + entry, s, mask=mask)
    tl.store(parameter + entry, p, mask=mask)


@triton.jit(do_not_specialize=["members"])
def update(
    parameters, means, squares, gradients, widths, members, rates, taken, now, unusable,
    FIRST: tl.constexpr, SECOND: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """End the step that :func:`judge` began: move all parameters, and keep the number of the step in ``taken``.

    ``rates`` is ``(R,)``. Members that cannot use their gradient take 0 in its place.
    """
    step = tl.load(now)
    if tl.program_id(0) == 0:
        tl.store(taken, step)  # Not in judge: all its programs read ``taken``.
    index, member, at, count = place(widths, members, BLOCK)
    usable = tl.load(unusable + member) != step.to(tl.int64)
    rate = tl.load(rates + member) * tl.load(now + 1).to(tl.float32)
    correction = tl.load(now + 2).to(tl.float32)
    p = one_of(parameters, index)
    m = one_of(means, index)
    s = one_of(squares, index)
    g = one_of(gradients, index)
    if (at % 4 == 0) & (count % 4 == 0):
        fours = at // 4 * 4
        update_entries(
            p + fours, m + fours, s + fours, g + fours, count // 4 * 4, usable, rate, correction,
            FIRST, SECOND, EPS, BLOCK,
        )  # fmt: skip
    else:
        update_entries(p + at, m + at, s + at, g + at, count, usable, rate, correction, FIRST, SECOND, EPS, BLOCK)
