"""Prints, as constraints of pip, the lowest version of each package that pyproject.toml declares.

Arguments ``NAME==VERSION`` take the place of the lowest version of a package.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def lowest():
    """The lowest version of each package, by its name."""
    declared = [
        *PROJECT["dependencies"],
        *(text for extra in PROJECT["optional-dependencies"].values() for text in extra),
    ]
    return dict(found.groups() for text in declared if (found := re.match(r"([\w-]+)(?:\[[\w,]+\])?>=([\w.]+)", text)))


if __name__ == "__main__":
    for name, version in (lowest() | dict(given.split("==") for given in sys.argv[1:])).items():
        print(f"{name}=={version}")
