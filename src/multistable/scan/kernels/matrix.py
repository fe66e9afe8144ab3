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


@gluon.jit
def multiply_stage(
    stage: gl.constexpr, x, s, u, p, kept, factor, w, sums, inbox, to_own, other_place, turn, unit,
    H: gl.constexpr, OPERANDS: gl.constexpr, STAGES: gl.constexpr, ROWS: gl.constexpr, K: gl.constexpr,
    J: gl.constexpr, SPLITS: gl.constexpr, HALVES: gl.constexpr, PADDED: gl.constexpr,
):  # fmt: skip
    """The products of a tile after a stage, what is kept for later stages, and the next turn."""
    computed = ()
    if entry(STAGES, stage, 0) > 0:
        computed, kept = OPERANDS(x, s, u, p, kept, stage)
        computed = without_padding(computed, unit < H, PADDED)
    for slot in gl.static_range(length(STAGES, stage, 1)):
        if entry(STAGES, stage, 1, slot, 0) < 0:
            operand = computed[-1 - entry(STAGES, stage, 1, slot, 0)]
        else:
            operand = s[entry(STAGES, stage, 1, slot, 0)]
        # The first operand of a step, if it is a field of the state, was passed on as soon as it was there.
        if stage + slot > 0 or entry(STAGES, 0, 1, 0, 0) < 0:
            pass_on(operand, factor, to_own + turn % 2 * other_place, turn, SPLITS == 1, HALVES)
        p = p + products(
            factor, w, sums, entry(STAGES, stage, 1, slot, 1), entry(STAGES, stage, 1, slot, 2),
            inbox + turn % 2 * other_place, turn, ROWS, K, J, SPLITS, HALVES,
        )  # fmt: skip
        turn = after(turn)
    return p, kept, turn


@gluon.jit(do_not_specialize=["T", "N", "B", "span"])
def advance(
    projected, of_input, weight, units, states, saved, inbox, T, N, B, span, p_t, p_n, p_b, p_j, w_n, w_row, state_f,
    state_n,
    H: gl.constexpr, OPERANDS: gl.constexpr, FINISH: gl.constexpr, STAGES: gl.constexpr, X: gl.constexpr,
    FIELDS: gl.constexpr, UNITS: gl.constexpr, BLOCKS: gl.constexpr, WIDTH: gl.constexpr, OF_INPUT: gl.constexpr,
    ROWS: gl.constexpr, TILES: gl.constexpr, K: gl.constexpr, J: gl.constexpr, SPLITS: gl.constexpr,
    HELD: gl.constexpr, SAVE: gl.constexpr, ONLY_LAST: gl.constexpr, HALVES: gl.constexpr, PADDED: gl.constexpr,
):  # fmt: skip
    """As ``forward.advance``; ``inbox``, ``(2, groups, TILES, ROWS, K)``, is zero.

    With ``OF_INPUT``, the bias ``of_input``, ``(N, X * H)``, is added to the projected input: here it costs no pass
    over memory. With ``HALVES``, products are almost float32, see ``matrix_halves.py``. A group has ``TILES`` tiles of
    a recurrence at a time, and takes each stage for one after the other: the states of one are on their way to the
    other programs while another is multiplied.
    """
    WARPS: gl.constexpr = gl.num_warps()
    ALONE: gl.constexpr = SPLITS == 1
    PARTS: gl.constexpr = parts_of(J, WARPS)
    LAST: gl.constexpr = len(STAGES) - 1
    FIRST: gl.constexpr = entry(STAGES, 0, 1, 0, 0)
    gl.static_assert(TILES == 1 or not ALONE)
    split = gl.program_id(0) % SPLITS
    group = gl.program_id(0) // SPLITS
    groups = gl.num_programs(0) // SPLITS
    row, unit = own_places(split, ROWS, J)
    own = row * H + unit
    own_saved = row * (WIDTH * H) + unit
    own_x = row.to(gl.int64) * p_b + unit.to(gl.int64) * p_j
    pair_row, pair = pairs(ROWS, J)
    inbox += group * (TILES * ROWS * K)
    own_pair = inbox + pair_row * K + split * J + pair
    other_place = groups * (TILES * ROWS * K)
    factor = room_for_factor([PARTS, ROWS, K // PARTS], HALVES)
    sums = rooms(BLOCKS if PARTS > 1 else 0, [PARTS, ROWS, J], SUMS)
    w_rooms = room_for_weights(shared_tiles(BLOCKS, K, J, WARPS, HELD), [PARTS, length_of(K, J, WARPS), J], HALVES)
    items = gl.cdiv(B, span * TILES)
    turn = 0
    item = group
    while item < N * items:
        n = (item // items).to(gl.int64)
        b_first = (item % items) * (span * TILES)
        first_row = b_first.to(gl.int64)
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
        s = ()
        for i in gl.static_range(TILES):
            mask = (row < min(span, B - b_first - i * span)) & (unit < H)
            s = s + (load_lanes(states_n + i * span * H + own, state_f, mask, FIELDS),)
            if FIRST >= 0:
                pass_on(s[i][FIRST], factor, own_pair + i * ROWS * K + turn % 2 * other_place, turn, ALONE, HALVES)
        t = gl.to_tensor(0)
        while t < T:
            x_of = ()
            p_of = ()
            kept_of = ()
            s_of = ()
            for stage in gl.static_range(LAST + 1):
                begin = turn
                x_now = ()
                p_now = ()
                kept_now = ()
                for i in gl.static_range(TILES):
                    mask = (row < min(span, B - b_first - i * span)) & (unit < H)
                    to_own = own_pair + i * ROWS * K
                    if stage == 0:
                        # Before the wait for the others' states and the products, which hide this one; see
                        # ``forward.advance``.
                        x = load_lanes(x_n + t.to(gl.int64) * p_t + i * span * p_b + own_x, H * p_j, mask, X)
                        if entry(STAGES, 0, 0) > 0:
                            x = with_bias(x, x_bias, H, unit < H, OF_INPUT)
                        p = ()
                        kept = ()
                    else:
                        x = x_of[i]
                        p = p_of[i]
                        kept = kept_of[i]
                    p, kept, turn = multiply_stage(
                        stage, x, s[i], u, p, kept, factor, w, sums, inbox + i * ROWS * K, to_own, other_place, begin,
                        unit, H, OPERANDS, STAGES, ROWS, K, J, SPLITS, HALVES, PADDED,
                    )  # fmt: skip
                    if stage == 0 and entry(STAGES, 0, 0) == 0:
                        x = with_bias(x, x_bias, H, unit < H, OF_INPUT)
                    if stage < LAST:
                        x_now = x_now + (x,)
                        p_now = p_now + (p,)
                        kept_now = kept_now + (kept,)
                    else:
                        s_i, v = FINISH(x, s[i], u, p, kept)
                        s_i = without_padding(s_i, unit < H, PADDED)
                        s_of = s_of + (s_i,)

                        # Before all other stores, since the other programs wait for it. The last states are not sent,
                        # since nobody would receive them.
                        if FIRST >= 0:
                            if t + 1 < T:
                                pass_on(s_i[FIRST], factor, to_own + turn % 2 * other_place, turn, ALONE, HALVES)
                        if SAVE:
                            place = (t * plane + i * span * H) * WIDTH
                            store_lanes(saved_n + place + own_saved, H, v, mask)
                        if not ONLY_LAST or t == T - 1:
                            place = (t + 1) % 2 if ONLY_LAST else t + 1
                            store_lanes(states_n + place * plane + i * span * H + own, state_f, s_i, mask)
                x_of = x_now
                p_of = p_now
                kept_of = kept_now
            s = s_of
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
def contribute_each(
    d, factors, w, ORDER: gl.constexpr, SLOTS: gl.constexpr, to_pair, mine, other_place, turn, ROWS: gl.constexpr,
    K: gl.constexpr, J: gl.constexpr, SPLITS: gl.constexpr,
):  # fmt: skip
    """The products of a stage and the turn of the last one, which a program that is not alone has yet to receive."""
    p = ()
    for j in gl.static_range(len(SLOTS)):
        if SPLITS > 1 and j > 0:
            p = p + (receive_sum(mine + turn % 2 * other_place, turn, ROWS, K, J, SPLITS),)
            turn = after(turn)
        product = contribute(
            chosen(d, entry(SLOTS, j, 0)), factors, w, ORDER, entry(SLOTS, j, 2), to_pair + turn % 2 * other_place,
            turn, K, SPLITS,
        )  # fmt: skip
        if SPLITS == 1:
            p = p + (product,)
    return p, turn


@gluon.jit
def with_sums(g, INTO: gl.constexpr, p):
    """The tiles with others added to those that ``INTO`` names."""
    for j in gl.static_range(len(p)):
        g = with_sum(g, INTO[j], p[j])
    return g


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


@gluon.jit
def moved(sources, strides, rows):
    """Places so many rows further."""
    found = ()
    for i in gl.static_range(len(sources)):
        found = found + (sources[i] + rows * strides[i][2],)
    return found


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
    ROWS: gl.constexpr, TILES: gl.constexpr, K: gl.constexpr, J: gl.constexpr, SPLITS: gl.constexpr,
    HELD: gl.constexpr,
):  # fmt: skip
    """As ``backward.retreat``, with the weights as they are; ``inbox (2, groups, TILES, K / J, ROWS, K)`` is zero.

    A group has ``TILES`` tiles at a time, as forward: what a stage sends for one tile is received when the next stage
    needs it, after the others' turn. What the last stage sends is received in the step before; so that the first step
    finds something, nothing is sent in its place.
    """
    WARPS: gl.constexpr = gl.num_warps()
    ALONE: gl.constexpr = SPLITS == 1
    LAST: gl.constexpr = length(RETREATS) - 1
    ACROSS: gl.constexpr = not ALONE and len(INTO) > 0
    ROOM: gl.constexpr = K // J * ROWS * K
    gl.static_assert(parts_of(K, WARPS) == 1)
    gl.static_assert(TILES == 1 or not ALONE)
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
    inbox += group * (TILES * ROOM)
    to_pair = inbox + (pair // J * (K // J) + split) * (ROWS * J) + pair_row * J + pair % J
    other_place = groups * (TILES * ROOM)
    mine = inbox + split * (ROWS * K)
    factors = rooms(most_blocks(RETREATS), [1, ROWS, J], FACTOR)
    w_rooms = rooms(shared_tiles(len(ORDER), J, K, WARPS, HELD), [1, length_of(J, K, WARPS), K], WEIGHTS)
    items = gl.cdiv(B, span * TILES)
    turn = 0
    item = group
    while item < N * items:
        n = (item // items).to(gl.int64)
        b_first = (item % items) * (span * TILES)
        first_row = b_first.to(gl.int64)
        plane = B.to(gl.int64) * H
        apart = N * (T + 1) * plane
        states_n = states + n * (T + 1) * plane + first_row * H + own
        saved_n = saved + (n * T * plane + first_row * H) * WIDTH + own_saved
        carried_n = carried + n * plane + first_row * H + own
        upstream_n = places(upstream, up_strides, n, first_row + row, unit)

        w = load_weights(weight + n * w_n, split * J, 1, 0, w_row, H, w_rooms, len(ORDER), J, K)
        u = load_lanes(units + n * (UNITS * H) + unit, H, unit < H, UNITS)
        t = stop.to(gl.int64) - 1
        zero = gl.full([ROWS, J], 0.0, gl.float32, tile_layout(J, WARPS))
        g = ()
        read = ()
        for i in gl.static_range(TILES):
            mask = (row < min(span, B - b_first - i * span)) & (unit < H)
            further = i * span * H
            if IN_PARTS:
                g = g + (load_lanes(carried_n + further, N * plane, mask, FIELDS),)
            else:
                g = g + (zeros(zero, FIELDS),)
            after_fields = load_fields(states_n + stop * plane + further, apart, mask, zero, AFTER, FIELDS)
            v, up, before = load_step(
                saved_n + t * plane * WIDTH + further * WIDTH, moved(upstream_n, up_strides, i * span), up_strides, t,
                states_n + t * plane + further, apart, mask, zero, H, BEFORE + AFTER, FIELDS, SAVED,
            )  # fmt: skip
            read = read + ((v, up, before, after_fields),)
            if ACROSS:
                nothing = as_states(no_totals(1, ROWS, K), 1, (), K)[0]
                send(to_pair + i * ROOM + turn % 2 * other_place, nothing, turn)
        while t >= start:
            saved_t = saved_n + t * plane * WIDTH
            made = ()
            for stage in gl.static_range(LAST + 1):
                begin = turn
                g_now = ()
                read_now = ()
                made_now = ()
                for i in gl.static_range(TILES):
                    turn = begin
                    mask = (row < min(span, B - b_first - i * span)) & (unit < H)
                    further = i * span * H
                    v, up, before, after_fields = read[i]
                    received = ()
                    if (not ALONE and stage > 0) or (ACROSS and stage == 0):
                        received = (receive_sum(mine + i * ROOM + turn % 2 * other_place, turn, ROWS, K, J, SPLITS),)
                        turn = after(turn)
                    if stage == 0:
                        g_i = g[i]
                        if ACROSS:
                            g_i = with_sum(g_i, INTO[len(INTO) - 1], received[0])
                        d = ()
                        o = ()
                        kept = ()
                    else:
                        g_i = g[i]
                        d, o, kept = made[i]
                        o = o + received
                    if stage < LAST:
                        found, kept = RETREAT(v, before, after_fields, u, g_i, up, o, kept, stage)
                    else:
                        found, g_i, _ = FINISH(v, before, after_fields, u, g_i, up, o, kept)
                        g_i = without_padding(g_i, unit < H, PADDED)
                    found = without_padding(found, unit < H, PADDED)
                    store_chosen(saved_t + further * WIDTH, H, found, mask, entry(RETREATS, stage, 0))
                    d = d + found
                    if stage == LAST and ALONE:
                        # Before the products, the longest wait of a program alone.
                        v, up, before = load_step(
                            saved_t - plane * WIDTH, upstream_n, up_strides, t - 1, states_n + (t - 1) * plane, apart,
                            mask & (t > start), zero, H, BEFORE + AFTER, FIELDS, SAVED,
                        )  # fmt: skip
                    p, turn = contribute_each(
                        d, factors, w, ORDER, entry(RETREATS, stage, 1), to_pair + i * ROOM, mine + i * ROOM,
                        other_place, turn, ROWS, K, J, SPLITS,
                    )  # fmt: skip
                    if stage < LAST:
                        o = o + p
                    else:
                        g_i = with_sums(g_i, INTO, p)
                        after_fields = read[i][2]
                        if not ALONE:
                            v, up, before = load_step(
                                saved_t - plane * WIDTH + further * WIDTH, moved(upstream_n, up_strides, i * span),
                                up_strides, t - 1, states_n + (t - 1) * plane + further, apart, mask & (t > start),
                                zero, H, BEFORE + AFTER, FIELDS, SAVED,
                            )  # fmt: skip
                    g_now = g_now + (g_i,)
                    read_now = read_now + ((v, up, before, after_fields),)
                    made_now = made_now + ((d, o, kept),)
                g = g_now
                read = read_now
                made = made_now
            t -= 1
        begin = turn
        for i in gl.static_range(TILES):
            turn = begin
            mask = (row < min(span, B - b_first - i * span)) & (unit < H)
            g_i = g[i]
            if ACROSS:
                p = receive_sum(mine + i * ROOM + turn % 2 * other_place, turn, ROWS, K, J, SPLITS)
                turn = after(turn)
                g_i = with_sum(g_i, INTO[len(INTO) - 1], p)
            store_lanes(carried_n + i * span * H, N * plane, g_i, mask)
        item += groups
