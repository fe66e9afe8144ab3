"""The forward kernel: all cells with a recurrent matrix, all steps, one launch."""

import triton
import triton.language as tl

from multistable.scan.kernels.equations import brc_forward, gru_forward, lstm_forward, sigmoid, tanh
from multistable.scan.kernels.product import indices, load_weights, meet, to_each


@triton.jit
def load_gates(source, gate_stride, mask, X: tl.constexpr):
    x = ()
    for g in tl.static_range(X):
        x = x + (tl.load(source + g * gate_stride, mask=mask, other=0.0),)
    return x


@triton.jit
def store_saved(target, H, s, mask, SAVED: tl.constexpr):
    for i in tl.static_range(SAVED):
        tl.store(target + i * H, s[i], mask=mask)


@triton.jit(do_not_specialize=["T", "N", "B", "span", "one"])
def advance(
    projected, weight, bias, hidden, memory, saved, modulated, arrivals,
    one, T, N, B, span, H, p_t, p_n, p_b, p_j, w_n, w_row, state_n,
    KIND: tl.constexpr, G: tl.constexpr, X: tl.constexpr, SAVED: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, K: tl.constexpr, J: tl.constexpr, PARTS: tl.constexpr, AHEAD: tl.constexpr,
    SPLITS: tl.constexpr, SAVE: tl.constexpr, ONLY_LAST: tl.constexpr,
):  # fmt: skip
    """Advance ``N`` recurrences of ``B`` rows over ``T`` steps.

    ``projected`` is ``(T, N, B, X * H)``, any strides; ``weight`` is ``(N, H, G * H)``; ``hidden`` and ``memory``
    (of an LSTM) are ``(N, T + 1, B, H)``, the state before the first step in the first place, or, with
    ``ONLY_LAST``, ``(N, 2, B, H)``, written in turn. ``saved`` is ``(N, T, B, SAVED * H)``, written when ``SAVE``.
    ``modulated``, ``(N, B, H)``, is where the programs of a group exchange the f * h of an MGU.

    A group of ``SPLITS`` programs advances one tile of ``span`` rows, at most ``ROWS``, at a time. Each has ``J``
    of the units and all their weights, and meets the others after each product: states go through memory.
    """
    # A tile that one program advances alone never leaves its registers.
    ALONE: tl.constexpr = SPLITS == 1
    split = tl.program_id(0) % SPLITS
    group = tl.program_id(0) // SPLITS
    groups = tl.num_programs(0) // SPLITS
    arrivals += group
    row, unit, k = indices(split, one, ROWS, K, J, PARTS)
    tiles = tl.cdiv(B, span)
    expected = tl.full((), 0, tl.int64)
    item = group
    while item < N * tiles:
        n = (item // tiles).to(tl.int64)
        b_first = (item % tiles) * span
        b = b_first.to(tl.int64) + row
        rows = min(span, B - b_first)
        mask = (row < rows) & (unit < H)
        first_row = b_first.to(tl.int64) * H
        own = b * H + unit
        own_saved = b * (SAVED * H) + unit
        plane = B.to(tl.int64) * H
        hidden_n = hidden + n * state_n
        memory_n = memory + n * state_n
        modulated_n = modulated + n * plane
        saved_n = saved + n * T * plane * SAVED
        x_n = projected + n * p_n + b * p_b + unit.to(tl.int64) * p_j

        w = load_weights(weight + n * w_n, H, w_row, k, unit, H, G)
        if BIAS:
            w_bias = tl.load(bias + n * H + unit, mask=unit < H, other=0.0)
        h = tl.load(hidden_n + own, mask=mask, other=0.0)
        c = tl.load(memory_n + own, mask=mask, other=0.0) if KIND == "lstm" else h
        t = tl.full((), 0, tl.int64)
        while t < T:
            before = t % 2 if ONLY_LAST else t
            after = (t + 1) % 2 if ONLY_LAST else t + 1
            hidden_t = hidden_n + before * plane + first_row
            # The read begins in the step that takes it, before its products, which hide the wait. If it began in the
            # step before, the compiler would make the products wait: it counts the read together with the first h.
            x = load_gates(x_n + t * p_t, H * p_j, mask, X)

            if KIND == "mgu":
                p = to_each(h, hidden_t, rows, H, H, row, w, 0, 1, ROWS, K, PARTS, AHEAD, ALONE)
                f = sigmoid(x[0] + p[0])
                fh = f * h
                if not ALONE:
                    tl.store(modulated_n + own, fh, mask=mask)
                    expected += SPLITS
                    meet(arrivals, expected, SPLITS)
                q = to_each(fh, modulated_n + first_row, rows, H, H, row, w, 1, 1, ROWS, K, PARTS, AHEAD, ALONE)
                candidate = tanh(x[1] + q[0])
                h = f * candidate + (1 - f) * h
                s = (f, candidate)
            else:
                p = to_each(h, hidden_t, rows, H, H, row, w, 0, G, ROWS, K, PARTS, AHEAD, ALONE)
                if KIND == "lstm":
                    h, c, s = lstm_forward(x, p, c)
                elif KIND == "gru":
                    if BIAS:
                        p = (p[0], p[1], p[2] + w_bias)
                    h, s = gru_forward(x, p, h)
                else:
                    h, s = brc_forward(x, p, h)

            if SAVE:
                store_saved(saved_n + t * plane * SAVED + own_saved, H, s, mask, SAVED)
            if not ONLY_LAST or not ALONE or t == T - 1:
                tl.store(hidden_n + after * plane + own, h, mask=mask)
                if KIND == "lstm":
                    tl.store(memory_n + after * plane + own, c, mask=mask)
            if not ALONE:
                expected += SPLITS
                meet(arrivals, expected, SPLITS)
            t += 1
        item += groups
