"""Every public function, called with good and bad arguments: the right result, or an error that names the argument.

``make fuzz`` makes many more of these calls.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import multistable as ms
from arguments_of_calls import STRATEGIES
from fuzzing import CALLED, NOT_CALLED, calls, choices_of, problem


def test_every_public_name_is_called_or_known_not_to_be():
    assert set(ms.__all__) >= NOT_CALLED
    assert all(callable(getattr(ms, name)) for name in CALLED)
    used = {name for function in CALLED for name in choices_of(function)}
    assert {name.rpartition(".")[2] for name in STRATEGIES} == used


@pytest.mark.parametrize("function", CALLED)
@settings(max_examples=20)
@given(st.data())
def test_a_call_ends_in_the_right_result_or_an_error_that_names_the_argument(function, data):
    call = data.draw(calls(function))
    assert problem(call) is None
