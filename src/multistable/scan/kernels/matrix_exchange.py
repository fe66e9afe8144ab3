"""How the programs of a group send each other their results, without a meeting.

Every word that is sent says itself which exchange it belongs to: two of its bits are a tag, and its reader reads it
until they are as expected. Since a word needs no other to be understood, words may arrive in any order: relaxed
accesses are enough, and there is neither a fence nor a counter, only one way through the second-level cache.

A number is a word of 32 bits, its two lowest the tag. (TF32 has no use for these bits. Of a float32 they are the last
two of 24; its reader sets them to zero, so that an infinity is one again.) Where more precise numbers are sent, two of
them are one word of 64 bits, which is written and read at once, and each gives up its last bit. What is left, 23 bits,
is what two halves can say (``matrix_halves.py``). The reader sets the last bit to zero, so that a product does not
depend on the turn; and a program reads its own states there, too, so that all multiply the same numbers. So a step is a
function of the state, to the bit, whatever turn it is in.

Exchanges take *turns*, six of them: two places to write to, three tags. Instead of its word, a reader may find the zero
from before the launch (no tag is zero), or the word of two turns ago in the same place (another tag). It never finds a
later word: a program that sends in the second turn after this one has received a word from each of the others in the
turn between, and none of them sent it before all its threads had received the word of this turn. Mostly a program
computes the one word from the other; at the start of a tile it does not, but the barrier of a product lies between. Nor
does a reader find an older word: a thread reads the same words in each exchange, and never sees a word go back. For
this, a program must receive all words that are sent to it. The memory is set to zero before each launch, so that
launches do not depend on each other, and turns never run out.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from multistable.scan.kernels.matrix_product import across_of, parts_of, run_of, tile_layout


@gluon.jit
def tag_of(turn):
    return 1 + turn % 3


@gluon.jit
def after(turn):
    return (turn + 1) % 6


@gluon.jit
def without_tag(x, BITS: gl.constexpr = 2):
    return (x.to(gl.int32, bitcast=True) & -(2**BITS)).to(gl.float32, bitcast=True)


@gluon.jit
def send(target, x, turn):
    """Write pairs of neighbours of ``x`` at ``target``, the pointers of the first of each."""
    bits = (x.to(gl.int32, bitcast=True) & -4) | tag_of(turn)
    first, second = gl.split(gl.reshape(bits, [x.shape[0], x.shape[1] // 2, 2]))
    layout: gl.constexpr = target.type.layout
    gl.inline_asm_elementwise(
        "{ st.relaxed.gpu.global.v2.b32 [$1], {$2, $3}; mov.b32 $0, 0; }", "=r,l,r,r",
        [target, gl.convert_layout(first, layout), gl.convert_layout(second, layout)], gl.int32, False, 1,
    )  # fmt: skip


@gluon.jit
def send_precisely(target, x, turn):
    """:func:`send` with one bit of the tag in each number of a pair, which is written as one word."""
    bits = x.to(gl.int32, bitcast=True) & -2
    first, second = gl.split(gl.reshape(bits, [x.shape[0], x.shape[1] // 2, 2]))
    first |= tag_of(turn) % 2
    second |= tag_of(turn) // 2
    layout: gl.constexpr = target.type.layout
    gl.inline_asm_elementwise(
        "{ .reg .b64 both; mov.b64 both, {$2, $3}; st.relaxed.gpu.global.b64 [$1], both; mov.b32 $0, 0; }", "=r,l,r,r",
        [target, gl.convert_layout(first, layout), gl.convert_layout(second, layout)], gl.int32, False, 1,
    )  # fmt: skip


@gluon.constexpr_function
def receive_asm(pointers, width, precise):
    """Read ``width`` words at each pointer until all carry the tag, or, if ``precise``, each one a bit of it."""
    words = pointers * width
    # Outputs come field by field: word i at pointer p is output i * pointers + p.
    loads, checks = "", ""
    for p in range(pointers):
        fields, address = [f"${i * pointers + p}" for i in range(width)], f"[${words + p}]"
        if precise:
            pairs = [f"pair{i}" for i in range(width // 2)]
            loads += f"ld.relaxed.gpu.global.v{width // 2}.b64 {{{', '.join(pairs)}}}, {address};\n"
            for i, pair in enumerate(pairs):
                loads += f"mov.b64 {{{fields[2 * i]}, {fields[2 * i + 1]}}}, {pair};\n"
        else:
            loads += f"ld.relaxed.gpu.global.v{width}.b32 {{{', '.join(fields)}}}, {address};\n"
    for i in range(words):
        tag = f"${words + pointers + i % pointers}"
        if precise and i // pointers % 2:
            checks += f"shr.b32 second, {tag}, 1;\n"
            tag = "second"
        checks += f"xor.b32 x, ${i}, {tag};\nor.b32 wrong, wrong, x;\n"
    names = ".reg .b64 pair<2>;\n.reg .b32 second;\n" if precise else ""
    return (
        f"{{\n.reg .pred again;\n.reg .b32 x, wrong;\n{names}read:\n{loads}mov.b32 wrong, 0;\n{checks}"
        f"and.b32 wrong, wrong, {1 if precise else 3};\nsetp.ne.b32 again, wrong, 0;\n@again bra read;\n}}"
    )


@gluon.constexpr_function
def receive_constraints(pointers, width):
    return ",".join(["=&r"] * (pointers * width) + ["l"] * pointers + ["r"] * pointers)


@gluon.constexpr_function
def floats(n):
    return (gl.float32,) * n


@gluon.jit
def receive(pointers, sent, turn, each: gl.constexpr, width: gl.constexpr, precise: gl.constexpr = False):
    """The ``width`` words at each of ``pointers``, of which a thread has ``each``; zeros where nothing is ``sent``."""
    tags = gl.where(sent, tag_of(turn), 0) + gl.full(pointers.shape, 0, gl.int32, pointers.type.layout)
    asm: gl.constexpr = receive_asm(each, width, precise)
    constraints: gl.constexpr = receive_constraints(each, width)
    return gl.inline_asm_elementwise(asm, constraints, [pointers, tags], floats(width), False, each)


@gluon.jit
def receive_states(
    source, turn, ROWS: gl.constexpr, K: gl.constexpr, SENT: gl.constexpr, PRECISE: gl.constexpr = False
):
    """The states of all units, ``(ROWS, K)``, some with tags; after the first ``SENT`` nobody writes."""
    BY_FOUR: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    row = gl.arange(0, ROWS, gl.SliceLayout(1, BY_FOUR))[:, None]
    k = gl.arange(0, K // 4, gl.SliceLayout(0, BY_FOUR))[None, :] * 4
    EACH: gl.constexpr = max(1, K // 128) * max(1, ROWS // gl.num_warps())
    a, b, c, d = receive(source + row * K + k, k < SENT, turn, EACH, 4, PRECISE)
    return gl.reshape(gl.join(gl.join(a, c), gl.join(b, d)), [ROWS, K])


@gluon.jit
def receive_sum(source, turn, ROWS: gl.constexpr, K: gl.constexpr, J: gl.constexpr, SPLITS: gl.constexpr):
    """The sum of ``(ROWS, J)`` numbers from each of ``SPLITS`` programs, in memory for as many as ``K`` units take."""
    WARPS: gl.constexpr = gl.num_warps()
    ALL: gl.constexpr = K // J
    LAYOUT: gl.constexpr = gl.BlockedLayout(
        [ALL, 1, run_of(J, WARPS)], [1, 8, 4], [1, parts_of(J, WARPS), across_of(J, WARPS)], [2, 1, 0]
    )
    s = gl.arange(0, ALL, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))[:, None, None]
    row = gl.arange(0, ROWS, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))[None, :, None]
    pair = gl.arange(0, J // 2, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))[None, None, :]
    EACH: gl.constexpr = ALL * max(1, ROWS // (8 * parts_of(J, WARPS))) * (J // 8 // across_of(J, WARPS))
    a, b = receive(source + s * (ROWS * J) + row * J + pair * 2, s < SPLITS, turn, EACH, 2)
    both = gl.reshape(gl.join(gl.sum(without_tag(a), axis=0), gl.sum(without_tag(b), axis=0)), [ROWS, J])
    return gl.convert_layout(both, tile_layout(J, WARPS))
