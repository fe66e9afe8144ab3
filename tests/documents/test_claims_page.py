"""The page ``docs/claims.md`` says what the stored results say, in sentences that were written for their verdicts."""

import re
from dataclasses import replace

import pytest

from figure_scripts import figure_script
from made_up_results import in_mazes
from multistable.experiments.claims import CLAIMS, FAILS, UNDECIDED


@pytest.fixture(scope="module")
def script():
    """The script ``docs/figures/claims.py``."""
    return figure_script("claims")


@pytest.fixture(scope="module")
def page(script):
    """The page, made of the stored results."""
    return script.page()


def test_the_page_is_that_of_the_stored_results(page, script):
    assert page == script.PAGE.read_text(), "python docs/figures/claims.py makes it anew"


def test_each_claim_has_a_section_with_its_verdict_and_its_reason(page, script):
    assert list(script.ABOUT) == list(CLAIMS)
    sections = {part.split("\n", 1)[0]: part for part in page.split("\n## ")}
    for name, claim in CLAIMS.items():
        section, about = sections[name], script.ABOUT[name]
        assert f"\n*{script.escaped(claim.statement)}* (" in section
        assert f"\n**{about.verdict.capitalize()}" in section
        assert ("\n**Why**: " in section) == (about.verdict in (FAILS, UNDECIDED)), name
        assert ("\n**The authors' code**: " in section) == bool(claim.authors)


def test_a_sentence_for_another_verdict_is_refused(script, monkeypatch):
    paper, small = (
        script.Judged(scale, script.findings([], scale, {}), 0, []) for scale in (script.PAPER, script.SMALL)
    )
    monkeypatch.setitem(script.ABOUT, "C19", replace(script.ABOUT["C19"], verdict=FAILS))
    with pytest.raises(SystemExit, match=r"C19: the sentence .* 'does not hold', the results say 'not enough runs'"):
        script.section("C19", paper, small)


def test_comparisons_that_are_not_as_claimed_are_in_view_if_they_are_few(script):
    checks = [script.Check(f"a < {number}", script.Answer.NO) for number in range(script.FEW + 1)]
    assert script.numbers(checks[:-1])[:2] == ["- **no**: a < 0", "- **no**: a < 1"]
    shown = script.numbers([*checks, script.Check("open", script.Answer.OPEN)])
    assert shown[:2] == ["<details><summary>9 not as claimed</summary><ul>", "<li>a &lt; 0</li>"]
    assert len(shown) == len(checks) + 3


def test_other_readings_are_counted_on_the_same_networks_and_other_agents_judged_by_themselves(script, monkeypatch):
    stored = script.of_page
    known = {"tmaze_32": []}
    monkeypatch.setattr(
        script, "of_page", lambda page, file: known[file.stem] if file.stem in known else stored(page, file)
    )
    assert "It has not been run yet." in script.readings()[0]
    known["tmaze_32"] = in_mazes()
    (text,) = script.readings()
    counts = [re.findall(r"(\d+) of 80", line) for line in text.splitlines() if line.startswith("| ")]
    totals = [sum(map(int, numbers)) for numbers in counts if numbers]
    assert len(totals) == 3
    assert len(set(totals)) == 1
    assert re.search(r"\| C12: .* \| holds \| 92 of 92 as claimed \|", text)
