"""Calls of the public functions, made from their signatures, and what must be true of how each ends.

``python tests/helpers/fuzzing.py 10000`` makes so many calls, prints what is wrong with any, and ends with 1 if
something is.
"""

import argparse
import faulthandler
import inspect
import io
import re
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import nn

import multistable as ms
from arguments_of_calls import STRATEGIES, WORDS, Argument
from global_state import global_state

LONGEST = 60
"""Seconds after which a call counts as hanging: the longest takes a tenth of one."""

NOT_CALLED = {
    *("Advice", "Attractors", "Lyapunov", "Measure", "WarmupHistory", "WarmupStep", "KeepLook", "Hidden"),
    *("HiddenAndMemory", "Change", "Continuation", "FixedPoints", "Portrait", "Preparation", "Robustness"),
    *("DivergedError", "WarmupDivergedError", "WarmupWarning"),
    *("CELLS", "Cell", "Bidirectional"),
}
"""Public names that users read and do not call: results, errors, a registry, a class to derive from, and layers."""

ALSO_NAMED = {
    "rnn": r"no recurrent layers|recurrent layers of|is not supported|float32 or float64 parameters|input_size|states",
    "module": r"is not supported",
    "forward": r"no recurrent layers",
    "x": r"the input",
    "network": r"the input",
    "model": r"hidden_size|to be replaced|could be replaced",
    "members": r"member",
    "factory": r"device|dtype|generator|nothing",
    "options": r"nothing|t_max|recurrent_bias|steps",
    "warmed": r"input_size",
    "transient": r"input_size",
}
"""What an error may say in place of the name of an argument."""

EXPECTED = (ms.DivergedError, ms.WarmupDivergedError)
"""Errors of good arguments: of networks whose states do not stay finite."""

CALLED = sorted(set(ms.__all__) - NOT_CALLED)

ALWAYS = {
    *("batches", "stabilisation", "steps", "max_stabilisation", "longest", "iterations", "sequences", "options"),
    "fixed_points.states",
}
"""Arguments that are always given: those that bound the time of a call, and what may be left out only beside others."""


@dataclass(frozen=True, repr=False)
class Call:
    """A call of a public function, with its arguments by name."""

    function: str
    arguments: tuple[tuple[str, Argument], ...]

    def __repr__(self):
        parts = ("**" + a.text if name in KEYWORDS else f"{name}={a.text}" for name, a in self.arguments)
        return f"ms.{self.function}({', '.join(parts)})"

    def of_kind(self, good):
        """The names of the arguments of a kind."""
        return [name for name, argument in self.arguments if argument.good is good]


KEYWORDS = {"factory", "options"}
"""Names that gather further arguments by name."""


def choices_of(function):
    """The choices for each argument of a public function, from its signature, and whether it may be left out."""
    found = {}
    for name, parameter in inspect.signature(getattr(ms, function)).parameters.items():
        choices = STRATEGIES.get(f"{function}.{name}", STRATEGIES.get(name))
        if choices is None:
            raise LookupError(f"{function} has an argument {name} that no call is made with: see STRATEGIES")
        optional = parameter.default is not parameter.empty or parameter.kind is parameter.VAR_KEYWORD
        found[name] = choices, optional and not {name, f"{function}.{name}"} & ALWAYS
    return found


@st.composite
def calls(draw, function):
    """Calls of a public function: many with good arguments alone, more with one that is not, some with two."""
    choices = choices_of(function)
    odd = draw(st.lists(st.sampled_from(sorted(choices)), max_size=2, unique=True))
    given = {}
    for name, (some, optional) in choices.items():
        if name in odd:
            given[name] = draw(some.odd)
        elif not optional or draw(st.booleans()):
            given[name] = draw(some.good)
    return Call(function, tuple(given.items()))


def with_each(function):
    """A call with each argument that is listed, where all others are the first good ones."""
    choices = choices_of(function)
    needed = {name: some.listed[0][0] for name, (some, optional) in choices.items() if not optional}
    for name, (some, _) in choices.items():
        for argument in [*some.listed[0], *some.listed[1]]:
            yield Call(function, tuple((needed | {name: argument}).items()))


def values_of(call):
    """The arguments themselves, the same each time."""
    torch.manual_seed(0)
    return {name: eval(argument.text, dict(WORDS)) for name, argument in call.arguments}


def problem(call):
    """What is wrong with how a call ends, or ``None``."""
    named = values_of(call)
    values, forms, outside = values_in(named), forms_in(named), outside_of(call)
    given = {name: value for name, value in named.items() if name not in KEYWORDS}
    for gathered in KEYWORDS & named.keys():
        given |= named[gathered]
    changes_weights = False
    try:
        with quietly(), limited():
            result = run(getattr(ms, call.function), given)
            found = wrong_result(call, given, result)
            changes_weights = call.function in ("prepare", "warmup")
            if call.function == "doubled":  # in place
                return found
    except HangError:
        found = "hangs"
    except Exception as error:
        found = wrong_error(call, error)
    if found is None and outside_of(call) != outside:
        found = "changes something global"
    if found is None and (forms_in(named) != forms or (not changes_weights and values_in(named) != values)):
        found = "changes its arguments"
    return found


def outside_of(call):
    """Everything global that a call must leave alone: who makes weights may draw them as PyTorch does."""
    draws = inspect.isclass(getattr(ms, call.function))
    return {name: value for name, value in global_state().items() if not (draws and name == "torch random")}


def run(function, given):
    """Call a function; a context is entered and left."""
    result = function(**given)
    if hasattr(result, "__enter__"):
        with result as inside:
            return inside
    return result


def wrong_error(call, error):
    """What is wrong with an error: only a ValueError or TypeError that names an argument is right."""
    told = f"{type(error).__name__}: {str(error)[:150]}"
    suspects = call.of_kind(False) + call.of_kind(None)
    if not suspects:
        return None if isinstance(error, EXPECTED) else f"refuses good arguments: {told}"
    if isinstance(error, EXPECTED) and call.of_kind(None):
        return None
    if type(error) not in (ValueError, TypeError):
        return f"ends in a foreign error: {told}"
    names = "|".join(rf"\b{name}\b|{ALSO_NAMED.get(name, name)}" for name in suspects)
    return None if re.search(names, str(error)) else f"names none of {', '.join(suspects)}: {told}"


def wrong_result(call, given, result):
    """What is wrong with a result."""
    if wrong := call.of_kind(False):
        return f"accepts a wrong {' and '.join(wrong)}"
    right = RIGHT.get(call.function, RIGHT["Cell"])
    return None if right(given, result) else f"gives a wrong result: {result!r}"


def of_parts(found):
    """The results for the parts of a network."""
    return found.values() if isinstance(found, dict) else [found]


def in_unit_interval(value):
    return bool((torch.as_tensor(value) > 0).all() and (torch.as_tensor(value) <= 1).all())


def is_one(*shares):
    return torch.allclose(sum(map(torch.as_tensor, shares)), torch.tensor(1.0), atol=1e-6)


def finite(tensors):
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


def computes(module, inputs):
    """Whether a network computes something finite."""
    weight = next(module.parameters())
    return weight.is_meta or bool(module(inputs.to(weight))[0].isfinite().all())


def same_outputs(one, other):
    weight = next(one.parameters())
    x = torch.randn(3, 5, one.input_size, generator=torch.Generator().manual_seed(0)).to(weight)
    return weight.is_meta or torch.allclose(
        one(x)[0].float(), other(x)[0].float(), atol=1e-2 if weight.dtype == torch.half else 1e-5
    )


RIGHT = {
    "Cell": lambda given, cell: computes(cell, torch.zeros(3, cell.input_size)),
    "Keep": lambda given, keep: 0 <= keep() < torch.inf,
    "RNN": lambda given, rnn: computes(rnn, torch.zeros(3, 5, rnn.input_size)),
    "Double": lambda given, layer: computes(layer, torch.zeros(3, 5, layer.input_size)),
    "Ensemble": lambda given, ensemble: all(map(same_outputs, given["members"], ensemble.unstack())),
    "advise": lambda given, advice: advice.warmup in (None, "none", "whole", "double") and bool(str(advice)),
    "attractors": lambda given, found: is_one(found.fixed_points, found.cycles, found.moving),
    "backends": lambda given, lines: bool(lines) and all(isinstance(line, str) for line in lines),
    "check": lambda given, errors: set(errors) == {"float32", "float64"},
    "continuation": lambda given, found: is_one(found.fractions[0].sum().item(), found.steps[0].moving),
    "doubled": lambda given, model: any(isinstance(module, ms.Double) for module in model.modules()),
    "engine": lambda given, chosen: all(value in (None, getattr(chosen, name)) for name, value in given.items()),
    "fixed_points": lambda given, found: all(
        finite([one.points]) and bool((one.speeds < 1e-6).all())
        for one in (found if isinstance(found, list) else [found])
    ),
    "from_torch": lambda given, rnn: same_outputs(given["module"], rnn),
    "lyapunov": lambda given, found: not found.exponents.isnan().any(),
    "measure": lambda given, found: all(
        in_unit_interval(one.vaa) and in_unit_interval(one.batches) for one in of_parts(found)
    ),
    "robustness": lambda given, found: bool(
        (torch.as_tensor(found.vaa) >= 0).all()
        and (torch.as_tensor(found.vaa) <= torch.as_tensor(found.returned) + 1e-9).all()
        and (torch.as_tensor(found.returned) <= 1).all()
    ),
    "prepare": lambda given, found: finite(given["rnn"].parameters()),
    "precompile": lambda given, nothing: nothing is None,
    "reachable_states": lambda given, found: all(
        states.dim() >= 2 and finite([states]) == finite(given["rnn"].parameters()) for states in of_parts(found)
    ),
    "recurrent_parts": lambda given, parts: all(isinstance(part, nn.Module) for part in parts.values()),
    "to_torch": lambda given, module: same_outputs(given["network"], module),
    "vaa": lambda given, found: in_unit_interval(found),
    "vaa_star": lambda given, found: in_unit_interval(found.detach()),
    "warmup": lambda given, history: finite(given["rnn"].parameters()),
}
"""What is true of each result; of a cell that is made, what is said of ``Cell``."""


def values_in(value):
    """All numbers in arguments."""
    if isinstance(value, nn.Module):
        return values_in(value.state_dict())
    if isinstance(value, torch.Tensor):
        there = value.detach()
        return "meta" if there.is_meta else repr(there.to_dense().tolist())
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return {name: values_in(entry) for name, entry in value.items() if name != "generator"}
    if isinstance(value, list | tuple):
        return [values_in(entry) for entry in value]
    return None


def forms_in(value):
    """All about arguments but numbers: what a warmup leaves, too."""
    if isinstance(value, nn.Module):
        flags = [(name, id(p), p.requires_grad, p.grad) for name, p in value.named_parameters()]
        return flags, [(name, type(module), module.training) for name, module in value.named_modules()]
    if isinstance(value, torch.Tensor):
        return (id(value), value.dtype, value.shape, value.requires_grad, value.grad)
    if isinstance(value, dict):
        return {name: forms_in(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [type(value), *map(forms_in, value)]
    return id(value)


class HangError(BaseException):
    """A call took too long."""


@contextmanager
def limited() -> Iterator[None]:
    """Interrupt what takes too long; what does not listen ends the process with a traceback."""

    def hang(number, frame):
        raise HangError

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def quietly() -> Iterator[None]:
    """Show neither warnings nor progress."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def many(function, number, first):
    """A call with each argument, and so many from a seed; how often each thing was wrong, each with one call."""
    found: Counter[str] = Counter()
    shown: dict[str, Call] = {}
    made: list[Call] = []

    def judge(call):
        faulthandler.dump_traceback_later(2 * LONGEST, exit=True)
        made.append(call)
        if (wrong := problem(call)) is not None:
            found[wrong] += 1
            shown.setdefault(wrong, call)

    @seed(first)
    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(calls(function))
    def make(call):
        judge(call)

    try:
        for call in with_each(function):
            judge(call)
        make()
    finally:
        faulthandler.cancel_dump_traceback_later()
    return len(made), [(wrong, times, shown[wrong]) for wrong, times in found.most_common()]


def main(number, first):
    """Make calls of every function, each in a process of its own."""
    total, wrong = 0, 0
    for function in CALLED:
        command = [sys.executable, __file__, "--function", function, "--seed", str(first), str(number // len(CALLED))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        counted = re.search(r"^(\d+) calls$", done.stdout, re.MULTILINE)
        total += int(counted[1]) if counted else 0
        wrong += done.returncode != 0
        print(f"ms.{function}: {done.stdout.strip() or f'the process ended with {done.returncode}'}", flush=True)
    print(f"{total} calls, something wrong with {wrong} of {len(CALLED)} functions")
    return bool(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "number",
        type=int,
        nargs="?",
        default=15_000,
        help="of calls, shared among functions; those with few arguments need fewer",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--function", choices=CALLED, help="this one alone")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.function is None:
        sys.exit(main(asked.number, asked.seed))
    calls_made, problems = many(asked.function, asked.number, asked.seed)
    print(f"{calls_made} calls")
    for what, times, one in problems:
        print(f"  {times} x {what}\n      {one}")
    sys.exit(bool(problems))
