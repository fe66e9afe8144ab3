"""Run the notebooks of ``examples/`` without Jupyter, and store what they print and draw: make notebooks."""

import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import matplotlib

from paths import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def run(notebook: Path) -> tuple[dict[str, Any], list[list[dict[str, Any]]]]:
    """The names that the code has made, and what each of its cells has printed and drawn, as notebooks store it."""
    matplotlib.use("Agg")
    names: dict[str, Any] = {}
    return names, [_outputs("".join(cell["source"]), names) for cell in code_cells(json.loads(notebook.read_text()))]


def code_cells(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def _outputs(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    import matplotlib.pyplot as plt

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(source, names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(picture, format="png", dpi=72, bbox_inches="tight")
        data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["<Figure>"]}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    plt.close("all")
    return outputs


def store(notebook: Path) -> None:
    """Run a notebook, and write its outputs into it."""
    content = json.loads(notebook.read_text())
    for place, (cell, outputs) in enumerate(zip(code_cells(content), run(notebook)[1], strict=True), start=1):
        cell |= {"execution_count": place, "outputs": outputs}
    notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for each in NOTEBOOKS:
        store(each)
