"""What the documentation site has beyond the pages of ``docs/``: the pages of the root, and the examples.

MkDocs calls these functions (``hooks`` in ``mkdocs.yml``). Links to files outside of ``docs/`` work in a checkout, and
lead to the pages that are made of these files here.
"""

import base64
import json
import posixpath
import re
from collections.abc import Collection
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from multistable.cli.declared import option_name
from multistable.rl import AgentConfig
from multistable.setting import declared
from multistable.training import RunConfig

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*.ipynb")])
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
PAGES |= {f"examples/{file.name}": f"examples/{file.name.replace('.', '_')}.md" for file in EXAMPLES}
PAGES |= {"examples": "examples/index.md"}
SOURCES = {page: source for source, page in PAGES.items()}


def on_config(config: MkDocsConfig) -> None:
    """The records are all pages of ``docs/results``, and the examples all files of ``examples``."""
    pages = sorted(path.name for path in (ROOT / "docs" / "results").glob("*.md"))
    _section(config, "Records").extend(f"results/{name}" for name in pages if name != "README.md")
    _section(config, "Examples").extend(PAGES[f"examples/{file.name}"] for file in EXAMPLES)


def _section(config: MkDocsConfig, title: str) -> list[Any]:
    (section,) = (entry[title] for entry in config.nav or () if title in entry)
    return section


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of files outside of ``docs/``."""
    for page, source in SOURCES.items():
        files.append(File.generated(config, page, content=_text(ROOT / source)))
    files.append(File.generated(config, "CITATION.cff", content=_text(ROOT / "CITATION.cff")))
    for file in EXAMPLES:
        files.append(File.generated(config, f"examples/{file.name}", content=file.read_bytes()))
        if file.suffix == ".ipynb":
            for name, picture in _pictures(file).items():
                files.append(File.generated(config, f"examples/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links to the pages that are made of files outside of ``docs/``, and fill in the tables of settings."""
    at = page.file.src_uri
    if at == "reference/settings.md":
        for kind, others in ((RunConfig, ()), (AgentConfig, declared(RunConfig))):
            markdown = markdown.replace(f"<!-- settings of {kind.__name__} -->", _settings(kind, others))
    if at.startswith("examples/"):
        return markdown
    folder = posixpath.dirname(SOURCES.get(at, f"docs/{at}"))

    def led(link: re.Match[str]) -> str:
        target, hash_, anchor = link[1].partition("#")
        if ":" in target or not target:
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        to = PAGES.get(path) or path.removeprefix("docs/")
        return f"]({posixpath.relpath(to, posixpath.dirname(at) or '.')}{hash_}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", led, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Roles of docstrings, such as ``:func:``, are for readers of the source."""
    return re.sub(r":(?:class|func|meth|mod|data):(?=<code>)", "", html)


def _settings(kind: Any, others: Collection[str]) -> str:
    """A table of the settings of a configuration, but for those of others."""
    rows = ["| setting | option | default | |", "|---|---|---|---|"]
    for name, (field, setting) in declared(kind).items():
        if name not in others:
            default = setting.unless_given or ("" if field.default is MISSING else f"`{field.default}`")
            option = f"`{option_name(kind, name)}`" if setting.panel and name != "task" else ""
            rows.append(f"| `{name}` | {option} | {default} | {setting.help.replace('``', '`').replace('|', ' or ')} |")
    return "\n".join(rows)


def _text(source: Path) -> str:
    if source.is_dir():
        return _list_of_examples()
    if source.suffix in (".md", ".cff"):
        return source.read_text()
    download = f"[Download {source.name}]({source.name})\n\n"
    if source.suffix == ".ipynb":
        title, rest = _notebook(source).split("\n", 1)
        return f"{title}\n\n{download}{rest}"
    return f"# {source.name}\n\n{download}```python\n{source.read_text()}```\n"


def _list_of_examples() -> str:
    lines = ["# Notebooks and examples", "", "Each is a file to download and run; the notebooks open in Jupyter.", ""]
    for file in EXAMPLES:
        if file.suffix == ".ipynb":
            text = "".join(json.loads(file.read_text())["cells"][0]["source"])
            about = f"notebook: {text.splitlines()[0].removeprefix('# ')}"
        else:
            about = file.read_text().split('"""')[1].splitlines()[0]
        lines.append(f"- [{file.name}]({file.name.replace('.', '_')}.md): {about}")
    return "\n".join(lines) + "\n"


def _notebook(source: Path) -> str:
    """A notebook as a page: its text, its code, and what the code has printed and drawn."""
    parts = []
    for place, cell in enumerate(json.loads(source.read_text())["cells"]):
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            shown = output.get("text") or output["data"].get("text/plain", ())
            if "image/png" in output.get("data", {}):
                parts.append(f"![What the cell above draws]({_picture_name(source, place)})")
            else:
                parts.append(f"```text\n{''.join(shown).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _pictures(source: Path) -> dict[str, bytes]:
    found = {}
    for place, cell in enumerate(json.loads(source.read_text())["cells"]):
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                found[_picture_name(source, place)] = base64.b64decode("".join(output["data"]["image/png"]))
    return found


def _picture_name(source: Path, place: int) -> str:
    return f"{source.stem}_{place}.png"
