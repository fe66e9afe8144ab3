"""Instructions of LLVM for the operations of a program: all rounded once, in an order that no compiler may change.

So a number depends on its own row and column alone: not on where vectors end, nor on who compiled it.
"""

import math
import struct
from collections.abc import Callable

# tanh(x) = x P(x^2) / Q(x^2), minimax in relative error (1e-9) up to where tanh is 1 in float32.
LARGEST = 9.02
P = (5.076390006356291e-08, 3.1589563988147835e-05, 0.004008532574589178, 0.13785382667287716, 1.0)
Q = (
    *(7.374761065544545e-10, 1.6175235130790265e-06, 0.0004207449804028452, 0.02773759793550587),
    *(0.4711871507520303, 1.0),
)

COMPARED = {"gt": "ogt", "ge": "oge", "lt": "olt", "le": "ole", "eq": "oeq", "ne": "une"}


class Instructions:
    """Writes instructions, each on the results of others.

    Args:
        double: in float64, else in float32.
        fused: whether the processor has a fused multiplication and addition.
    """

    def __init__(self, *, double: bool, fused: bool) -> None:
        self.lines: list[str] = []
        self.double, self.fused = double, fused
        self.type, self.whole = ("double", "i64") if double else ("float", "i32")
        self._count = 0
        self.by_name: dict[str, Callable[..., str]] = {
            name: getattr(self, name)
            for name in ("neg", "tanh", "sigmoid", "exp", "expm1", "log", "log1p", "pow", "maximum", "minimum")
        } | {
            **{name: lambda a, b, name=name: self._of(f"f{name}", a, b) for name in ("add", "sub", "mul", "div")},
            **{name: lambda a, b, how=how: self.compare(how, a, b) for name, how in COMPARED.items()},
            **{name: lambda a, b, name=name: self.emit(f"{name} i1 {a}, {b}") for name in ("and", "or")},
            "not": lambda a: self.emit(f"xor i1 {a}, true"),
            "where": self.select,
            "abs": lambda a: self._call("fabs", a),
            "sqrt": lambda a: self._call("sqrt", a),
        }

    def emit(self, text: str) -> str:
        """The name of the result of an instruction."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def number(self, value: float) -> str:
        """A constant."""
        rounded = value if self.double else struct.unpack("f", struct.pack("f", value))[0]
        return "0x" + struct.pack(">d", rounded).hex().upper()

    def mul(self, a: str, b: str) -> str:
        """a b."""
        return self._of("fmul", a, b)

    def add(self, a: str, b: str) -> str:
        """a + b."""
        return self._of("fadd", a, b)

    def neg(self, a: str) -> str:
        """-a."""
        return self.emit(f"fneg {self.type} {a}")

    def fma(self, a: str, b: str, c: str) -> str:
        """a b + c, rounded once where the processor can."""
        return self._call("fma", a, b, c) if self.fused else self.add(self.mul(a, b), c)

    def compare(self, how: str, a: str, b: str) -> str:
        """Whether two numbers compare in this way."""
        return self.emit(f"fcmp {how} {self.type} {a}, {b}")

    def select(self, which: str, a: str, b: str) -> str:
        """The first or the second."""
        return self.emit(f"select i1 {which}, {self.type} {a}, {self.type} {b}")

    def maximum(self, a: str, b: str) -> str:
        """The larger; NaN if one is."""
        return self._either("ogt", a, b)

    def minimum(self, a: str, b: str) -> str:
        """The smaller; NaN if one is."""
        return self._either("olt", a, b)

    def tanh(self, x: str) -> str:
        """Within 6 units in the last place; NaN stays NaN, and no result is beyond 1."""
        if self.double:
            e = self.expm1(self.mul(self.number(2), self._within(x, 20.0)))
            return self._of("fdiv", e, self.add(e, self.number(2)))
        x = self._within(x, LARGEST)
        square = self.mul(x, x)
        y = self._of("fdiv", self.mul(x, self._polynomial(square, P)), self._polynomial(square, Q))
        return self._within(y, 1.0)

    def sigmoid(self, x: str) -> str:
        """1 / (1 + exp(-x))."""
        if self.double:
            return self._of("fdiv", self.number(1), self.add(self.number(1), self.exp(self.neg(x))))
        half = self.number(0.5)
        return self.fma(half, self.tanh(self.mul(half, x)), half)

    def exp(self, x: str) -> str:
        """E to the x: 2 to a whole power times a series."""
        low, high = (-746.0, 710.0) if self.double else (-104.0, 89.0)
        whole, series = self._reduced(self._above(self._below(x, high), low))
        first = self.emit(f"ashr {self.whole} {whole}, 1")
        second = self.emit(f"sub {self.whole} {whole}, {first}")
        return self.mul(self.mul(self.add(series, self.number(1)), self._two_to(first)), self._two_to(second))

    def expm1(self, x: str) -> str:
        """Exp(x) - 1, precise near zero."""
        high = 709.78 if self.double else 88.72
        whole, series = self._reduced(self._above(self._below(x, high), -50.0))
        half = self._two_to(self.emit(f"sub {self.whole} {whole}, 1"))
        result = self.fma(series, half, self.add(half, self.number(-0.5)))
        result = self.add(result, result)
        return self.select(self.compare("ogt", x, self.number(high)), self._infinite(), result)

    def log(self, x: str) -> str:
        """The natural logarithm: that of a power of two, and a series."""
        bits, root = (52, 0x3FE6A09E667F3BCD) if self.double else (23, 0x3F3504F3)
        tiny = self.compare("olt", x, self.number(2.0 ** (-1022 if self.double else -126)))
        scaled = self.select(tiny, self.mul(x, self.number(2.0**bits)), x)
        shift = self.select(tiny, self.number(-float(bits)), self.number(0))
        whole = self.emit(f"sub {self.whole} {self._bits(scaled)}, {root}")
        power = self.add(
            self.emit(f"sitofp {self.whole} {self.emit(f'ashr {self.whole} {whole}, {bits}')} to {self.type}"), shift
        )
        mantissa = self.emit(f"and {self.whole} {whole}, {(1 << bits) - 1}")
        f = self.add(self._float(self.emit(f"add {self.whole} {mantissa}, {root}")), self.number(-1))
        s = self._of("fdiv", f, self.add(f, self.number(2)))
        square = self.mul(s, s)
        terms = [2 / (2 * k + 1) for k in range(11 if self.double else 6, 0, -1)]
        tail = self.mul(self.mul(s, square), self._polynomial(square, terms))
        high, low = _log_of_two(self.double)
        # log(1 + f) = 2 s + ..., and 2 s = f - s f.
        sum_ = self.add(self.fma(self.neg(s), f, f), self.fma(power, self.number(low), tail))
        result = self.fma(power, self.number(high), sum_)
        result = self.select(self.compare("oeq", x, self._infinite()), self._infinite(), result)
        result = self.select(self.compare("oeq", x, self.number(0)), self.neg(self._infinite()), result)
        return self.select(self.compare("ult", x, self.number(0)), self.number(math.nan), result)

    def log1p(self, x: str) -> str:
        """Log(1 + x), precise near zero."""
        u = self.add(self.number(1), x)
        lost = self._of("fsub", x, self.add(u, self.number(-1)))
        logarithm = self.log(u)
        finite = self.emit(
            f"and i1 {self.compare('one', u, self.number(0))}, {self.compare('one', u, self._infinite())}"
        )
        return self.select(finite, self.add(logarithm, self._of("fdiv", lost, u)), logarithm)

    def pow(self, x: str, exponent: str) -> str:
        """x to a constant power that is no small whole number; NaN for x below zero."""
        return self.exp(self.mul(exponent, self.log(x)))

    def _of(self, operation: str, a: str, b: str) -> str:
        return self.emit(f"{operation} {self.type} {a}, {b}")

    def _call(self, name: str, *arguments: str) -> str:
        given = ", ".join(f"{self.type} {argument}" for argument in arguments)
        return self.emit(f"call {self.type} @llvm.{name}.f{64 if self.double else 32}({given})")

    def _infinite(self) -> str:
        return self.number(math.inf)

    def _either(self, how: str, a: str, b: str) -> str:
        better = self.select(self.compare(how, a, b), a, b)
        return self.select(self.compare("uno", a, a), a, better)

    def _below(self, x: str, limit: float) -> str:
        # A comparison that is false for NaN, so that it passes.
        return self.select(self.compare("ogt", x, self.number(limit)), self.number(limit), x)

    def _above(self, x: str, limit: float) -> str:
        return self.select(self.compare("olt", x, self.number(limit)), self.number(limit), x)

    def _within(self, x: str, limit: float) -> str:
        return self._above(self._below(x, limit), -limit)

    def _polynomial(self, x: str, coefficients: "tuple[float, ...] | list[float]") -> str:
        """Highest power first."""
        y = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            y = self.fma(y, x, self.number(coefficient))
        return y

    def _reduced(self, x: str) -> tuple[str, str]:
        """n and exp(r) - 1, where x = n log 2 + r."""
        # Adding a number this large rounds to whole ones, which are then its last bits.
        large = self.number(1.5 * 2.0 ** (52 if self.double else 23))
        rounded = self.fma(x, self.number(1 / math.log(2)), large)
        n = self._of("fsub", rounded, large)
        high, low = _log_of_two(self.double)
        r = self.fma(n, self.number(-low), self.fma(n, self.number(-high), x))
        terms = [1 / math.factorial(k) for k in range(13 if self.double else 7, 1, -1)]
        series = self.fma(self.mul(r, r), self._polynomial(r, terms), r)
        return self.emit(f"sub {self.whole} {self._bits(rounded)}, {self._bits(large)}"), series

    def _two_to(self, power: str) -> str:
        bits, bias = (52, 1023) if self.double else (23, 127)
        biased = self.emit(f"add {self.whole} {power}, {bias}")
        return self._float(self.emit(f"shl {self.whole} {biased}, {bits}"))

    def _bits(self, x: str) -> str:
        return self.emit(f"bitcast {self.type} {x} to {self.whole}")

    def _float(self, x: str) -> str:
        return self.emit(f"bitcast {self.whole} {x} to {self.type}")


def _log_of_two(double: bool) -> tuple[float, float]:
    """In two parts, the first with so few bits that its product with a whole power is exact."""
    bits = 32 if double else 12
    high = math.floor(math.log(2) * 2**bits) / 2**bits
    # log 2 beyond float64: 0.693147180559945309417232121458.
    return high, (math.log(2) - high) + 2.3190468138462996e-17
