"""Pages in a real browser: nothing complains, and every picture is seen on a phone and on a desk."""

import pytest

from browser import CHROMIUM, CONTRAST, Browser
from multistable.experiments.demo import demo
from multistable.experiments.inspection import inspection, write
from networks import remembering_signs
from tiny_demo import tiny_configs

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

PICTURES = """[...document.querySelectorAll("svg, img")].map(picture => {
  const box = picture.getBoundingClientRect();
  const content = picture.tagName === "IMG" ? picture.naturalWidth : picture.getBBox().width;
  return {left: box.left, right: box.right, height: box.height, content};
})"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


PAGES = {"demo": 7, "inspection": 6}
"""The pages, and how many pictures each has."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    found = inspection(remembering_signs(), None, stabilisation=200)
    return {
        "demo": demo(folder / "demo", runs=tiny_configs(), states=12),
        "inspection": write(found, folder / "inspection.html", "a network"),
    }


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [390, 1280])
def test_every_picture_is_visible(browser, pages, page, width):
    browser.complaints.clear()
    browser.open(pages[page], width)
    shown = browser.run(PICTURES)
    assert browser.complaints == []
    assert len(shown) == PAGES[page]
    for picture in shown:
        assert picture["content"] > 0
        assert picture["height"] > 100
        assert 0 <= picture["left"] < picture["right"] <= width
    assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("settings", [{}, {"dark": True}, {"media": "print", "dark": True}])
def test_everything_can_be_read(browser, pages, page, settings):
    browser.open(pages[page], 1280, **settings)
    assert browser.run(CONTRAST) >= 4.5
    dark = browser.run("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (settings == {"dark": True})  # paper is white
