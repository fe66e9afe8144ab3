"""The backward kernel: the sequential part of the gradient alone, in one launch."""

import triton
import triton.language as tl

from multistable.scan.kernels.equations import (
    brc_backward,
    gru_backward,
    lstm_backward,
    mgu_backward_candidate,
    mgu_backward_gate,
)
from multistable.scan.kernels.forward import load_gates, store_saved
from multistable.scan.kernels.product import from_all, indices, load_weights, meet


@triton.jit(do_not_specialize=["start", "stop", "T", "N", "B", "span", "one"])
def retreat(
    grad_hidden, grad_memory, weight, hidden, memory, saved, grad_h, grad_c, arrivals,
    one, start, stop, T, N, B, span, H, gh_t, gh_n, gh_b, gh_j, gc_t, gc_n, gc_b, gc_j,
    KIND: tl.constexpr, G: tl.constexpr, SAVED: tl.constexpr,
    ROWS: tl.constexpr, K: tl.constexpr, J: tl.constexpr, PARTS: tl.constexpr, AHEAD: tl.constexpr,
    SPLITS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of the pre-activations of steps ``start`` to ``stop`` from those of the states.

    They are written over ``saved``. ``grad_hidden`` and ``grad_memory`` are ``(T, N, B, H)``, any strides; ``weight``
    is ``(N, G, H, H)``, each gate's matrix transposed. ``grad_h`` and ``grad_c``, ``(N, B, H)``, get the gradient of
    the state before ``start``; for an MGU, ``grad_h`` begins with what the steps from ``stop`` on left there. Other
    cells take all steps. The other arguments, and the division of the work, are as in ``advance``.
    """
    ALONE: tl.constexpr = SPLITS == 1
    # The gates whose product ends the step (of an MGU, f alone), and the place of the last among the saved blocks.
    LATE: tl.constexpr = 1 if KIND == "mgu" else G
    LAST: tl.constexpr = 3 if KIND == "gru" else LATE - 1
    if KIND != "mgu":
        # Always all steps: bounds that the compiler knows take no registers from the weights.
        start = 0
        stop = T
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
        first_row = b_first.to(tl.int64) * (SAVED * H)
        own = b * H + unit
        own_saved = b * (SAVED * H) + unit
        plane = B.to(tl.int64) * H
        hidden_n = hidden + n * (T + 1) * plane + own
        memory_n = memory + n * (T + 1) * plane + own
        saved_n = saved + n * T * plane * SAVED
        gh_n_own = grad_hidden + n * gh_n + b * gh_b + unit.to(tl.int64) * gh_j
        gc_n_own = grad_memory + n * gc_n + b * gc_b + unit.to(tl.int64) * gc_j

        w = load_weights(weight + n * G * H * H, H * H, H, k, unit, H, G)
        t = stop.to(tl.int64) - 1
        s = load_gates(saved_n + t * plane * SAVED + own_saved, H, mask, SAVED)
        up = tl.load(gh_n_own + t * gh_t, mask=mask, other=0.0)
        zero = tl.zeros_like(up)
        dh = tl.load(grad_h + n * plane + own, mask=mask, other=0.0) if KIND == "mgu" else zero
        dc = zero
        if KIND == "lstm":
            h = zero
            c = tl.load(memory_n + stop * plane, mask=mask, other=0.0)
            c_before = tl.load(memory_n + t * plane, mask=mask, other=0.0)
            up_c = tl.load(gc_n_own + t * gc_t, mask=mask, other=0.0)
        else:
            h = tl.load(hidden_n + t * plane, mask=mask, other=0.0)
            c = zero
            c_before = zero
            up_c = zero
        # Several warps may have the same elements: none may write over what another has yet to read. From the
        # second step on, the products lie between.
        tl.debug_barrier()
        while t >= start:
            dh += up
            saved_t = saved_n + t * plane * SAVED
            rows_t = saved_t + first_row
            if KIND == "mgu":
                dn = mgu_backward_candidate(s, dh)
                tl.store(saved_t + H + own_saved, dn, mask=mask)
                if not ALONE:
                    expected += SPLITS
                    meet(arrivals, expected, SPLITS)
                dfh = from_all((dn,), rows_t, rows, SAVED * H, H, row, w, 1, 1, 1, K, PARTS, AHEAD, ALONE)
                df, direct = mgu_backward_gate(s, h, dh, dfh)
                tl.store(saved_t + own_saved, df, mask=mask)
                v = (df,)
            else:
                if KIND == "lstm":
                    d, dc = lstm_backward(s, c, c_before, dh, dc + up_c)
                    direct = zero
                    v = d
                elif KIND == "gru":
                    d, direct = gru_backward(s, h, dh)
                    v = (d[0], d[1], d[3])
                else:
                    d, direct = brc_backward(s, h, dh)
                    v = (d[0], d[1])
                store_saved(saved_t + own_saved, H, d, mask, SAVED)

            # Reads for the step before begin now, so that this step's products hide the wait.
            more = mask & (t > start)
            s = load_gates(saved_t - plane * SAVED + own_saved, H, more, SAVED)
            up = tl.load(gh_n_own + (t - 1) * gh_t, mask=more, other=0.0)
            if KIND == "lstm":
                c = c_before
                c_before = tl.load(memory_n + (t - 1) * plane, mask=more, other=0.0)
                up_c = tl.load(gc_n_own + (t - 1) * gc_t, mask=more, other=0.0)
            else:
                h = tl.load(hidden_n + (t - 1) * plane, mask=more, other=0.0)

            if not ALONE:
                expected += SPLITS
                meet(arrivals, expected, SPLITS)
            dh = direct + from_all(v, rows_t, rows, SAVED * H, H, row, w, 0, LATE, LAST, K, PARTS, AHEAD, ALONE)
            t -= 1
        tl.store(grad_h + n * plane + own, dh, mask=mask)
        if KIND == "lstm":
            tl.store(grad_c + n * plane + own, dc, mask=mask)
        item += groups
