"""Links of the documents lead somewhere, every picture is shown, and the files that they name exist."""

import re
from pathlib import Path

from paths import ROOT

DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(document: Path) -> str:
    """The text without its blocks of code."""
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """What GitHub makes of the headings: lower case, hyphens for spaces, no other signs."""
    headings = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(document: Path, link: str) -> bool:
    if re.match("https?:", link):
        return True
    file, _, anchor = link.partition("#")
    target = document.parent / file if file else document
    return target.exists() and (not anchor or anchor in anchors(target))


def test_links_lead_somewhere():
    links = [(document, link) for document in DOCUMENTS for link in LINK.findall(prose(document))]
    broken = [f"{path.relative_to(ROOT)}: {link}" for path, link in links if not leads_somewhere(path, link)]
    assert len(links) > 100
    assert not broken


def test_every_picture_is_shown_somewhere():
    links = {(document.parent / link).resolve() for document in DOCUMENTS for link in LINK.findall(prose(document))}
    pictures = {path for kind in ("png", "svg") for path in (ROOT / "docs").rglob(f"*.{kind}")}
    assert [str(path.relative_to(ROOT)) for path in sorted(pictures - links)] == []


def test_files_that_are_named_exist():
    """``cells/__init__.py`` and the like, of the source or of the tests, wherever the path begins."""
    folders = ("src", "tests", "docs", "examples", "benchmarks")
    files = [f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.py")]
    missing = [
        f"{document.relative_to(ROOT)}: {name}"
        for document in DOCUMENTS
        for name in re.findall(r"`([\w/]+\.py)`", prose(document))
        if not any(file.endswith(f"/{name}") for file in files)
    ]
    assert not missing
