"""Pages of results: one file that needs nothing beside it, for a screen of any size, light or dark, and for paper."""

from pathlib import Path
from typing import Any

from multistable.extras import missing
from multistable.files import write_atomically

try:
    import jinja2
except ModuleNotFoundError as error:
    raise missing("a page", "jinja2") from error


def write_page(path: Path | str, template: str, **content: Any) -> Path:
    """Write a page.

    Args:
        path: of the page.
        template: the name of a file in ``templates``.
        content: what it shows. Strings are text, unless the template marks them as safe.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("multistable.experiments"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, environment.get_template(template).render(**content).encode())
    return path
