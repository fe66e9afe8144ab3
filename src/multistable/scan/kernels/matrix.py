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

from multistable.scan.kernels.backward import (
    chosen,
    load_at,
    load_fields,
    places,
    plus,
    store_chosen,
    with_sum,
    zeros,
)
from multistable.scan.kernels.forward import entry, length, load_lanes, store_lanes, without_padding
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

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # until Triton 3.6


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
def with_bias(x, bias, H: gl.constexpr, mask, ADDED: gl.constexpr):
    """The projected input with its bias, read anew at each step: registers have no place for it."""
    if ADDED:
        x = plus(x, load_lanes(bias, H, mask, len(x)))
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
    projected, of_input, weight, units, states, saved, inbox, T, N, B, span, p_t, p_n, p_b, p_j, w_n, w_row, state_f,
    state_n,
    H: gl.constexpr, OPERANDS: gl.constexpr, FINISH: gl.constexpr, STAGES: gl.constexpr, X: gl.constexpr,
    FIELDS: gl.constexpr, UNITS: gl.constexpr, BLOCKS: gl.constexpr, WIDTH: gl.constexpr, OF_INPUT: gl.constexpr,
    ROWS: gl.constexpr, K: gl.constexpr, J: gl.constexpr, SPLITS: gl.constexpr, HELD: gl.constexpr,
    SAVE: gl.constexpr, ONLY_LAST: gl.constexpr, HALVES: gl.constexpr, PADDED: gl.constexpr,
):  # fmt: skip
    """As ``forward.advance``; ``inbox``, ``(2, groups, ROWS, K)``, is zero.

    With ``OF_INPUT``, the bias ``of_input``, ``(N, X * H)``, is added to the projected input: here it costs no pass
    over memory. With ``HALVES``, products are almost float32, see ``matrix_halves.py``.
    """
    WARPS: gl.constexpr = gl.num_warps()
    ALONE: gl.constexpr = SPLITS == 1
    PARTS: gl.constexpr = parts_of(J, WARPS)
    # The operand of the first product, if it is a field of the state, is passed on as soon as it is there.
    FIRST: gl.constexpr = entry(STAGES, 0, 1, 0, 0)
    split = gl.program_id(0) % SPLITS
    group = gl.program_id(0) // SPLITS
    groups = gl.num_programs(0) // SPLITS
    row, unit = own_places(split, ROWS, J)
    own = row * H + unit
    own_saved = row * (WIDTH * H) + unit
    own_x = row.to(gl.int64) * p_b + unit.to(gl.int64) * p_j
    pair_row, pair = pairs(ROWS, J)
    inbox += group * (ROWS * K)
    own_pair = inbox + pair_row * K + split * J + pair
    other_place = groups * (ROWS * K)
    factor = room_for_factor([PARTS, ROWS, K // PARTS], HALVES)
    sums = rooms(BLOCKS if PARTS > 1 else 0, [PARTS, ROWS, J], SUMS)
    w_rooms = room_for_weights(shared_tiles(BLOCKS, K, J, WARPS, HELD), [PARTS, length_of(K, J, WARPS), J], HALVES)
    tiles = gl.cdiv(B, span)
    turn = 0
    item = group
    while item < N * tiles:
        n = (item // tiles).to(gl.int64)
        b_first = (item % tiles) * span
        first_row = b_first.to(gl.int64)
        mask = (row < min(span, B - b_first)) & (unit < H)
        plane = B.to(gl.int64) * H
        states_n = states + n * state_n + first_row * H
        saved_n = saved + (n * T * plane + first_row * H) * WIDTH
        x_n = projected + n * p_n + first_row * p_b

        if HALVES:
            w = load_halves(weight + n * w_n, w_row, split * J, H, w_rooms, BLOCKS, K, J)
        else:
            w = load_weights(weight + n * w_n, 0, w_row, split * J, 1, H, w_rooms, BLOCKS, K, J)
        u = load_lanes(units + n * (UNITS * H) + unit, H, unit < H, UNITS)
        x_bias = of_input + n * (X * H) + unit
        s = load_lanes(states_n + own, state_f, mask, FIELDS)
        if FIRST >= 0:
            pass_on(s[FIRST], factor, own_pair + turn % 2 * other_place, turn, ALONE, HALVES)
        t = gl.to_tensor(0)
        while t < T:
            # Before the wait for the others' states and the products, which hide this one; see ``forward.advance``.
            x = load_lanes(x_n + t.to(gl.int64) * p_t + own_x, H * p_j, mask, X)
            p = ()
            kept = ()
            for stage in gl.static_range(len(STAGES)):
                computed = ()
                if entry(STAGES, stage, 0) > 0:
                    if stage == 0:
                        x = with_bias(x, x_bias, H, unit < H, OF_INPUT)
                    computed, kept = OPERANDS(x, s, u, p, kept, stage)
                    computed = without_padding(computed, unit < H, PADDED)
                for slot in gl.static_range(length(STAGES, stage, 1)):
                    if entry(STAGES, stage, 1, slot, 0) < 0:
                        operand = computed[-1 - entry(STAGES, stage, 1, slot, 0)]
                    else:
                        operand = s[entry(STAGES, stage, 1, slot, 0)]
                    if stage + slot > 0 or FIRST < 0:
                        pass_on(operand, factor, own_pair + turn % 2 * other_place, turn, ALONE, HALVES)
                    p = p + products(
                        factor, w, sums, entry(STAGES, stage, 1, slot, 1), entry(STAGES, stage, 1, slot, 2),
                        inbox + turn % 2 * other_place, turn, ROWS, K, J, SPLITS, HALVES,
                    )  # fmt: skip
                    turn = after(turn)
                if stage == 0 and entry(STAGES, 0, 0) == 0:
                    x = with_bias(x, x_bias, H, unit < H, OF_INPUT)
            s, v = FINISH(x, s, u, p, kept)
            s = without_padding(s, unit < H, PADDED)

            # Before all other stores, since the other programs wait for it. The last states are not sent, since nobody
            # would receive them.
            if FIRST >= 0:
                if t + 1 < T:
                    pass_on(s[FIRST], factor, own_pair + turn % 2 * other_place, turn, ALONE, HALVES)
            if SAVE:
                store_lanes(saved_n + t * plane * WIDTH + own_saved, H, v, mask)
            if not ONLY_LAST or t == T - 1:
                place = (t + 1) % 2 if ONLY_LAST else t + 1
                store_lanes(states_n + place * plane + own, state_f, s, mask)
            t += 1
        item += groups


@gluon.jit
def contribute(
    d, factors, w, ORDER: gl.constexpr, first: gl.constexpr, place, turn, K: gl.constexpr, SPLITS: gl.constexpr,
):  # fmt: skip
    """Send gradients of own units times the weights of their gates, summed over gates, to programs that need them."""
    for g in gl.static_range(len(d)):
        keep_factor(factors[g], to_tf32(d[g]))
    totals = no_totals(1, d[0].shape[0], K)
    for g in gl.static_range(len(d)):
        totals = multiply(factors[g], w, ORDER[first + g], 1, totals, K)
    p = as_states(totals, 1, (), K)[0]
    if SPLITS > 1:
        send(place, p, turn)
    return p


@gluon.jit
def load_step(
    saved, upstream, up_strides, t, states, apart, mask, zero, H: gl.constexpr, NEEDED: gl.constexpr,
    FIELDS: gl.constexpr, SAVED: gl.constexpr,
):  # fmt: skip
    """What a step of the backward pass reads: what was saved, the gradients of its state, the state before it."""
    up = load_at(upstream, up_strides, t, mask)
    v = load_lanes(saved, H, mask, SAVED)
    before = load_fields(states, apart, mask, zero, NEEDED, FIELDS)
    if parts_of(mask.shape[1], gl.num_warps()) * 8 > mask.shape[0]:
        # Several warps have the same elements: none may write over what another has yet to read.
        barrier()
    return v, up, before


@gluon.constexpr_function
def most_blocks(RETREATS):
    """The most gates whose gradients are multiplied at once."""
    return max(len(slot[0]) for stage in RETREATS for slot in stage[1])


@gluon.jit(do_not_specialize=["start", "stop", "T", "N", "B", "span"])
def retreat(
    upstream, weight, units, states, saved, carried, inbox, start, stop, T, N, B, span, w_n, w_row, up_strides,
    H: gl.constexpr, RETREAT: gl.constexpr, FINISH: gl.constexpr, RETREATS: gl.constexpr, INTO: gl.constexpr,
    ORDER: gl.constexpr, BEFORE: gl.constexpr, AFTER: gl.constexpr, FIELDS: gl.constexpr, UNITS: gl.constexpr,
    SAVED: gl.constexpr, WIDTH: gl.constexpr, IN_PARTS: gl.constexpr, PADDED: gl.constexpr,
    ROWS: gl.constexpr, K: gl.constexpr, J: gl.constexpr, SPLITS: gl.constexpr, HELD: gl.constexpr,
):  # fmt: skip
    """As ``backward.retreat``, with the weights as they are; ``inbox``, ``(2, groups, K / J, ROWS, K)``, is zero."""
    WARPS: gl.constexpr = gl.num_warps()
    LAST: gl.constexpr = length(RETREATS) - 1
    gl.static_assert(parts_of(K, WARPS) == 1)
    if not IN_PARTS:
        start = 0
        stop = T
    split = gl.program_id(0) % SPLITS
    group = gl.program_id(0) // SPLITS
    groups = gl.num_programs(0) // SPLITS
    row, unit = own_places(split, ROWS, J)
    own = row * H + unit
    own_saved = row * (WIDTH * H) + unit
    # To the program that has the unit, from this one.
    pair_row, pair = pairs(ROWS, K)
    inbox += group * (K // J * ROWS * K)
    to_pair = inbox + (pair // J * (K // J) + split) * (ROWS * J) + pair_row * J + pair % J
    other_place = groups * (K // J * ROWS * K)
    mine = inbox + split * (ROWS * K)
    factors = rooms(most_blocks(RETREATS), [1, ROWS, J], FACTOR)
    w_rooms = rooms(shared_tiles(len(ORDER), J, K, WARPS, HELD), [1, length_of(J, K, WARPS), K], WEIGHTS)
    tiles = gl.cdiv(B, span)
    turn = 0
    item = group
    while item < N * tiles:
        n = (item // tiles).to(gl.int64)
        b_first = (item % tiles) * span
        first_row = b_first.to(gl.int64)
        mask = (row < min(span, B - b_first)) & (unit < H)
        plane = B.to(gl.int64) * H
        apart = N * (T + 1) * plane
        states_n = states + n * (T + 1) * plane + first_row * H + own
        saved_n = saved + (n * T * plane + first_row * H) * WIDTH
        carried_n = carried + n * plane + first_row * H + own
        upstream_n = places(upstream, up_strides, n, first_row + row, unit)

        w = load_weights(weight + n * w_n, split * J, 1, 0, w_row, H, w_rooms, len(ORDER), J, K)
        u = load_lanes(units + n * (UNITS * H) + unit, H, unit < H, UNITS)
        t = stop.to(gl.int64)
        zero = gl.full([ROWS, J], 0.0, gl.float32, tile_layout(J, WARPS))
        if IN_PARTS:
            g = load_lanes(carried_n, N * plane, mask, FIELDS)
        else:
            g = zeros(zero, FIELDS)
        after_fields = load_fields(states_n + t * plane, apart, mask, zero, AFTER, FIELDS)
        t -= 1
        v, up, before = load_step(
            saved_n + t * plane * WIDTH + own_saved, upstream_n, up_strides, t, states_n + t * plane, apart, mask, zero,
            H, BEFORE + AFTER, FIELDS, SAVED,
        )  # fmt: skip
        while t >= start:
            saved_t = saved_n + t * plane * WIDTH + own_saved
            d = ()
            o = ()
            kept = ()
            for i in gl.static_range(LAST):
                found, kept = RETREAT(v, before, after_fields, u, g, up, o, kept, i)
                found = without_padding(found, unit < H, PADDED)
                store_chosen(saved_t, H, found, mask, entry(RETREATS, i, 0))
                d = d + found
                for j in gl.static_range(length(RETREATS, i, 1)):
                    p = contribute(
                        chosen(d, entry(RETREATS, i, 1, j, 0)), factors, w, ORDER, entry(RETREATS, i, 1, j, 2),
                        to_pair + turn % 2 * other_place, turn, K, SPLITS,
                    )  # fmt: skip
                    if SPLITS > 1:
                        p = receive_sum(mine + turn % 2 * other_place, turn, ROWS, K, J, SPLITS)
                        turn = after(turn)
                    o = o + (p,)
            found, direct, _ = FINISH(v, before, after_fields, u, g, up, o, kept)
            found = without_padding(found, unit < H, PADDED)
            direct = without_padding(direct, unit < H, PADDED)
            store_chosen(saved_t, H, found, mask, entry(RETREATS, LAST, 0))
            d = d + found

            g = direct
            after_fields = before
            more = mask & (t > start)
            for j in gl.static_range(len(INTO)):
                # What the step before needs is asked for before the longest wait: of a program alone that for products.
                if SPLITS > 1:
                    p = contribute(
                        chosen(d, entry(RETREATS, LAST, 1, j, 0)), factors, w, ORDER, entry(RETREATS, LAST, 1, j, 2),
                        to_pair + turn % 2 * other_place, turn, K, SPLITS,
                    )  # fmt: skip
                if j == 0:
                    v, up, before = load_step(
                        saved_t - plane * WIDTH, upstream_n, up_strides, t - 1, states_n + (t - 1) * plane, apart, more,
                        zero, H, BEFORE + AFTER, FIELDS, SAVED,
                    )  # fmt: skip
                if SPLITS > 1:
                    p = receive_sum(mine + turn % 2 * other_place, turn, ROWS, K, J, SPLITS)
                    turn = after(turn)
                else:
                    p = contribute(
                        chosen(d, entry(RETREATS, LAST, 1, j, 0)), factors, w, ORDER, entry(RETREATS, LAST, 1, j, 2),
                        to_pair, turn, K, SPLITS,
                    )  # fmt: skip
                g = with_sum(g, INTO[j], p)
            t -= 1
        store_lanes(carried_n, N * plane, g, mask)
        item += groups
