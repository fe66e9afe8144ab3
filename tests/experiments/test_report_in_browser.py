"""The report in a real browser, on a phone, on a desk and in print: every figure is seen, the network is not used."""

import re
from dataclasses import replace

import pytest

from browser import CHROMIUM, CONTRAST, Browser
from multistable.experiments.claims import CLAIMS
from multistable.experiments.paper import experiments
from multistable.experiments.report import write_report
from multistable.experiments.reproduce import plan, reproduce
from multistable.experiments.scales import SMOKE

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

# Every kind of picture is in one of these.
NAMES = (
    *("copy-curves", "warmup-course", "warmup-copy", "tmaze-warmup", "auxiliary-copy-50", "selection-denoising"),
    *("random-warmup-copy", "attractors-copy"),
)
KNOWN = experiments()
SHOWN = [experiment for name, experiment in KNOWN.items() if name in NAMES]
ONE_CELL = replace(SMOKE, seeds=1, agent_seeds=1, keeps=lambda config: config.cell == "gru" and SMOKE.keeps(config))

PICTURES = """[...document.querySelectorAll("figure svg, figure img")].map(picture => {
  const box = picture.getBoundingClientRect(), frame = picture.closest(".scroll").getBoundingClientRect();
  const texts = [...picture.querySelectorAll("text")].map(text => text.getBoundingClientRect().height);
  return {about: picture.getAttribute("aria-label"), left: box.left, frame: [frame.left, frame.right],
    width: box.width, height: box.height, content: picture.getBBox().width, smallest: Math.min(...texts)};
})"""
OUTSIDE = """[...document.querySelectorAll("body *")].filter(element => {
  const box = element.getBoundingClientRect();
  return !element.closest(".scroll, pre") && box.right > document.documentElement.clientWidth + 0.5;
}).map(element => element.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    assert reproduce(plan(SHOWN, ONE_CELL, out), out) == []
    reproduce(plan(SHOWN, ONE_CELL, out), out)  # what follows from the selection
    return write_report(SHOWN, ONE_CELL, out, "multistable reproduce all --scale smoke")


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.mark.parametrize("width", [390, 1200])
def test_the_report_is_whole_on_a_phone_and_on_a_desk(browser, page, width):
    browser.complaints.clear()
    browser.requested.clear()
    browser.open(page, width)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(OUTSIDE) == []
    pictures = browser.run(PICTURES)
    assert [picture["about"] for picture in pictures] == [p.caption for made in SHOWN for p in made.pictures]
    for picture in pictures:
        assert picture["content"] > 0
        assert picture["height"] > 100
        assert 0 <= picture["frame"][0] <= picture["left"] < picture["frame"][1] <= width
        assert picture["smallest"] > 7
    assert browser.run("[...document.querySelectorAll('h2[id]')].map(title => title.id)") == [e.name for e in SHOWN]
    assert browser.complaints == []
    assert [address for address in browser.requested if not address.startswith("data:")] == [page.as_uri()]


def test_everything_that_is_folded_away_has_room_on_a_phone(browser, page):
    browser.open(page, 390)
    browser.run("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.run(OUTSIDE) == []
    claims = browser.run("(c => [c.scrollWidth, c.clientWidth])(document.querySelector('#claims'))")
    assert claims[0] == claims[1]


def test_everything_can_be_read_in_the_dark_and_on_paper(browser, page):
    """In the light it has the colours of the demo's page."""
    for settings in ({"dark": True}, {"media": "print", "dark": True}):
        browser.open(page, 1200, **settings)
        assert browser.run(CONTRAST) >= 4.5
    printed = browser.pdf()
    assert printed.startswith(b"%PDF-")
    sheets = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert sheets >= len(SHOWN) / 2


def test_the_numbers_of_every_picture_are_on_paper(browser, page):
    browser.open(page, 680, media="print")  # A4 without its margins
    tables = browser.run("""[...document.querySelectorAll("figcaption table")].map(table => {
      const box = table.getBoundingClientRect(), frame = table.closest("figure").getBoundingClientRect();
      return {visible: table.checkVisibility({contentVisibilityAuto: true}), height: box.height,
        beyond: box.right - frame.right, header: table.rows[0].innerText};
    })""")
    assert len(tables) == sum(len(experiment.pictures) for experiment in SHOWN)
    for table in tables:
        assert table["visible"]
        assert table["height"] > 10
        assert table["beyond"] <= 0, table["header"]


def test_the_paper_s_statement_stands_beside_each_picture(browser, page):
    browser.open(page, 1200)
    for experiment in SHOWN:
        said = browser.run(f"""(() => {{
          let text = "", next = document.getElementById("{experiment.name}").nextElementSibling;
          for (; !next.matches(".figures"); next = next.nextElementSibling) text += next.textContent;
          return text;
        }})()""")
        assert all(f"{name}. {CLAIMS[name].statement}: " in said for name in experiment.claims)
        assert "Run here with T = " in said or "Run here with L = " in said


def test_what_the_test_looks_for_is_found(browser, tmp_path):
    broken = tmp_path / "broken.html"
    wide = '<div style="width: 2000px; height: 9px"></div>'
    broken.write_text(f'<!doctype html><body>{wide}<img src="http://127.0.0.1:9/none.png"></body>')
    browser.complaints.clear()
    browser.requested.clear()
    browser.open(broken, 390)
    assert len(browser.run(OUTSIDE)) == 1
    assert "http://127.0.0.1:9/none.png" in browser.requested
    assert browser.complaints
