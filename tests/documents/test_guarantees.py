"""Every promise names tests that exist, and other pages promise the same in the same words."""

import re

import pytest

from paths import ROOT

PAGE = ROOT / "docs" / "reference" / "guarantees.md"
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| promise")]
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_every_promise_has_tests_that_exist():
    assert len(ROWS) > 10
    for row in ROWS:
        tests = TEST.findall(row)
        assert tests, row
        for file, name in tests:
            assert f"\ndef {name}(" in (ROOT / "tests" / file).read_text(), f"{file}::{name}"


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/guide/command_line.md", "docs/guide/your_task.md", "docs/reference/reproduce.md"],
)
def test_pages_say_of_resuming_what_is_promised(page):
    promise = ROWS[0].split("|")[1].strip()
    assert promise.startswith("A run that is stopped at any moment")
    assert promise in " ".join((ROOT / page).read_text().split())
