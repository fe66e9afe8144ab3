"""Runs whose files were changed in one place: shown, or refused by an error that names the file."""

import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from multistable.cli import app
from multistable.training import train
from small_runs import small

JUNK = [
    None,
    True,
    -1,
    0.5,
    float("nan"),
    10**400,
    2**70,
    "x",
    "\x1b[2J",
    "\ud800",
    [],
    [[]],
    {},
    {"\x07": 1},
    [1, "x"],
]
FILES = ("config.json", "summary.json", "warmup.json", "metrics.jsonl")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    (folder,) = train(small(version="warmup", epochs=1), tmp_path_factory.mktemp("runs"))
    return folder.path


def places(value, path=()):
    """The path to each part of what JSON holds."""
    found = [path]
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(min(len(value), 2)):
            found += places(value[key], (*path, key))
    return found


@st.composite
def changed(draw, folder):
    """A file of a run, and its text with one part replaced, removed, or added to."""
    name = draw(st.sampled_from(FILES))
    lines = (folder / name).read_text().splitlines() if name.endswith("l") else [(folder / name).read_text()]
    number = draw(st.integers(0, len(lines) - 1))
    content = [json.loads(lines[number])]
    *path, key = (0, *draw(st.sampled_from(places(content[0]))))
    inside = content
    for step in path:
        inside = inside[step]
    action = draw(st.sampled_from(["replace", "remove", "add"]))
    if action == "remove" and path:
        del inside[key]
    elif action == "add" and isinstance(inside[key], dict):
        inside[key]["added"] = draw(st.sampled_from(JUNK))
    else:
        inside[key] = draw(st.sampled_from(JUNK))
    lines[number] = json.dumps(content[0])
    return name, "\n".join([*lines, ""])


@settings(max_examples=40)
@given(st.data())
def test_a_run_with_a_changed_file_is_shown_or_refused_by_the_name_of_the_file(finished, tmp_path_factory, data):
    name, text = data.draw(changed(finished))
    copy = shutil.copytree(finished, tmp_path_factory.mktemp("changed") / finished.name)
    (copy / name).write_text(text)
    shown = CliRunner().invoke(app, ["show", str(copy)], env={"COLUMNS": "400"})
    assert isinstance(shown.exception, SystemExit | None), repr(shown.exception)
    assert not {"\x1b", "\x07"} & set(shown.output)
    assert shown.exit_code == 0 or (shown.exit_code == 1 and f"{copy / name}" in shown.stderr)
