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


PROMISES = [" ".join(row.split("|")[1].split()).rstrip(".") for row in ROWS]
TOLD = re.compile(
    r"(never|not) (be )?(run|trained|repeated|downloaded)|at any moment|work on one run|kill -9|power cut|full disk"
    r"|same numbers|downloaded|damaged|foreign error|names the argument"
)
"""Words that only sentences about resuming, files, downloads and bad input have."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").iterdir()), *sorted(PAGE.parent.iterdir())]


def sentences(page):
    """The sentences of a page, without blocks of code, headings, links and line breaks."""
    prose = re.sub(r"^```.*?^```|^#.*?$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    return re.split(r"(?<=[.:;]) | \| ", " ".join(plain.split()))


@pytest.mark.parametrize("page", [page for page in PAGES if page != PAGE], ids=lambda page: page.name)
def test_what_pages_promise_is_promised_here_word_for_word(page):
    told = [sentence for sentence in sentences(page) if TOLD.search(sentence)]
    other = [one for one in told if not any(one.rstrip(".:; |") in promise for promise in PROMISES)]
    assert other == []


@pytest.mark.parametrize("page", ["README.md", "docs/guide/your_task.md"])
def test_pages_say_of_resuming_what_is_promised(page):
    promise = ROWS[0].split("|")[1].strip()
    assert promise.startswith("A run that is stopped at any moment")
    assert promise in " ".join((ROOT / page).read_text().split())
