"""The time loop on the matrix units, in TF32 or forward in almost float32: 16 rows of states at a time.

Written in Gluon, Triton's language of explicit layouts. Triton itself would leave the weights in shared memory, from
where each step reads them anew, and would take every gate through shared memory on its way to and from memory;
``matrix_product.py`` says what is done instead.

A program has all inputs of ``J`` units, for each gate. Forward, states are the left operand: a program needs those of
all units, and the programs of a group send each other their states. Backward, the same weights are used the other way:
a program's own gradients are the left operand, products are contributions to the states of all units, and programs
send each other these.

The number of units is known to the compiler, so that all places of a tile are a step away from one or two addresses:
every address that a thread must keep takes the place of a weight.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from multistable.scan.kernels.equations import (
    brc_backward,
    brc_forward,
    gru_backward,
    gru_forward,
    lstm_backward,
    lstm_forward,
    mgu_backward_candidate,
    mgu_backward_gate,
    sigmoid,
    tanh,
)
from multistable.scan.kernels.forward import load_gates, store_saved
from multistable.scan.kernels.matrix_exchange import (
    after,
    receive_states,
    receive_sum,
    send,
    send_precisely,
    without_tag,
)
from multistable.scan.kernels.matrix_halves import (
    HALF_FACTOR,
    HALF_WEIGHTS,
    keep_halves,
    load_halves,
    multiply_halves,
)
from multistable.scan.kernels.matrix_product import (
    FACTOR,
    SUMS,
    WEIGHTS,
    as_states,
    keep_factor,
    length_of,
    load_weights,
    multiply,
    no_totals,
    own_places,
    pairs,
    parts_of,
    rooms,
    shared_tiles,
    tile_layout,
    to_tf32,
)


@gluon.jit
def pass_on(h, factor, place, turn, ALONE: gl.constexpr, HALVES: gl.constexpr):
    """Give states to the next product: a program that has all units keeps them, any other sends them."""
    if HALVES:
        if ALONE:
            keep_halves(factor, h)
        else:
            send_precisely(place, h, turn)
    elif ALONE:
        keep_factor(factor, to_tf32(h))
    else:
        send(place, to_tf32(h), turn)


@gluon.jit
def products(
    factor, w, sums, first: gl.constexpr, G: gl.constexpr, inbox, turn, ROWS: gl.constexpr, K: gl.constexpr,
    J: gl.constexpr, SPLITS: gl.constexpr, HALVES: gl.constexpr,
):  # fmt: skip
    """The states that were passed on times the weights of ``G`` gates from ``first``, a tile for each."""
    if HALVES:
        if SPLITS > 1:
            keep_halves(factor, without_tag(receive_states(inbox, turn, ROWS, K, SPLITS * J, True), 1))
        totals = multiply_halves(factor, w, first, G, ROWS, J)
    else:
        if SPLITS > 1:
            keep_factor(factor, receive_states(inbox, turn, ROWS, K, SPLITS * J))
        totals = multiply(factor, w, first, G, no_totals(G, ROWS, J), J)
    return as_states(totals, G, sums, J)


@gluon.jit
def plus(x, bias, mask, ADDED: gl.constexpr):
    """A gate of the projected input with its bias, read anew at each step: registers have no place for it."""
    if ADDED:
        x += gl.load(bias, mask=mask, other=0.0)
    return x


@gluon.jit
def room_for_factor(SHAPE: gl.constexpr, HALVES: gl.constexpr):
    """Shared memory for a left operand."""
    if HALVES:
        factor = rooms(2, SHAPE, HALF_FACTOR, gl.float16)
    else:
        factor = gl.allocate_shared_memory(gl.float32, SHAPE, FACTOR)
    return factor


@gluon.jit
def room_for_weights(n: gl.constexpr, SHAPE: gl.constexpr, HALVES: gl.constexpr):
    """Shared memory for ``n`` tiles of weights."""
    if HALVES:
        w_rooms = (rooms(n, SHAPE, HALF_WEIGHTS, gl.float16), rooms(n, SHAPE, HALF_WEIGHTS, gl.float16))
    else:
        w_rooms = rooms(n, SHAPE, WEIGHTS)
    return w_rooms


@gluon.jit(do_not_specialize=["T", "N", "B", "span"])
def advance(
    projected, of_input, weight, bias, hidden, memory, saved, inbox, T, N, B, span, p_t, p_n, p_b, p_j, w_n, w_row,
    state_n,
    H: gl.constexpr, KIND: gl.constexpr, G: gl.constexpr, X: gl.constexpr, SAVED: gl.constexpr,
    OF_INPUT: gl.constexpr, BIAS: gl.constexpr, ROWS: gl.constexpr, K: gl.constexpr, J: gl.constexpr,
    SPLITS: gl.constexpr, HELD: gl.constexpr, SAVE: gl.constexpr, ONLY_LAST: gl.constexpr, HALVES: gl.constexpr,
):  # fmt: skip
    """As ``forward.advance``; ``inbox``, ``(2, groups, ROWS, K)``, is zero.

    With ``OF_INPUT``, the bias ``of_input``, ``(N, X * H)``, is added to the projected input: here it costs no pass
    over memory. With ``HALVES``, products are almost float32, see ``matrix_halves.py``.
    """
    WARPS: gl.constexpr = gl.num_warps()
    ALONE: gl.constexpr = SPLITS == 1
    PARTS: gl.constexpr = parts_of(J, WARPS)
    split = gl.program_id(0) % SPLITS
    group = gl.program_id(0) // SPLITS
    groups = gl.num_programs(0) // SPLITS
    row, unit = own_places(split, ROWS, J)
    own = row * H + unit
    own_saved = row * (SAVED * H) + unit
    own_x = row.to(gl.int64) * p_b + unit.to(gl.int64) * p_j
    pair_row, pair = pairs(ROWS, J)
    inbox += group * (ROWS * K)
    own_pair = inbox + pair_row * K + split * J + pair
    other_place = groups * (ROWS * K)
    factor = room_for_factor([PARTS, ROWS, K // PARTS], HALVES)
    sums = rooms(G if PARTS > 1 else 0, [PARTS, ROWS, J], SUMS)
    w_rooms = room_for_weights(shared_tiles(G, K, J, WARPS, HELD), [PARTS, length_of(K, J, WARPS), J], HALVES)
    tiles = gl.cdiv(B, span)
    turn = 0
    item = group
    while item < N * tiles:
        n = (item // tiles).to(gl.int64)
        b_first = (item % tiles) * span
        first_row = b_first.to(gl.int64)
        mask = (row < min(span, B - b_first)) & (unit < H)
        plane = B.to(gl.int64) * H
        hidden_n = hidden + n * state_n + first_row * H
        memory_n = memory + n * state_n + first_row * H
        saved_n = saved + (n * T * plane + first_row * H) * SAVED
        x_n = projected + n * p_n + first_row * p_b

        if HALVES:
            w = load_halves(weight + n * w_n, w_row, split * J, H, w_rooms, G, K, J)
        else:
            w = load_weights(weight + n * w_n, 0, w_row, split * J, 1, H, w_rooms, G, K, J)
        if BIAS:
            w_bias = gl.load(bias + n * H + unit, mask=unit < H, other=0.0)
        x_bias = of_input + n * (X * H) + unit
        h = gl.load(hidden_n + own, mask=mask, other=0.0)
        c = gl.load(memory_n + own, mask=mask, other=0.0) if KIND == "lstm" else h
        pass_on(h, factor, own_pair + turn % 2 * other_place, turn, ALONE, HALVES)
        t = gl.to_tensor(0)
        while t < T:
            # Before the wait for the others' states and the products, which hide this one; see ``forward.advance``.
            x = load_gates(x_n + t.to(gl.int64) * p_t + own_x, H * p_j, mask, X)
            if KIND == "mgu":
                p = products(factor, w, sums, 0, 1, inbox + turn % 2 * other_place, turn, ROWS, K, J, SPLITS, HALVES)
                turn = after(turn)
                f = sigmoid(plus(x[0], x_bias, unit < H, OF_INPUT) + p[0])
                pass_on(f * h, factor, own_pair + turn % 2 * other_place, turn, ALONE, HALVES)
                q = products(factor, w, sums, 1, 1, inbox + turn % 2 * other_place, turn, ROWS, K, J, SPLITS, HALVES)
                candidate = tanh(plus(x[1], x_bias + H, unit < H, OF_INPUT) + q[0])
                h = f * candidate + (1 - f) * h
                s = (f, candidate)
            else:
                p = products(factor, w, sums, 0, G, inbox + turn % 2 * other_place, turn, ROWS, K, J, SPLITS, HALVES)
                x_and_bias = ()
                for g in gl.static_range(X):
                    x_and_bias = x_and_bias + (plus(x[g], x_bias + g * H, unit < H, OF_INPUT),)
                x = x_and_bias
                if KIND == "lstm":
                    h, c, s = lstm_forward(x, p, c)
                elif KIND == "gru":
                    if BIAS:
                        p = (p[0], p[1], p[2] + w_bias)
                    h, s = gru_forward(x, p, h)
                else:
                    h, s = brc_forward(x, p, h)

            # Before all other stores, since the other programs wait for it. The last states are not sent, since nobody
            # would receive them.
            turn = after(turn)
            if t + 1 < T:
                pass_on(h, factor, own_pair + turn % 2 * other_place, turn, ALONE, HALVES)
            if SAVE:
                store_saved(saved_n + t * plane * SAVED + own_saved, H, s, mask, SAVED)
            if not ONLY_LAST or t == T - 1:
                place = (t + 1) % 2 if ONLY_LAST else t + 1
                gl.store(hidden_n + place * plane + own, h, mask=mask)
                if KIND == "lstm":
                    gl.store(memory_n + place * plane + own, c, mask=mask)
            t += 1
        item += groups


@gluon.jit
def contribute(
    d, factors, w, first: gl.constexpr, place, turn, K: gl.constexpr, SPLITS: gl.constexpr,
):  # fmt: skip
    """Send gradients of own units times the weights of their gates, summed over gates, to programs that need them."""
    for g in gl.static_range(len(d)):
        keep_factor(factors[g], to_tf32(d[g]))
    totals = no_totals(1, d[0].shape[0], K)
    for g in gl.static_range(len(d)):
        totals = multiply(factors[g], w, first + g, 1, totals, K)
    p = as_states(totals, 1, (), K)[0]
    if SPLITS > 1:
        send(place, p, turn)
    return p


@gluon.jit
def load_step(saved, up, hidden, memory, up_c, mask, H: gl.constexpr, KIND: gl.constexpr, SAVED: gl.constexpr):
    """What a step of the backward pass reads: the saved blocks, the gradients of its state, the h or c before it."""
    dh = gl.load(up, mask=mask, other=0.0)
    s = load_gates(saved, H, mask, SAVED)
    before = gl.load(memory if KIND == "lstm" else hidden, mask=mask, other=0.0)
    dc = gl.load(up_c, mask=mask, other=0.0) if KIND == "lstm" else dh
    if parts_of(mask.shape[1], gl.num_warps()) * 8 > mask.shape[0]:
        # Several warps have the same elements: none may write over what another has yet to read.
        gl.thread_barrier()
    return s, dh, before, dc


@gluon.jit(do_not_specialize=["start", "stop", "T", "N", "B", "span"])
def retreat(
    grad_hidden, grad_memory, weight, hidden, memory, saved, grad_h, grad_c, inbox,
    start, stop, T, N, B, span, w_n, w_row, gh_t, gh_n, gh_b, gh_j, gc_t, gc_n, gc_b, gc_j,
    H: gl.constexpr, KIND: gl.constexpr, G: gl.constexpr, SAVED: gl.constexpr, ROWS: gl.constexpr, K: gl.constexpr,
    J: gl.constexpr, SPLITS: gl.constexpr, HELD: gl.constexpr,
):  # fmt: skip
    """As ``backward.retreat``, with the weights as they are; ``inbox``, ``(2, groups, K / J, ROWS, K)``, is zero."""
    WARPS: gl.constexpr = gl.num_warps()
    gl.static_assert(parts_of(K, WARPS) == 1)
    if KIND != "mgu":
        start = 0
        stop = T
    split = gl.program_id(0) % SPLITS
    group = gl.program_id(0) // SPLITS
    groups = gl.num_programs(0) // SPLITS
    row, unit = own_places(split, ROWS, J)
    own = row * H + unit
    own_saved = row * (SAVED * H) + unit
    own_gh = row.to(gl.int64) * gh_b + unit.to(gl.int64) * gh_j
    own_gc = row.to(gl.int64) * gc_b + unit.to(gl.int64) * gc_j
    # To the program that has the unit, from this one.
    pair_row, pair = pairs(ROWS, K)
    inbox += group * (K // J * ROWS * K)
    to_pair = inbox + (pair // J * (K // J) + split) * (ROWS * J) + pair_row * J + pair % J
    other_place = groups * (K // J * ROWS * K)
    mine = inbox + split * (ROWS * K)
    factors = rooms(G, [1, ROWS, J], FACTOR)
    w_rooms = rooms(shared_tiles(G, J, K, WARPS, HELD), [1, length_of(J, K, WARPS), K], WEIGHTS)
    tiles = gl.cdiv(B, span)
    turn = 0
    item = group
    while item < N * tiles:
        n = (item // tiles).to(gl.int64)
        b_first = (item % tiles) * span
        first_row = b_first.to(gl.int64)
        mask = (row < min(span, B - b_first)) & (unit < H)
        plane = B.to(gl.int64) * H
        hidden_n = hidden + n * (T + 1) * plane + first_row * H
        memory_n = memory + n * (T + 1) * plane + first_row * H
        saved_n = saved + (n * T * plane + first_row * H) * SAVED
        gh_first = grad_hidden + n * gh_n + first_row * gh_b
        gc_first = grad_memory + n * gc_n + first_row * gc_b
        end = n * plane + first_row * H

        w = load_weights(weight + n * w_n, split * J, 1, 0, w_row, H, w_rooms, G, J, K)
        t = stop.to(gl.int64)
        zero = gl.full([ROWS, J], 0.0, gl.float32, tile_layout(J, WARPS))
        dh = gl.load(grad_h + end + own, mask=mask, other=0.0) if KIND == "mgu" else zero
        dc = zero
        c = gl.load(memory_n + t * plane + own, mask=mask, other=0.0) if KIND == "lstm" else zero
        t -= 1
        s, up, before, up_c = load_step(
            saved_n + t * plane * SAVED + own_saved, gh_first + t * gh_t + own_gh, hidden_n + t * plane + own,
            memory_n + t * plane + own, gc_first + t * gc_t + own_gc, mask, H, KIND, SAVED,
        )  # fmt: skip
        while t >= start:
            dh += up
            saved_t = saved_n + t * plane * SAVED + own_saved
            if KIND == "mgu":
                dn = mgu_backward_candidate(s, dh)
                gl.store(saved_t + H, dn, mask=mask)
                dfh = contribute((dn,), factors, w, 1, to_pair + turn % 2 * other_place, turn, K, SPLITS)
                if SPLITS > 1:
                    dfh = receive_sum(mine + turn % 2 * other_place, turn, ROWS, K, J, SPLITS)
                    turn = after(turn)
                df, direct = mgu_backward_gate(s, before, dh, dfh)
                gl.store(saved_t, df, mask=mask)
                v = (df,)
            else:
                if KIND == "lstm":
                    d, dc = lstm_backward(s, c, before, dh, dc + up_c)
                    c = before
                    direct = zero
                    v = d
                elif KIND == "gru":
                    d, direct = gru_backward(s, before, dh)
                    v = (d[0], d[1], d[3])
                else:
                    d, direct = brc_backward(s, before, dh)
                    v = (d[0], d[1])
                store_saved(saved_t, H, d, mask, SAVED)

            # What the step before needs is asked for before the longest wait: of a program alone that for products.
            if SPLITS > 1:
                p = contribute(v, factors, w, 0, to_pair + turn % 2 * other_place, turn, K, SPLITS)
            more = mask & (t > start)
            s, up, before, up_c = load_step(
                saved_t - plane * SAVED, gh_first + (t - 1) * gh_t + own_gh, hidden_n + (t - 1) * plane + own,
                memory_n + (t - 1) * plane + own, gc_first + (t - 1) * gc_t + own_gc, more, H, KIND, SAVED,
            )  # fmt: skip
            if SPLITS > 1:
                p = receive_sum(mine + turn % 2 * other_place, turn, ROWS, K, J, SPLITS)
                turn = after(turn)
            else:
                p = contribute(v, factors, w, 0, to_pair, turn, K, SPLITS)
            dh = direct + p
            t -= 1
        gl.store(grad_h + end + own, dh, mask=mask)
        if KIND == "lstm":
            gl.store(grad_c + end + own, dc, mask=mask)
        item += groups
